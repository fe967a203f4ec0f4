#!/usr/bin/env python3
"""Has tshark dissect packets that our engine emitted: no packet may be malformed, and every opcode
must have been seen. Usage: tshark_check.py EVERY_OPCODE_PROGRAM"""
import collections
import os
import subprocess
import sys
import tempfile

# Heuristic dissectors that take good RDMA payload for a protocol of their own.
HEURISTICS = ["rpcordma", "nvme-rdma", "smb_direct", "lnet", "iser", "infiniband_sdp", "smc"]

RC_REQUESTS = [*range(0x00, 0x0d), 0x13, 0x14, 0x16, 0x17]
RC_RESPONSES = [0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12]
UC = [*range(0x20, 0x2c)]
UD = [0x64, 0x65]
CNP = [0x81]
XRC = [0xa0 | opcode for opcode in RC_REQUESTS + RC_RESPONSES]
EXPECTED = set(RC_REQUESTS + RC_RESPONSES + UC + UD + CNP + XRC)


def dissect(capture):
    command = ["tshark", "-r", capture, "-T", "fields", "-E", "separator=,",
               "-e", "infiniband.bth.opcode", "-e", "_ws.malformed", "-e", "_ws.expert.severity"]
    for name in HEURISTICS:
        command += ["--disable-protocol", name]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [line.split(",") for line in result.stdout.splitlines()]


def main():
    with tempfile.TemporaryDirectory() as folder:
        capture = os.path.join(folder, "every_opcode.pcapng")
        subprocess.run([sys.argv[1], capture], check=True, timeout=120)
        rows = dissect(capture)
    seen = collections.Counter(int(row[0], 0) for row in rows if row[0])
    malformed = [(number + 1, row) for number, row in enumerate(rows) if row[1] or not row[0]]
    missing = sorted(EXPECTED - set(seen))
    print(f"{len(rows)} packets, {len(seen)} opcodes, {len(malformed)} malformed")
    for number, row in malformed:
        print(f"packet {number} is malformed: {row}")
    if missing:
        print("never emitted:", " ".join(f"0x{opcode:02x}" for opcode in missing))
    return 1 if malformed or missing else 0


sys.exit(main())
