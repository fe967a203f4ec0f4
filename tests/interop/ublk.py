#!/usr/bin/env python3
"""A disk of this machine as /dev/ublkbN of another one, whose kernel has ublk.

ublk.py --build FOLDER --work FOLDER
`feroce export` runs on this side, `feroce attach` in a QEMU guest (see vm) with the newer kernel of
Debian's backports: 6.1 has no ublk that we speak. A file system is made and filled on the disk,
space is given back, the process that serves the device is killed and its remains are taken away.
Needs root, and the packages of .ci/packages/interop*.txt.
"""
import argparse
import contextlib
import hashlib
import os
import pathlib
import signal
import subprocess
import sys

from crash import copy_program
from lab import ADDRESS, GUEST, Failure, Vm, require_host

MIB = 1 << 20
DISK_MIB, FILE_MIB = 64, 8
PATIENCE = 300  # The guest is emulated.
DEVICE = "/dev/ublkb0"
FEROCE = "/share/bin/feroce"
ATTACH = f"{FEROCE} attach {ADDRESS['feroce']['IPv4']} disk"
# pidof counts those that have ended and that the guest's init has not waited for yet.
RUNNING = "$(ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c bin/feroce)"


class Trial:
    def __init__(self, vm, image, server):
        self.vm = vm
        self.image = image
        self.server = server

    def guest(self, command):
        return self.vm.on_guest(command, PATIENCE)

    def refused(self, command, words):
        """The command fails in the guest, and says why."""
        said = self.guest(f"{command} 2>&1 && echo it did; true")
        if "it did" in said or words not in said:
            raise Failure(f"{command} should have been refused with '{words}': {said}")

    def attach(self, options=""):
        said = self.guest(f"{ATTACH} {options}")
        if said != DEVICE:
            raise Failure(f"feroce attach has made '{said}' and not {DEVICE}")

    def detach(self):
        self.guest(f"{FEROCE} detach {DEVICE} && test ! -e {DEVICE} && test ! -e /dev/ublkc0")

    def bytes_here(self, offset, size):
        with open(self.image, "rb") as disk:
            disk.seek(offset)
            return disk.read(size)


def expect(what, seen, right):
    if seen != right:
        raise Failure(f"{what}: {seen} and not {right}")


def without_the_module(t):
    t.refused(f"{ATTACH} --as ublk", "/dev/ublk-control")
    t.refused(f"{ATTACH} --as tape", "--as")
    t.guest("modprobe ublk_drv && test -c /dev/ublk-control")


