"""Disks between block/ and the kernel's RNBD, in both roles, over two paths.

The guest's rnbd-client maps a file that `feroce export` serves, makes a file system on it and fills
it while a path is cut; `feroce attach` opens a RAM disk of the guest's rnbd-server, and nbdcopy
writes and reads it.
"""
import contextlib
import hashlib
import os
import subprocess

from lab import PAIR_SECONDS, TAPS, Failure, wait_until
from sessions import PATIENCE, PORT, RAILS, on_guest_until

MIB = 1 << 20
KERNEL_SESSION, OUR_SESSION = "disk-from-kernel", "disk-from-feroce"
CTL = "/sys/class/rnbd-client/ctl"
PATHS = f"/sys/class/rtrs-client/{KERNEL_SESSION}/paths"
FILE_MIB, DISK_MIB = 256, 384
RAM_MIB = 64
# What fills the file: both sides can make it without sending it.
TEXT = "yes feroce"
SLOW = 900  # An emulated guest writes some megabytes a second, and notices a cut path after 35 s.


def md5_of_text(size):
    lines = b"feroce\n" * (size // 7 + 1)
    return hashlib.md5(lines[:size]).hexdigest()


def feroce(lab):
    return str(lab.vm.build / "bin/feroce")


def environment(lab):
    """Of programs on the host; what servers remember is the lab's own."""
    return dict(lab.vm.environment, FEROCE_DEVICES="br0,br1",
                STATE_DIRECTORY=str(lab.work / "state"))


def host(lab, *command):
    """What a command on the host says."""
    done = subprocess.run([*lab.vm.base, "ns", *command], env=environment(lab), check=False,
                          capture_output=True, text=True, timeout=SLOW)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: {done.stderr}")
    return done.stdout.strip()


@contextlib.contextmanager
def exported(lab, path):
    """`feroce export` on the host; what it printed at the end is in the list."""
    said = []
    server = subprocess.Popen([*lab.vm.base, "ns", feroce(lab), "export", f"disk={path}"],
                              env=environment(lab), stdout=subprocess.PIPE, text=True)
    try:
        if not server.stdout.readline():
            raise Failure(f"feroce export ended with {server.wait()}")
        yield said
    finally:
        # `vm ns` has become feroce by exec, through ip.
        server.terminate()
        said += server.communicate(timeout=PAIR_SECONDS)[0].splitlines()
    if server.returncode != 0:
        raise Failure(f"feroce export ended with {server.returncode}")


def counts(said):
    """`disk: 12 reads, 3 writes, ...` as a dictionary."""
    words = said[-1].split(": ")[1].split(", ")
    return {word.split()[1]: int(word.split()[0]) for word in words}


def kernel_client(lab):
    """Map, file system, 256 MiB written while a path is cut, verified after a second mount."""
    disk = lab.work / "rnbd.img"
    with open(disk, "wb") as out:
        out.truncate(DISK_MIB * MIB)
    paths = " ".join(f"path=ip:{rail['rxe']}@ip:{rail['feroce']}" for rail in RAILS)
    connected = f"cat {PATHS}/*/state | grep -c '^connected'"
    with exported(lab, disk) as said:
        lab.vm.on_guest("modprobe -a rnbd-client ext4 && echo "
                        f"'sessname={KERNEL_SESSION} {paths} device_path=disk' >{CTL}/map_device")
        size = lab.vm.on_guest("cat /sys/block/rnbd0/size")
        if int(size) != DISK_MIB * MIB // 512:
            raise Failure(f"the kernel's disk has {size} sectors")
        lab.vm.on_guest("mke2fs -q -t ext4 /dev/rnbd0 && mkdir -p /tmp/m && "
                        "mount -t ext4 /dev/rnbd0 /tmp/m", SLOW)
        job = lab.start("rxe", f"{TEXT} | head -c {FILE_MIB * MIB} >/tmp/m/file && sync")
        on_guest_until(lab, "test $(stat -c %s /tmp/m/file) -gt 20000000", "nothing is written")
        lab.vm.call("ns", "ip", "link", "set", TAPS[1], "down")
        on_guest_until(lab, f"test $({connected}) = 1", "the kernel does not notice the cut path")
        lab.vm.call("ns", "ip", "link", "set", TAPS[1], "up")
        status, output = job.finish(SLOW)
        if status != 0:
            raise Failure(f"writing failed: {output}\n" + lab.vm.on_guest("dmesg | tail -20"))
        lab.vm.on_guest("umount /tmp/m && mount -t ext4 /dev/rnbd0 /tmp/m", SLOW)
        found = lab.vm.on_guest("md5sum </tmp/m/file", SLOW).split()[0]
        if found != md5_of_text(FILE_MIB * MIB):
            raise Failure("the kernel reads something else than it wrote")
        full = os.stat(disk).st_blocks
        lab.vm.on_guest("umount /tmp/m && blkdiscard -f /dev/rnbd0", SLOW)
        if not wait_until(lambda: os.stat(disk).st_blocks < full // 10, PATIENCE):
            raise Failure("what the kernel discarded has not become holes in the file")
        lab.vm.on_guest("echo normal >/sys/block/rnbd0/rnbd/unmap_device")
        on_guest_until(lab, f"test ! -e {PATHS}", "the kernel's session does not end")
        lab.vm.on_guest("modprobe -r rnbd-client rtrs-client")
    done = counts(said)
    missing = [kind for kind in ("reads", "writes", "flushes", "discards") if not done[kind]]
    if missing:
        raise Failure(f"no {missing} reached the server: {said}")
    os.remove(disk)
    return f"{done}"


def kernel_zeroes(lab):
    """Write zeroes, which kernels before 6.8 do not send: no data crosses, and the rest stays."""
    disk, size = lab.work / "rnbd.img", 16 * MIB
    data = bytearray(os.urandom(size))
    disk.write_bytes(data)
    # Also more than a request's data could be, and the disk's end.
    spans = [(MIB, 8 * MIB), (12 * MIB + 4096, 8192), (size - 4096, 4096)]
    with exported(lab, disk) as said:
        lab.vm.on_guest("modprobe rnbd-client && echo "
                        f"'sessname={KERNEL_SESSION} path=ip:{RAILS[0]['rxe']}@ip:"
                        f"{RAILS[0]['feroce']} device_path=disk' >{CTL}/map_device")
        limit = lab.vm.on_guest("cat /sys/block/rnbd0/queue/write_zeroes_max_bytes")
        if int(limit) == 0:
            raise Failure("the kernel does not take the disk for one that writes zeroes")
        for offset, length in spans:
            lab.vm.on_guest(f"blkdiscard -z -o {offset} -l {length} /dev/rnbd0")
            data[offset:offset + length] = bytes(length)
        found = lab.vm.on_guest("md5sum </dev/rnbd0", SLOW).split()[0]
        lab.vm.on_guest("echo normal >/sys/block/rnbd0/rnbd/unmap_device")
        on_guest_until(lab, f"test ! -e {PATHS}", "the kernel's session does not end")
        lab.vm.on_guest("modprobe -r rnbd-client rtrs-client")
    done = counts(said)
    if done["zeroes"] < len(spans) or done["writes"]:
        raise Failure(f"zeroes were not asked for, but written: {said}")
    if found != hashlib.md5(data).hexdigest() or disk.read_bytes() != data:
        raise Failure("not what was to be zeroed is zero")
    os.remove(disk)
    return f"{lab.vm.on_guest('uname -r')}: {done}"


def kernel_server(lab):
    """attach, nbdcopy there and back; the guest sees the same bytes."""
    source, back = lab.work / "rnbd.source", lab.work / "rnbd.back"
    data = os.urandom(RAM_MIB * MIB)
    source.write_bytes(data)
    lab.vm.on_guest(f"modprobe brd rd_nr=1 rd_size={RAM_MIB * 1024} && modprobe rnbd-server")
    servers = ",".join(rail["rxe"] for rail in RAILS)
    socket = f"/tmp/feroce-rnbd-{os.getpid()}"
    uri = host(lab, feroce(lab), "attach", servers, "/dev/ram0", "--session", OUR_SESSION,
               "--port", str(PORT), "--socket", socket)
    try:
        size = host(lab, "nbdinfo", "--size", uri)
        if int(size) != RAM_MIB * MIB:
            raise Failure(f"the kernel's disk seems to have {size} bytes")
        host(lab, "nbdcopy", "--flush", str(source), uri)
        host(lab, "nbdcopy", uri, str(back))
        if back.read_bytes() != data:
            raise Failure("what comes back from the kernel's disk is not what was written")
    finally:
        host(lab, feroce(lab), "detach", uri)
    found = lab.vm.on_guest("md5sum </dev/ram0", SLOW).split()[0]
    if found != hashlib.md5(data).hexdigest():
        raise Failure("the kernel has other bytes on its disk than we wrote")
    lab.vm.on_guest("modprobe -r rnbd-server rtrs-server brd")
    for path in (source, back):
        os.remove(path)
    return f"{RAM_MIB} MiB there and back"


CASES = {"disks: the kernel's rnbd-client": ("rxe", kernel_client),
         "disks: the kernel's rnbd-server": ("feroce", kernel_server)}


# With a newer kernel than Debian's usual one.
NEWER_CASES = {"disks: write zeroes": ("rxe", kernel_zeroes)}


def run(lab, table, cases=None):
    for what, (client, case) in (cases or CASES).items():
        problems, note = [], ""
        try:
            note = case(lab)
        except Failure as failure:
            problems.append(str(failure))
        print("FAIL" if problems else "ok  ", what, note, *problems, flush=True)
        table.add(what, client, "IPv4", None, problems)
