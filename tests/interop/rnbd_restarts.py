"""Our server is killed and started again under the kernel's rnbd-client.

The kernel reconnects by itself and opens its disks again: the same session uuid, no CLOSE before.
It must go on with a disk that nobody else was granted meanwhile, map further ones in the session,
be told ESTALE of a disk that another client wrote, and of a flush that failed it must hear again.
"""
import os
import subprocess

from lab import PAIR_SECONDS, Failure
from rnbd import CTL, MIB, PATHS, KERNEL_SESSION, environment, feroce, host
from sessions import PORT, RAILS, on_guest_until

DISKS = ("overtaken", "lossy", "later")
DISK_MIB = 8
BLOCK = 4096
OTHER_PORT = PORT + 1  # Where the kernel does not come back too early.
ESTALE = 116


class Server:
    """`feroce export` of all disks; one of its syncs fails when it is told so."""

    def __init__(self, lab, port=PORT):
        self.sign = lab.work / "failing-flush"
        shim = lab.vm.build / "tests/interop/libfailing_flush.so"
        exports = [f"{name}={path_of(lab, name)}" for name in DISKS]
        self.process = subprocess.Popen(
            [*lab.vm.base, "ns", feroce(lab), "export", "--port", str(port), *exports],
            env=dict(environment(lab), LD_PRELOAD=str(shim),
                     FEROCE_TEST_FAILING_FLUSH=str(self.sign)),
            stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline():
            raise Failure(f"feroce export ended with {self.process.wait()}")

    def fail_next_flush(self):
        self.sign.touch()

    def kill(self):
        # `vm ns` has become feroce by exec, through ip.
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(PAIR_SECONDS)
        if self.process.returncode != 0:
            raise Failure(f"feroce export ended with {self.process.returncode}")


def path_of(lab, name):
    return lab.work / f"rnbd-{name}.img"


def make_disks(lab):
    for name in DISKS:
        remove_disk(lab, name)
        with open(path_of(lab, name), "wb") as out:
            out.truncate(DISK_MIB * MIB)


def remove_disk(lab, name):
    for path in (path_of(lab, name), f"{path_of(lab, name)}.feroce"):
        if os.path.exists(path):
            os.remove(path)


class Disk:
    """A disk of the guest, mapped in the one session."""

    def __init__(self, lab, name):
        self.lab, self.name = lab, name
        paths = " ".join(f"path=ip:{rail['rxe']}@ip:{rail['feroce']}" for rail in RAILS)
        lab.vm.on_guest(f"echo 'sessname={KERNEL_SESSION} {paths} device_path={name}' "
                        f">{CTL}/map_device")
        device = lab.vm.on_guest(f"readlink -f '{CTL}/devices/{name}@{KERNEL_SESSION}'")
        self.device = os.path.basename(device)

    def expect_state(self, state):
        on_guest_until(self.lab, f"grep -q {state} /sys/block/{self.device}/rnbd/state",
                       f"the disk {self.name} does not become {state}")

    def does(self, command):
        """Whether the guest can do it to the disk."""
        return self.lab.vm.on_guest(f"{command} 2>/dev/null && echo done || echo failed"
                                    ).endswith("done")

    def writes(self, block, word):
        return self.does(f"yes {word} | head -c {BLOCK} >/tmp/block && dd if=/tmp/block "
                         f"of=/dev/{self.device} bs={BLOCK} seek={block} oflag=direct conv=notrunc")

    def flushes(self):
        return self.does(f"dd if=/dev/null of=/dev/{self.device} count=0 conv=notrunc,fsync")

    def reads(self, block, word):
        return self.does(f"yes {word} | head -c {BLOCK} >/tmp/block && dd if=/dev/{self.device} "
                         f"of=/tmp/found bs={BLOCK} skip={block} count=1 iflag=direct && "
                         "cmp /tmp/block /tmp/found")

    def unmap(self):
        self.lab.vm.on_guest(f"echo normal >/sys/block/{self.device}/rnbd/unmap_device")
        on_guest_until(self.lab, f"test ! -e /sys/block/{self.device}",
                       f"the disk {self.name} is not unmapped")


def expect(**wanted):
    """Each must be true; its name says what is not."""
    wrong = [name.replace("_", " ") for name, fine in wanted.items() if not fine]
    if wrong:
        raise Failure("not so: " + "; ".join(wrong))


def go_on(lab, server):
    """The kernel's disks after a restart of the server as it was; the new server."""
    disk, lossy = Disk(lab, "overtaken"), Disk(lab, "lossy")
    expect(a_disk_is_written=disk.writes(0, "one") and disk.flushes(),
           another_is_written=lossy.writes(0, "one"))
    server.fail_next_flush()
    expect(a_flush_fails=not lossy.flushes(), it_stays_failed=not lossy.flushes(),
           the_other_disk_is_flushed=disk.flushes())
    server.kill()
    server = Server(lab)
    try:
        for one in (disk, lossy):
            one.expect_state("closed")
        for one in (disk, lossy):
            one.expect_state("open")
        expect(what_was_flushed_is_there=disk.reads(0, "one"),
               the_disk_is_written_again=disk.writes(1, "two") and disk.flushes(),
               it_is_read=disk.reads(1, "two"),
               the_lossy_one_is_written=lossy.writes(1, "two"),
               its_flush_fails_as_before=not lossy.flushes())
        # A session of before the restart maps a further disk, and one that it has closed.
        later = Disk(lab, "later")
        lossy.unmap()
        lossy = Disk(lab, "lossy")
        expect(a_further_disk_is_written=later.writes(0, "one") and later.flushes(),
               closed_and_opened_it_is_flushed=lossy.writes(2, "three") and lossy.flushes())
    except BaseException:
        server.kill()
        raise
    return server, disk, lossy, later


def write_as_another(lab, data):
    """Another client is granted the disk while the kernel has no server."""
    source = lab.work / "rnbd.source"
    source.write_bytes(data)
    server = Server(lab, OTHER_PORT)
    try:
        uri = host(lab, feroce(lab), "attach", RAILS[0]["feroce"], "overtaken", "--session",
                   "another", "--port", str(OTHER_PORT), "--socket",
                   f"/tmp/feroce-rnbd-{os.getpid()}")
        try:
            host(lab, "nbdcopy", "--flush", str(source), uri)
        finally:
            host(lab, feroce(lab), "detach", uri)
        server.stop()
    finally:
        server.kill()
    os.remove(source)


def be_told(lab, server, disk, others):
    """Another client wrote the disk before the server came back; the new server."""
    refusal = f"Opening failed, server responded: -{ESTALE}"
    before = lab.vm.on_guest(f"dmesg | grep -c '{refusal}' || true")
    server.kill()
    for one in (disk, *others):
        one.expect_state("closed")
    data = os.urandom(DISK_MIB * MIB)
    write_as_another(lab, data)
    server = Server(lab)
    try:
        for one in others:
            one.expect_state("open")
        on_guest_until(lab, f"test $(dmesg | grep -c '{refusal}') -gt {before}",
                       "the kernel is not told that another was granted the disk")
        expect(an_old_write_fails=not disk.writes(2, "old"), a_flush_fails=not disk.flushes(),
               a_read_fails=not disk.reads(0, "one"),
               the_other_disks_go_on=all(one.writes(3, "four") and one.flushes()
                                         for one in others))
        if path_of(lab, "overtaken").read_bytes() != data:
            raise Failure("a write of before landed over what the other client wrote")
        for one in (disk, *others):
            one.unmap()
        on_guest_until(lab, f"test ! -e {PATHS}", "the kernel's session does not end")
        disk = Disk(lab, "overtaken")
        expect(mapped_again_it_is_written=disk.writes(2, "new") and disk.flushes())
        disk.unmap()
        on_guest_until(lab, f"test ! -e {PATHS}", "the kernel's session does not end")
    finally:
        server.kill()


def kernel_client(lab):
    make_disks(lab)
    lab.vm.on_guest("modprobe rnbd-client")
    server = Server(lab)
    try:
        server, disk, *others = go_on(lab, server)
        be_told(lab, server, disk, others)
    finally:
        server.kill()
    lab.vm.on_guest("modprobe -r rnbd-client rtrs-client")
    for name in DISKS:
        remove_disk(lab, name)
    return "goes on, maps further ones, is told ESTALE, hears of its failed flush again"


CASES = {"disks: a server that is killed": ("rxe", kernel_client)}
