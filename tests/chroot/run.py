#!/usr/bin/env python3
"""Feroce on bare Debian systems: run.py --work FOLDER [--suite SUITE] [PART...]. As root.

With --packages FOLDER the packages are taken from there and not built.

readme    the two commands at the top of README.md, as written, with nothing else installed
packages  dpkg-buildpackage; its packages in another bare system, used by an ordinary user, removed
container the steps of Containerfile, then its user without capabilities, under seccomp
tests     ./feroce test (the everyday tests)
userns    the same as an ordinary user in user and network namespaces of his own
gxx11     the product built by g++ 11, the compiler of Ubuntu 22.04, and run (bookworm has it)
gxx13     the same by g++ 13, that of Ubuntu 24.04 (trixie has it)
"""
import argparse
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import container
import rooms

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
USER = "1000"
# A server and then a client; the client's status counts. -F: the clock need not be measured.
PAIR = """{prefix} ib_write_bw -F -d feroce_lo -n 500 >/tmp/server 2>&1 &
for i in $(seq 100); do
    if {prefix} ib_write_bw -F -d feroce_lo -n 500 127.0.0.1 >/tmp/client 2>&1; then break; fi
    grep -q "Couldn.t connect" /tmp/client || break
    sleep 0.1
done
cat /tmp/client
wait $!
"""


