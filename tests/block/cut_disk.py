#!/usr/bin/env python3
"""fio verifies a disk whose networks are cut and whose server is killed under it.

cut_disk.py FOLDER_OF_FEROCE [SECONDS]. The network is that of tests/rtrs/cut_paths.py: two bridges
between a client and a server, taken down one after the other. The server exports a file; it is
killed with SIGKILL and started again. fio writes and verifies 4 KiB to 1 MiB at random. No request
may fail and no byte be wrong.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rtrs"))
import cut_paths  # pylint: disable=wrong-import-position
from disks import Export, attached, fail, use_state_in

PORT = "7491"
SIZE = "64m"


def inside(place):
    return ("ip", "netns", "exec", cut_paths.NAMES[place])


def trouble(feroce, path, server, seconds):
    """Cuts and kills until the time is over; the server at the end."""
    end = time.monotonic() + seconds
    pause = min(8, seconds / 12)
    rounds = 0
    while time.monotonic() < end:
        for rail in cut_paths.RAILS:
            cut_paths.cut(rail, True)
            time.sleep(pause)
            cut_paths.cut(rail, False)
            time.sleep(pause)
        server.kill()
        server = Export(feroce, f"disk={path}", "--port", PORT, prefix=inside("server"))
        time.sleep(pause)
        rounds += 1
    print(f"{rounds} times both networks cut and the server killed")
    return server


def verify(feroce, scratch, seconds):
    path = f"{scratch}/disk"
    use_state_in(scratch)
    with open(path, "wb") as out:
        out.truncate(64 << 20)
    server = Export(feroce, f"disk={path}", "--port", PORT, prefix=inside("server"))
    addresses = ",".join(f"10.77.{rail}.2" for rail in cut_paths.RAILS)
    try:
        with attached(feroce, scratch, addresses, "disk", "--port", PORT,
                      prefix=inside("client")) as uri:
            fio = subprocess.Popen(
                [*inside("client"), "fio", "--name=verify", "--ioengine=nbd", f"--uri={uri}",
                 "--rw=randrw", "--bsrange=4k-1m", f"--size={SIZE}", "--iodepth=16",
                 "--time_based", f"--runtime={seconds}", "--verify=crc32c", "--verify_fatal=1",
                 "--verify_backlog=64", "--fsync=64"],
                cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                server = trouble(feroce, path, server, seconds * 0.8)
                said = fio.communicate(timeout=seconds + 120)[0]
            finally:
                fio.kill()
            if fio.returncode != 0 or "err= 0" not in said:
                fail(said)
            print("\n".join(line for line in said.split("\n") if "IOPS" in line))
    finally:
        server.kill()


def main():
    cut_paths.become_root()
    cut_paths.make_network()
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
            verify(os.path.join(os.path.abspath(sys.argv[1]), "feroce"), scratch,
                   int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    finally:
        cut_paths.remove_network()


if __name__ == "__main__":
    main()
