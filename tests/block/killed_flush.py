#!/usr/bin/env python3
"""A server that is killed after fdatasync() has failed and before it could record that.

killed_flush.py FOLDER_OF_FEROCE LIBRARY [--required], as root. The exported file lies on ext4, on a
loop device whose own file is in a small file system: when that is full, pages are written to
nowhere. LIBRARY kills the server when fdatasync() returns. The kernel tells the loss to no second
descriptor of the file, and room has been made meanwhile, so the next server's fdatasync() succeeds;
its clients must get EIO all the same until they open the disk again. A flush that had gone well
succeeds. Where the machine has no loop device, or does not let it be mounted, nothing is checked:
it says so, and that is a failure with --required.
"""
import argparse
import os
import subprocess
import sys
import tempfile

from disks import Export, attached, fail, run, use_state_in

PORT = str(8000 + os.getpid() * 4 % 12000)
MIB = 1 << 20


def serve(feroce, disk, library=None, when=None):
    """With its page cache: what it writes is lost later."""
    preload = () if library is None else ("env", f"LD_PRELOAD={library}",
                                          f"FEROCE_TEST_KILL={when}")
    return Export(feroce, f"data={disk},buffered,state={os.environ['STATE_DIRECTORY']}",
                  "--port", PORT, prefix=preload)


def flush_twice(feroce, scratch, library, when, place, between=lambda: None):
    """Whether a flush that the first server does not survive goes well, and what is said of it."""
    disk = f"{scratch}/mounted/disk"
    server = serve(feroce, disk, library, when)
    try:
        with attached(feroce, scratch, "127.0.0.1", "data", "--port", PORT) as uri:
            writer = subprocess.Popen(
                ["qemu-io", "-f", "raw", "-t", "writeback", "-c", f"write -P 7 {place} 4M", "-c",
                 "flush", uri],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            status = server.process.wait(60)
            if status != -9:
                fail(f"the server was to be killed in its flush, and ended with {status}")
            between()
            server = serve(feroce, disk)
            said = writer.communicate(timeout=60)[0]
        # The one that comes next has lost nothing.
        with attached(feroce, scratch, "127.0.0.1", "data", "--port", PORT) as uri:
            run("qemu-io", "-f", "raw", "-c", "write -P 9 0 64k", "-c", "flush", uri)
    finally:
        server.kill()
    return writer.returncode == 0, said


def check(feroce, scratch, library):
    ballast = f"{scratch}/small/ballast"

    def fill():
        with open(ballast, "wb", buffering=0) as out:
            try:
                while out.write(bytes(MIB)) == MIB:
                    pass
            except OSError:
                pass

    fine, said = flush_twice(feroce, scratch, library, "done", "0")
    if not fine:
        fail(f"a flush that had succeeded was told as failed: {said}")
    fill()
    # Where the drive has no room yet.
    fine, said = flush_twice(feroce, scratch, library, "failed", "8M", lambda: os.remove(ballast))
    if fine or "write failed" in said:
        fail(f"a flush that had failed was told as done: {said}")
    print("a killed server's flush: done if it was done, EIO if it had failed")


def mount_drive(small, mounted):
    """Why this machine does not; None if it does."""
    with open(f"{small}/drive", "wb") as out:
        out.truncate(64 * MIB)
    run("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0", f"{small}/drive")
    if not os.path.exists("/dev/loop-control"):
        return "there is no /dev/loop-control"
    done = subprocess.run(["mount", "-o", "loop", f"{small}/drive", mounted],
                          capture_output=True, text=True, check=False, timeout=60)
    return None if done.returncode == 0 else " ".join(done.stderr.split())


def check_if_possible(feroce, scratch, library, required):
    small, mounted = f"{scratch}/small", f"{scratch}/mounted"
    os.mkdir(small)
    os.mkdir(mounted)
    run("mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", small)
    try:
        missing = mount_drive(small, mounted)
        if missing is not None:
            sentence = f"a killed server's flush cannot be checked on this machine: {missing}"
            if required:
                fail(sentence)
            print(sentence)
            return
        try:
            with open(f"{mounted}/disk", "wb") as out:
                out.truncate(16 * MIB)
            check(feroce, scratch, library)
        finally:
            run("umount", mounted)
    finally:
        run("umount", small)


def main():
    if os.environ.get("FEROCE_TEST_PLACE") != "private":
        os.environ["FEROCE_TEST_PLACE"] = "private"
        os.execvp("unshare", ["unshare", "--mount", "--net", "sh", "-c",
                              'ip link set lo up && mount -t tmpfs tmpfs /dev/shm && exec "$@"',
                              "sh", sys.executable, *sys.argv])
    os.environ["FEROCE_DEVICES"] = "lo"
    words = argparse.ArgumentParser()
    words.add_argument("folder")
    words.add_argument("library")
    words.add_argument("--required", action="store_true")
    given = words.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        use_state_in(scratch)
        check_if_possible(os.path.abspath(given.folder) + "/feroce", scratch,
                          os.path.abspath(given.library), given.required)


if __name__ == "__main__":
    main()
