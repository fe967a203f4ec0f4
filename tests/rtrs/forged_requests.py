#!/usr/bin/env python3
"""Connection requests in the name of machines that are not there, beside a loaded client.

forged_requests.py FOLDER_OF_THE_PROGRAMS COUNT [A_SECOND]. A server and a client in a network
namespace each; the client's own request for a connection is overheard, and COUNT others are made
from it, each with another session, path, queue pair and transaction, all from an address that
nobody has. The client must not lose a path, nor the server keep memory for strangers. A_SECOND is
for many: their pace, at which a server answers all of them; only its memory is judged then.
"""
import os
import random
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "netns"))
from namespaces import DEVICE, FAMILIES, enter_user_namespace, two_namespaces  # noqa: E402

PORT = "7491"
ROCE = 4791
ETHERNET, IPV4, UDP, BTH_AND_DETH = 14, 20, 8, 20
MAD = ETHERNET + IPV4 + UDP + BTH_AND_DETH
CM_REQUEST = 0x10
PRIVATE_DATA = MAD + 164 + 36  # Behind the address header of rdma_cm.
HEARTBEATS_MS = 3 * 200
# 64 connections may be kept that have not proved to be there, however many came. They take 26 MB.
MEMORY_BOUND_MB = 40
PATIENCE = 60
PACE = 2000


def is_request(frame):
    return (len(frame) > PRIVATE_DATA + 44 and frame[ETHERNET] == 0x45 and
            frame[ETHERNET + 9] == socket.IPPROTO_UDP and
            struct.unpack_from(">H", frame, ETHERNET + IPV4 + 2)[0] == ROCE and
            frame[ETHERNET + IPV4 + UDP + 5:ETHERNET + IPV4 + UDP + 8] == b"\0\0\1" and
            struct.unpack_from(">H", frame, MAD + 16)[0] == CM_REQUEST)


def seal(packet):
    """The IP header's checksum and the ICRC, which takes what routers change as ones."""
    words = struct.unpack_from(">10H", packet, 0)
    total = sum(words) - words[5]
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into(">H", packet, 10, ~total & 0xFFFF)
    masked = bytearray(b"\xff" * 8) + packet[:-4]
    for at in (1, 8, 10, 11, 26, 27, 32):
        masked[8 + at] = 0xFF
    struct.pack_into("<I", packet, len(packet) - 4, zlib.crc32(masked))


def forge(template, source):
    frame = bytearray(template)
    old = bytes(frame[ETHERNET + 12:ETHERNET + 16])
    frame[MAD:] = frame[MAD:].replace(old, source)  # Also where rdma_cm names it.
    frame[ETHERNET + 12:ETHERNET + 16] = source
    struct.pack_into(">H", frame, ETHERNET + IPV4, random.randrange(0xC000, 0x10000))
    struct.pack_into(">H", frame, ETHERNET + IPV4 + 6, 0)
    for at, size in ((MAD + 8, 8), (MAD + 24, 4), (MAD + 57, 2), (PRIVATE_DATA + 12, 32)):
        frame[at:at + size] = random.randbytes(size)
    packet = frame[ETHERNET:]
    seal(packet)
    return bytes(frame[:ETHERNET]) + bytes(packet)


def forger(count, pace):
    """Runs in the client's namespace: overhears, says so, waits for a line, sends."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.bind((DEVICE, 0))
    print("ready", flush=True)
    deadline = time.monotonic() + PATIENCE
    while True:
        if not select.select([wire], [], [], max(0, deadline - time.monotonic()))[0]:
            sys.exit("no request for a connection came by")
        template = wire.recv(65536)
        if is_request(template):
            break
    size = struct.unpack_from(">H", template, ETHERNET + 2)[0]
    template = template[:ETHERNET + size]
    print("overheard", flush=True)
    sys.stdin.readline()
    source = socket.inet_aton(FAMILIES["ipv4"][0].rsplit(".", 1)[0] + ".77")
    begin = time.monotonic()
    for i in range(count):
        while i > (time.monotonic() - begin) * pace:
            time.sleep(0.0005)
        wire.send(forge(template, source))
    print(f"sent {count} in {time.monotonic() - begin:.1f} s", flush=True)


def memory_mb(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) // 1024


class Load:
    def __init__(self, place, folder):
        self.process = subprocess.Popen(
            place(f"{folder}/session_load", PORT, FAMILIES["ipv4"][0]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.line = ()

    def read(self, lines):
        for _ in range(lines):
            text = self.process.stdout.readline()
            if not text:
                sys.exit(f"the load ended early with {self.process.wait()}")
            self.line = tuple(int(word) for word in text.split())
        operations, errors, wrong, failovers, slowest, _ = self.line
        if errors or wrong:
            sys.exit(f"{errors} errors, {wrong} wrong")
        return operations, failovers, slowest


def start_load(place, folder):
    for _ in range(50):  # It may come before the server listens.
        load = Load(place, folder)
        if load.process.stdout.readline():
            return load
        load.process.wait()
    sys.exit("the server takes no client")


def watch(load, server, attack, memory_only):
    """The load goes on while the forged requests come, and for two seconds after them."""
    begin, lost_before, slowest_before = load.read(20)
    before = memory_mb(server)
    attack.stdin.write("go\n")
    attack.stdin.flush()
    most, deadline = before, time.monotonic() + 2 * PATIENCE
    while attack.poll() is None:
        load.read(1)
        most = max(most, memory_mb(server))
        if time.monotonic() > deadline:
            sys.exit("the forged requests could not be sent in time")
    print(attack.stdout.read().strip(), flush=True)
    for _ in range(20):
        operations, lost, slowest = load.read(1)
        most = max(most, memory_mb(server))
    print(f"{operations - begin} operations beside them; slowest request {slowest_before} ms "
          f"before, {slowest} ms with them; server {before} MB before, {most} MB at most",
          flush=True)
    if attack.returncode != 0 or server.poll() is not None:
        sys.exit("the forger or the server ended")
    if most - before > MEMORY_BOUND_MB:
        sys.exit("the server keeps memory for strangers")
    if memory_only:
        return
    if lost > lost_before:
        sys.exit("the client lost its path")
    # A machine that is busy with other things makes the load slow by itself.
    if slowest > max(HEARTBEATS_MS, 2 * slowest_before):
        sys.exit("a request took longer than three heartbeats")


def run(folder, count, pace, disk):
    with two_namespaces() as (there, here):
        server = subprocess.Popen(there.place("setpriv", "--pdeathsig", "KILL",
                                              f"{folder}/session_disk", PORT, disk))
        attack = subprocess.Popen(here.place(sys.executable, os.path.abspath(__file__), "--forge",
                                             str(count), str(pace or PACE)),
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        load = None
        try:
            attack.stdout.readline()
            load = start_load(here.place, folder)
            if attack.stdout.readline() != "overheard\n":
                sys.exit("no request for a connection was overheard")
            watch(load, server, attack, pace is not None)
        finally:
            for process in (server, attack, load and load.process):
                if process:
                    process.kill()
                    process.wait()


def main():
    if sys.argv[1] == "--forge":
        return forger(int(sys.argv[2]), int(sys.argv[3]))
    pace = int(sys.argv[3]) if len(sys.argv) > 3 else None
    enter_user_namespace()
    with tempfile.TemporaryDirectory() as scratch:
        return run(os.path.abspath(sys.argv[1]), int(sys.argv[2]), pace, f"{scratch}/disk")


if __name__ == "__main__":
    sys.exit(main())