def bytes_come_and_go(t):
    """What dd writes past the cache is in the file here, and comes back."""
    t.attach()
    expect("its size", t.guest("cat /sys/block/ublkb0/size"), str(DISK_MIB * MIB // 512))
    expect("its cache", t.guest("cat /sys/block/ublkb0/queue/write_cache"), "write back")
    digest = t.guest(f"head -c {FILE_MIB * MIB} /dev/urandom >/tmp/bytes && "
                     f"dd if=/tmp/bytes of={DEVICE} bs=1M seek=1 conv=fsync 2>/dev/null && "
                     "md5sum </tmp/bytes").split()[0]
    expect("what was flushed", hashlib.md5(t.bytes_here(MIB, FILE_MIB * MIB)).hexdigest(), digest)
    seen = t.guest(f"echo 3 >/proc/sys/vm/drop_caches; dd if={DEVICE} bs=4096 skip=256 "
                   f"count={FILE_MIB * 256} 2>/dev/null | md5sum").split()[0]
    expect("what comes back", seen, digest)
    t.guest(f"blkdiscard -o {MIB} -l {FILE_MIB * MIB} {DEVICE}")
    expect("what was discarded", t.bytes_here(MIB, FILE_MIB * MIB), bytes(FILE_MIB * MIB))
    used = os.stat(t.image).st_blocks * 512
    if used > FILE_MIB * MIB // 2:
        raise Failure(f"discarding has given nothing back: {used} bytes are used")
    t.detach()


def a_file_system(t):
    """It is not taken away while it is mounted, and is the same when it is attached again."""
    t.attach()
    t.guest(f"mke2fs -q -t ext4 {DEVICE} && mkdir -p /disk && mount -t ext4 {DEVICE} /disk && "
            "cp /tmp/bytes /disk/bytes")
    t.refused(f"{FEROCE} detach {DEVICE}", "is in use")
    t.guest("umount /disk")
    t.detach()
    t.attach()
    t.guest(f"mount -t ext4 {DEVICE} /disk && cmp /tmp/bytes /disk/bytes && umount /disk")
    t.detach()


def only_for_reading(t):
    t.attach("--access ro")
    expect("read-only", t.guest("cat /sys/block/ublkb0/ro"), "1")
    t.guest(f"mount -t ext4 -o ro,noload {DEVICE} /disk && cmp /tmp/bytes /disk/bytes && "
            "umount /disk")
    t.detach()


def a_killed_server(t):
    """The kernel takes the disk away; detach, the number. The next one has it again."""
    t.attach("--session killed")
    t.guest("kill -KILL $(pidof feroce) && for i in $(seq 100); do "
            f"test -e {DEVICE} || exit 0; sleep 0.1; done; exit 1")
    t.detach()
    t.attach("--session killed")
    t.guest(f"mount -t ext4 {DEVICE} /disk && cmp /tmp/bytes /disk/bytes && umount /disk")
    t.detach()


def refusals(t):
    t.refused(f"{ATTACH} --access all", "access is ro, rw or migration")
    t.refused(f"{ATTACH}s --as ublk", "disks")  # The server's sentence.
    t.refused(f"{FEROCE} detach /dev/ublkb7", "is no disk of feroce attach")
    t.guest("test ! -e /dev/ublkc0")  # Nothing is left behind.


def a_stop_from_elsewhere(t):
    """SIGTERM to the process that serves is as good as detach."""
    t.attach()
    t.guest("kill $(pidof feroce) && for i in $(seq 300); do "
            "test -e /dev/ublkc0 || exit 0; sleep 0.1; done; exit 1")


def a_caller_that_gives_up(t):
    """feroce attach is killed while the server does not answer; the device that comes then goes."""
    t.server.send_signal(signal.SIGSTOP)
    try:
        t.guest(f"{ATTACH} >/dev/null 2>&1 & caller=$!; for i in $(seq 300); do "
                f"test {RUNNING} = 2 && kill -KILL $caller && exit 0; sleep 0.1; done; exit 1")
    finally:
        t.server.send_signal(signal.SIGCONT)
    t.guest(f"for i in $(seq 600); do test {RUNNING} = 0 && exit 0; sleep 0.1; done; exit 1")
    t.guest("test ! -e /dev/ublkc0")
    t.attach()
    t.detach()


CASES = [without_the_module, bytes_come_and_go, a_file_system, only_for_reading, a_killed_server,
         refusals, a_stop_from_elsewhere, a_caller_that_gives_up]


@contextlib.contextmanager
def exported(vm, image):
    server = subprocess.Popen([*vm.base, "ns", str(vm.build / "bin/feroce"), "export",
                               f"disk={image}"], text=True, stdout=subprocess.PIPE,
                              env=dict(vm.environment, STATE_DIRECTORY=str(vm.work / "state")))
    try:
        if not server.stdout.readline():
            raise Failure(f"feroce export ended with {server.wait()}")
        yield server
    finally:
        # `vm ns` has become feroce by exec, through ip.
        server.terminate()
        server.communicate(timeout=PATIENCE)


def run(vm):
    vm.call("up", GUEST, "mtu=4200")
    copy_program(vm)
    vm.on_guest("modprobe ext4")
    image = vm.work / "ublk.img"
    with open(image, "wb") as out:
        out.truncate(DISK_MIB * MIB)
    with exported(vm, image) as server:
        trial = Trial(vm, image, server)
        for case in CASES:
            case(trial)
            print(f"{case.__name__}: ok", flush=True)
    image.unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    options = parser.parse_args()
    require_host("ublk")
    vm = Vm(options.work.resolve(), options.build.resolve())
    try:
        vm.call("down", "all")
        print(vm.call("build", "kind=bare", "suite=backports", "module=ublk_drv"), flush=True)
        run(vm)
    except (Failure, subprocess.TimeoutExpired) as failure:
        sys.exit(f"ublk: {failure}")
    finally:
        vm.call("down", "all")


if __name__ == "__main__":
    main()