def bring_source(room):
    """The tree as it is here, without what git ignores."""
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
                            "--exclude-standard"], check=True, capture_output=True).stdout
    place = room.folder / "feroce"
    place.mkdir()
    listed = [name for name in names.split(b"\0") if name and (ROOT / os.fsdecode(name)).exists()]
    with subprocess.Popen(["tar", "-C", str(ROOT), "--null", "-T", "-", "-c"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pack:
        with subprocess.Popen(["tar", "-C", str(place), "--no-same-owner", "-x"],
                              stdin=pack.stdout) as unpack:
            pack.stdin.write(b"\0".join(listed) + b"\0")
            pack.stdin.close()
        if unpack.returncode != 0:
            sys.exit("chroot: the source could not be copied")


def readme_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```\w*\n(.*?)```", text, re.DOTALL).group(1)
    commands = [line.split("#")[0].strip() for line in block.splitlines() if line.strip()]
    if len(commands) != 2 or not all(command.startswith("./feroce ") for command in commands):
        sys.exit(f"chroot: README.md begins with other commands: {commands}")
    return commands


def readme(work, suite):
    """root, because an ordinary user is only told what to install."""
    commands = readme_commands()
    with rooms.Room(work, suite) as room:
        bring_source(room)
        for command in commands:
            print(room.run(f"cd /feroce && {command}", online=True)[-2000:])


def build_packages(work, suite):
    target = work / f"{suite}.packages"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    with rooms.Room(work, suite) as room:
        bring_source(room)
        room.install("dpkg-dev")
        room.run("cd /feroce && apt-get -qq -y --no-install-recommends build-dep .", online=True)
        room.run("cd /feroce && dpkg-buildpackage -us -uc -b")
        for package in room.folder.glob("*.deb"):
            shutil.copy(package, target)
    return target


def expect_bandwidth(text):
    if not re.search(r"^ *65536 +500 +[0-9.]+ +[0-9.]+", text, re.MULTILINE):
        sys.exit(f"chroot: ib_write_bw printed {text}")


def packages(work, suite, made=None):
    made = made or build_packages(work, suite)
    with rooms.Room(work, suite) as room:
        room.install("perftest ibverbs-utils iproute2")
        before = room.files()
        for package in made.glob("*.deb"):
            shutil.copy(package, room.folder / "tmp")
        room.install("/tmp/feroce_*.deb /tmp/libferoce1_*.deb")
        pair = PAIR.format(prefix="feroce run --")
        expect_bandwidth(room.run(pair, user=USER))
        expect_bandwidth(room.run(f"unshare -Urn sh -ec 'ip link set lo up; {pair}'", user=USER))
        check_compat(room)
        room.run("apt-get -qq -y purge feroce libferoce1")
        # What came along with them goes too.
        room.run("apt-get -qq -y --purge autoremove")
        left = room.files() - before
        if left:
            sys.exit(f"chroot: removing the packages left {sorted(left)}")


def check_compat(room):
    """Every program gets the soft device, until the package goes."""
    room.install("/tmp/feroce-verbs-compat_*.deb")
    expect_bandwidth(room.run(PAIR.format(prefix=""), user=USER))
    room.run("apt-get -qq -y remove feroce-verbs-compat")
    # Debian's own finds no device and says so by its status or by an empty list.
    out = room.run("ibv_devices 2>&1 || true", user=USER)
    if "feroce" in out or "/feroce/" in room.run("ldconfig -p"):
        sys.exit(f"chroot: feroce-verbs-compat is gone, but {out}")


def tests(work, suite):
    with rooms.Room(work, suite) as room:
        bring_source(room)
        print(room.run("cd /feroce && ./feroce test", online=True, patience=5400)[-3000:])


def userns(work, suite):
    """The tests as an ordinary user who is root of nothing but his own namespaces."""
    with rooms.Room(work, suite) as room:
        bring_source(room)
        room.install("$(sed 's/#.*//' /feroce/.ci/packages/product.txt "
                     "/feroce/.ci/packages/test.txt)")
        room.run(f"chown -R {USER}:{USER} /feroce")
        # Root of the first namespace brings loopback up; in the second he is himself again.
        inner = f"exec unshare -U --map-user={USER} --map-group={USER} ./feroce test"
        print(room.run(f"cd /feroce && exec unshare -Urn sh -c 'ip link set lo up; {inner}'",
                       user=USER, patience=5400)[-3000:])


def other_compiler(work, suite, version):
    """With the C++ library of that compiler, and every warning an error."""
    with rooms.Room(work, suite) as room:
        bring_source(room)
        room.install(f"g++-{version} $(sed 's/#.*//; /^g++$/d' /feroce/.ci/packages/product.txt)")
        # The suite's libfmt needs its own C++ runtime, which is there when a program runs; an older
        # g++ links with its own library.
        linker = " ".join(f"-DCMAKE_{kind}_LINKER_FLAGS=-Wl,--allow-shlib-undefined"
                          for kind in ("EXE", "SHARED", "MODULE"))
        room.run("cd /feroce && cmake --preset release -DFEROCE_TESTS=OFF -DFEROCE_TRAIN=OFF "
                 f"-DCMAKE_C_COMPILER=gcc-{version} -DCMAKE_CXX_COMPILER=g++-{version} {linker}")
        room.run("ninja -C /feroce/build product gas_counter gas_shared_map", patience=5400)
        expect_bandwidth(room.run(PAIR.format(prefix="/feroce/build/bin/feroce run --"), user=USER))
        launch = "cd /feroce/build && bin/feroce launch -n 3 -- examples/gas/gas_"
        counted = room.run(launch + "counter", user=USER)
        if counted.count("all are 3") != 3:
            sys.exit(f"chroot: three nodes of gas_counter printed {counted}")
        mapped = room.run(launch + "shared_map", user=USER)
        if mapped.count("50 keys counted by 3 nodes: 150") != 3:
            sys.exit(f"chroot: three nodes of gas_shared_map printed {mapped}")


def container_image(work, suite):
    image = container.Image(work, suite, ROOT / "Containerfile", bring_source)
    try:
        if "feroce_lo" not in image.confined(" ".join(image.command)):
            sys.exit("chroot: the container shows no device")
        expect_bandwidth(image.confined(PAIR.format(prefix="feroce run --")))
    finally:
        image.close()


PARTS = {"readme": readme, "packages": packages, "container": container_image, "tests": tests,
         "userns": userns, "gxx11": functools.partial(other_compiler, version=11),
         "gxx13": functools.partial(other_compiler, version=13)}
EACH_SUITE = ["readme", "packages", "container", "tests", "userns"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--packages", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("chroot: only root can make Debian systems; use sudo")
    options.work.mkdir(parents=True, exist_ok=True)
    for part in options.parts or EACH_SUITE:
        given = [options.packages] if part == "packages" else []
        PARTS[part](options.work, options.suite, *given)
        rooms.say(f"{options.suite}: {part} passed")


if __name__ == "__main__":
    main()
