#!/usr/bin/env python3
"""iSER by unmodified programs: tgt's tgtd as target; libiscsi's tools and qemu-img as initiators.

run.py --feroce PROGRAM [--all] [TEST...]      on loopback, through `feroce run`
run.py --library FOLDER --netns [--all]        as an ordinary user between two network namespaces
Both copy an image there and back and run libiscsi's conformance suite over iSER and over TCP: a
quick choice of it, with --all the whole, or the named tests.
"""
import argparse
import contextlib
import filecmp
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "netns")]
import copying  # noqa: E402  (found by the path above)
import namespaces  # noqa: E402
import suite  # noqa: E402
import target as tgt  # noqa: E402
from place import Failure, Place  # noqa: E402

MIB = 1 << 20
DISK_MIB = 40  # iscsi-test-cu writes up to 32 MiB from the start.
IMAGE_MIB = 24


def write_random(path, size):
    with open(path, "wb") as f:
        f.write(os.urandom(size))


def check_questions(place, target):
    """A disk has the same answers over both transports."""
    for command in (["iscsi-inq"], ["iscsi-inq", "-e", "1", "-c", "0xb0"],
                    ["iscsi-readcapacity16"]):
        answers = [place.check(*command, target.url(transport)) for transport in tgt.TARGETS]
        if answers[0] != answers[1]:
            raise Failure(f"{' '.join(command)} over TCP:\n{answers[0]}over iSER:\n{answers[1]}")
    listed = place.check("iscsi-ls", f"iscsi://{target.portal()}")
    if tgt.NAME not in listed:
        raise Failure(f"iscsi-ls finds no target:\n{listed}")


def check_copy(place, target, folder):
    """An image to the disk, compared there, and back; the disk is a file that we can read."""
    image, copy = folder / "image", folder / "copy"
    write_random(image, IMAGE_MIB * MIB)
    copying.write(place, image, target.image())
    copying.compare(place, image, target.image())
    copying.read(place, target.image(), copy)
    with open(copy, "r+b") as f:
        f.truncate(IMAGE_MIB * MIB)
    with open(target.disk, "rb") as f:
        on_disk = f.read(IMAGE_MIB * MIB)
    if not filecmp.cmp(image, copy, shallow=False) or on_disk != image.read_bytes():
        raise Failure("an image copied over iSER differs from what it was")


def check_load(place, target):
    """Many reads under way at once."""
    place.check("iscsi-perf", "-t", "1", "-m", "64", "-b", "8", target.url("iser"))


@contextlib.contextmanager
def loopback(options):
    """Target's and initiator's place, and the target's address, on loopback."""
    environment = dict(os.environ, FEROCE_DEVICES="lo")
    feroce = [options.feroce, "run", "--"]
    initiator = {**environment, **tgt.LIBISCSI_SETTINGS}
    yield Place(environment, [], feroce), Place(initiator, [], feroce), "127.0.0.1"


@contextlib.contextmanager
def across_namespaces(options):
    with namespaces.two_namespaces() as sides, \
            namespaces.readable_copy(options.library) as libraries:
        environment = dict(os.environ, LD_LIBRARY_PATH=libraries, HOME="/",
                           FEROCE_DEVICES=namespaces.DEVICE)
        words = [side.place(*namespaces.as_ordinary_user()) for side in sides]
        initiator = {**environment, **tgt.LIBISCSI_SETTINGS}
        yield (Place(environment, words[0]), Place(initiator, words[1]),
               namespaces.FAMILIES[options.family][0])


def run(options):
    with (across_namespaces if options.netns else loopback)(options) as (there, here, address), \
            tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.chmod(folder, 0o777)  # Another user's programs write into it.
        disk = folder / "disk"
        disk.touch()
        os.chmod(disk, 0o666)
        os.truncate(disk, DISK_MIB * MIB)
        with tgt.running(there, folder, address, disk) as target:
            check_questions(here, target)
            check_copy(here, target, folder)
            check_load(here, target)
            tests = options.tests or (suite.list_tests(here) if options.all else suite.QUICK)
            return suite.compare(here, target, tests)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--feroce", help="the program, for loopback")
    parser.add_argument("--library", help="the folder of the libraries, for namespaces")
    parser.add_argument("--netns", action="store_true")
    parser.add_argument("--family", choices=namespaces.FAMILIES, default="ipv4")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("tests", nargs="*", help="of iscsi-test-cu, Suite.Test")
    options = parser.parse_args()
    if options.netns:
        namespaces.enter_user_namespace()
    began = time.monotonic()
    try:
        problems = run(options)
    except Failure as failure:
        problems = [str(failure)]
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{time.monotonic() - began:.1f} s, {len(problems)} failed")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
