#!/usr/bin/env python3
"""The machine of a disk's server is killed under load: what was flushed is there afterwards.

crash.py --build FOLDER --work FOLDER [--rounds N]
The machine is a QEMU guest (see vm) with a virtio disk, ext4 on it, and `feroce export` on the soft
device. A round: flush_witness writes to a new file and remembers what was acknowledged and what was
flushed; QEMU is killed with SIGKILL at a moment of chance; the guest boots again, and every block
must hold what was promised. Files are served through the page cache and around it in turns. What
was acknowledged but not flushed must get lost now and then: else the rounds show nothing. Needs
root, and the packages of .ci/packages/interop*.txt.
"""
import argparse
import os
import pathlib
import random
import re
import select
import shutil
import subprocess
import sys
import time

from lab import ADDRESS, GUEST, Failure, GuestJob, Vm, require_host, wait_until

MIB = 1 << 20
IMAGE_MIB, FILE_MIB = 192, 4
# Only what hangs takes that long. The guest is emulated, and the host may have much else to do: a
# check took more than a minute beside a hundred others.
PATIENCE = 300
MOUNT_PATIENCE = 150
# The guest has a C library of its own, to which these belong.
OF_LIBC = ("libc.so", "libm.so", "ld-linux", "linux-vdso")


def copy_program(vm):
    """feroce and what it loads, for the guest."""
    feroce = vm.build / "bin/feroce"
    for name in ("bin", "lib"):
        (vm.share / name).mkdir()
    shutil.copy(feroce, vm.share / "bin")
    needed = subprocess.run(["ldd", feroce], capture_output=True, text=True, check=True).stdout
    for path in re.findall(r"(/\S+\.so\S*)", needed):
        if not os.path.basename(path).startswith(OF_LIBC):
            shutil.copy(path, vm.share / "lib")


def start(vm, image, is_new):
    vm.call("up", GUEST, "mtu=4200", f"disk={image}")
    made = "mke2fs -q -b 4096 -t ext4 /dev/vda && " if is_new else ""
    vm.on_guest(f"modprobe -a virtio_blk ext4 && {made}mkdir /disk && mount -t ext4 /dev/vda /disk",
                MOUNT_PATIENCE)


def boot(vm, image, is_new=False):
    """The emulated disk was seen to answer nothing: the guest's mount then hangs, before it has
    anything of ours. Such a guest is started once more, and that is said."""
    try:
        start(vm, image, is_new)
    except Failure as hung:
        print(f"the guest is started again: {hung}", flush=True)
        vm.call("down", "all")
        start(vm, image, is_new)
    copy_program(vm)


def file_of(number):
    how = ",buffered" if number % 2 else ""
    return f"disk{number}=/disk/{number}{how}"


def export(vm, *numbers):
    job = GuestJob(vm, "export STATE_DIRECTORY=/disk/state; exec /share/bin/feroce export "
                   + " ".join(map(file_of, numbers)))
    if not wait_until(lambda: "on port" in job.output() or not job.is_running(), PATIENCE) or \
            not job.is_running():
        raise Failure(f"feroce export in the guest: {job.finish(1)}")


def witness(vm, what, number):
    record = vm.work / f"record-{number}"
    return [str(vm.build / "tests/block/flush_witness"), what, ADDRESS["rxe"]["IPv4"],
            f"disk{number}", str(record)]


def last_words(process, number):
    """What it has said when it has ended."""
    try:
        return process.communicate(timeout=PATIENCE)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failure(f"round {number}: no end after {PATIENCE} s, and it has said: "
                      f"{process.communicate()[0]}") from None


def check(vm, number):
    """How many blocks lost what was not flushed."""
    process = vm.on_host(witness(vm, "check", number))
    said = last_words(process, number)
    if process.returncode != 0:
        raise Failure(f"round {number}: {said}")
    os.remove(vm.work / f"record-{number}")
    print(f"round {number}: {said.strip()}", flush=True)
    return int(re.search(r"(\d+) lost", said)[1])


def crash_under_load(vm, number):
    (vm.work / f"record-{number}").unlink(missing_ok=True)  # Of a run that failed.
    writer = vm.on_host(witness(vm, "write", number))
    try:
        begun, _, _ = select.select([writer.stdout], [], [], PATIENCE)
        said = writer.stdout.readline() if begun else f"has not begun after {PATIENCE} s"
        if said.strip() != "flushing":
            writer.terminate()
            raise Failure(f"round {number}: {said}{last_words(writer, number)}")
        time.sleep(random.uniform(0, 0.7))
        vm.call("crash", GUEST)
        # `vm ns` has become the writer by exec, through ip.
        writer.terminate()
        said = last_words(writer, number)
    finally:
        writer.kill()
    if writer.returncode != 0:
        raise Failure(f"round {number}: the writer: {said}")
    print(f"round {number}{' buffered' if number % 2 else ''}: {said.strip()}", flush=True)


def run(vm, rounds):
    image = vm.work / "disk.img"
    image.unlink(missing_ok=True)
    image.touch()
    os.truncate(image, IMAGE_MIB * MIB)
    lost = 0
    boot(vm, image, is_new=True)
    for number in range(1, rounds + 1):
        vm.on_guest(f"truncate -s {FILE_MIB * MIB} /disk/{number} && sync", PATIENCE)
        before = [number - 1] if number > 1 else []
        export(vm, *before, number)
        if before:
            lost += check(vm, number - 1)
        crash_under_load(vm, number)
        boot(vm, image)
    export(vm, rounds)
    lost += check(vm, rounds)
    image.unlink()
    if lost == 0:
        raise Failure("no crash has cost anything that was not flushed, so none shows anything")
    print(f"{rounds} crashes; {lost} blocks lost what was not flushed, none what was", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    require_host("crash")
    vm = Vm(options.work.resolve(), options.build.resolve())
    try:
        vm.call("down", "all")
        print(vm.call("build", "kind=bare"), flush=True)
        run(vm, options.rounds)
    except (Failure, subprocess.TimeoutExpired) as failure:
        sys.exit(f"crash: {failure}")
    finally:
        vm.call("down", "all")


if __name__ == "__main__":
    main()
