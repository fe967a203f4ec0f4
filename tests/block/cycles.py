#!/usr/bin/env python3
"""A disk is attached and detached over and over: cycles.py FOLDER_OF_FEROCE COUNT.

No attach may be refused, and what the server has in memory and open after a tenth of the cycles (or
three) is what it has at the end.
"""
import os
import sys
import tempfile
import time

from disks import attached, exported, fail, use_state_in

PORT = str(7900 + os.getpid() % 90)
SPARE_KB = 16 << 10  # The C library's own caches.
SPARE_FILES = 4  # Sockets of slots, opened once for each slot that a client happens to take.


def held(pid):
    """Memory in KiB, and open files."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]), len(os.listdir(f"/proc/{pid}/fd"))


def settled(pid):
    """What is held when the server has done with the last clients: it looks once a second."""
    deadline = time.monotonic() + 20
    while True:
        before = held(pid)
        time.sleep(2.5)
        now = held(pid)
        if now[1] == before[1] or time.monotonic() > deadline:
            return now


def main(folder, count):
    feroce = os.path.join(os.path.abspath(folder), "feroce")
    with tempfile.TemporaryDirectory() as scratch:
        use_state_in(scratch)
        with open(f"{scratch}/disk", "wb") as disk:
            disk.truncate(1 << 20)
        with exported(feroce, f"data={scratch}/disk", "--port", PORT) as server:
            early = None
            for done in range(1, count + 1):
                with attached(feroce, scratch, "127.0.0.1", "data", "--port", PORT):
                    pass
                if done == max(3, count // 10):
                    early = settled(server.process.pid)
            late = settled(server.process.pid)
    print(f"{count} cycles, none refused; after a tenth {early[0] >> 10} MB and {early[1]} files, "
          f"at the end {late[0] >> 10} MB and {late[1]} files")
    if late[0] > early[0] + SPARE_KB or late[1] > early[1] + SPARE_FILES:
        fail("the server keeps something of every client")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
