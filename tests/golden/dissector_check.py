#!/usr/bin/env python3
"""Has tshark read captures with tools/wireshark/feroce_rtrs.lua: every message of RTRS and RNBD
must be named, and nothing else. Usage: dissector_check.py SCRIPT GOLDEN_FOLDER | SCRIPT CAPTURE"""
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

CM = 100
NOBODY = 65534
ENDS_MESSAGE = {2, 3, 4, 5, 8, 9, 10, 11, 22, 23}  # RC SEND and WRITE: LAST and ONLY, all forms.

# What the Linux kernel said, by file: name, times. Numbers in names are left out.
CONNECT = {"CONN_REQ connection": 3, "CONN_RSP queue depth": 3, "INFO_REQ": 1,
           "INFO_RSP descriptors": 1, "READ, RNBD SESS_INFO": 1,
           "READ data, RNBD SESS_INFO_RSP": 1, "READ, RNBD OPEN": 1, "READ data, RNBD OPEN_RSP": 1,
           "READ, RNBD IO READ SYNC": 1, "READ data": 1, "INVALIDATE": 3,
           "RSP after invalidation with RKEY_RSP": 3}
READ = {"READ, RNBD IO READ SYNC": 1, "READ data": 1, "INVALIDATE": 1,
        "RSP after invalidation with RKEY_RSP": 1}
WRITE = {"WRITE, RNBD IO WRITE SYNC": 1, "RSP with RKEY_RSP": 1}
CLOSE = {"WRITE, RNBD CLOSE": 1, "RSP with RKEY_RSP": 1}
GOLDEN = {
    "rtrs-connect-v4": CONNECT,
    "rtrs-connect-v6": {**CONNECT, "WRITE, RNBD IO WRITE SYNC": 1, "WRITE, RNBD CLOSE": 1,
                        "RSP with RKEY_RSP": 2},
    "rtrs-heartbeat-v4": {"HEARTBEAT": 6, "HEARTBEAT_ACK": 6},
    "rtrs-disconnect-v4": CLOSE,
    "rnbd-read-4k-v4": READ,
    "rnbd-read-64k-v4": READ,
    "rnbd-write-4k-v4": WRITE,
    "rnbd-write-64k-v4": WRITE,
}
# Other protocols with WRITEs, immediates and invalidations: none of it is RTRS.
FOREIGN = ["iser-v4", "nvme-rdma-v4", "rstream-v4", "rc-writeimm-v4", "rc-sendinv-v6"]
# Of our own server, whose capture begins with the connection.
OURS = ["CONN_RSP queue depth", "INFO_REQ", "INFO_RSP descriptors", "READ, RNBD SESS_INFO",
        "RSP with READ data, RNBD SESS_INFO_RSP", "READ, RNBD OPEN",
        "RSP with READ data, RNBD OPEN_RSP", "READ, RNBD IO READ SYNC", "RSP with READ data",
        "WRITE, RNBD CLOSE"]


def run_tshark(script, capture, fields):
    """Since 4.4 tshark runs no scripts for root: as nobody then, who may read copies only."""
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copies = [shutil.copyfile(path, os.path.join(folder, os.path.basename(path)))
                  for path in (script, capture)]
        for path in copies:
            os.chmod(path, 0o644)
        command = ["tshark", "-X", f"lua_script:{copies[0]}", "-r", copies[1], "-T", "fields",
                   *(word for field in fields for word in ("-e", field))]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "HOME": folder}, **who)


def read(script, capture):
    """Rows of frame number, opcode and message."""
    result = run_tshark(script, capture, ["frame.number", "infiniband.bth.opcode", "rtrs.message",
                                          "_ws.lua.error"])
    assert result.returncode == 0 and "Lua" not in result.stderr, result.stderr
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert rows and not any(row[3] for row in rows), rows
    return [(int(row[0]), int(row[1] or -1, 0), row[2]) for row in rows]


def plain(name):
    """Without numbers, session names and the flags of an operation."""
    name = re.sub(r"( chunk)? \d+( of \d+)?", "", name)
    return "INFO_REQ" if name.startswith("INFO_REQ") else name


def unnamed(rows):
    return [number for number, opcode, name in rows if opcode in ENDS_MESSAGE and not name]


def check_golden(script, folder):
    failures = []
    for stem in [*GOLDEN, *FOREIGN]:
        rows = read(script, os.path.join(folder, stem + ".pcapng"))
        seen = dict(collections.Counter(plain(name) for _, _, name in rows if name))
        if seen != GOLDEN.get(stem, {}):
            failures.append(f"{stem}: wanted {GOLDEN.get(stem, {})}, got {seen}")
        if stem in GOLDEN and unnamed(rows):
            failures.append(f"{stem}: frames without a name: {unnamed(rows)}")
    return failures


def check_ours(script, capture):
    rows = read(script, capture)
    seen = collections.Counter(plain(name) for _, _, name in rows if name)
    print(capture, dict(seen))
    missing = [name for name in OURS if name not in seen]
    failures = [f"never named: {missing}"] if missing else []
    if unnamed(rows):
        failures.append(f"frames without a name: {unnamed(rows)}")
    return failures


def main():
    script, what = sys.argv[1:]
    failures = check_golden(script, what) if os.path.isdir(what) else check_ours(script, what)
    print("\n".join(failures) or "every message has its name")
    return 1 if failures else 0


sys.exit(main())
