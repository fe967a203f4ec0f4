#!/usr/bin/env python3
"""Mooncake's transfer engine between two processes on Feroce: mooncake.py BUILD MOONCAKE.

Mooncake is in no distribution, so no stage runs this: MOONCAKE is the build folder of a checkout of
kvcache-ai/Mooncake, with the two programs of its transfer engine that RUNS names.
The validator writes blocks of known bytes to the other process, reads them back and compares; the
benchmark writes, and reads. In a network of its own, metadata by Mooncake's P2P handshake; exit
status 1 if one fails, and what both ends printed.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from own_network import enter_own_network  # noqa: E402  (found by the path above)

ADDRESS, PATIENCE, SECONDS = "10.98.0.1", 120, 3
COMMON = ("--metadata_server=P2PHANDSHAKE --protocol=rdma --device_name=feroce_d0 "
          "--buffer_size=16777216 --logtostderr=1")
INITIATOR = (f"--local_server_name={ADDRESS}:12346 --threads=2 --batch_size=16 --block_size=65536 "
             f"--duration={SECONDS}")
EXAMPLES = "mooncake-transfer-engine/example/"
# Name, program, more arguments of the initiator, what it says at its end.
RUNS = [
    ("validator", "transfer_engine_validator", "", "Data validation passed"),
    ("bench, WRITE", "transfer_engine_bench", "--operation=write", "Test completed"),
    ("bench, READ", "transfer_engine_bench", "--operation=read", "Test completed"),
]


def wait_for_segment(target, log):
    """The target's name, which has a port that it chose."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and target.poll() is None:
        found = re.search(r"P2P handshake, listening on ([0-9.]+:[0-9]+)", log.read_text())
        if found:
            return found.group(1)
        time.sleep(0.05)
    return None


def run_pair(feroce, program, words, last, folder):
    log = folder / "target"
    with open(log, "wb") as out:
        target = subprocess.Popen(
            [*feroce, program, "--mode=target", f"--local_server_name={ADDRESS}:12345",
             *COMMON.split()], stdout=out, stderr=subprocess.STDOUT)
    try:
        segment = wait_for_segment(target, log)
        if segment is None:
            return False, "the target does not listen:\n" + log.read_text()
        done = subprocess.run(
            [*feroce, program, "--mode=initiator", f"--segment_id={segment}", *COMMON.split(),
             *INITIATOR.split(), *words.split()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            check=False, timeout=PATIENCE, text=True, errors="replace")
        good = done.returncode == 0 and last in done.stdout and target.poll() is None
        return good, f"{done.stdout}\nended with {done.returncode}; the target:\n{log.read_text()}"
    finally:
        target.send_signal(signal.SIGKILL)
        target.wait()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, mooncake = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    if not enter_own_network():
        return 77
    for command in ("link add d0 type veth peer name d1", "link set d0 up", "link set d1 up",
                    f"address add {ADDRESS}/24 dev d0"):
        subprocess.run(["ip", *command.split()], check=True)
    os.environ["FEROCE_DEVICES"] = "d0"
    good = True
    with tempfile.TemporaryDirectory() as place:
        for name, program, words, last in RUNS:
            passed, said = run_pair([build / "bin/feroce", "run", "--"],
                                    mooncake / EXAMPLES / program, words, last, pathlib.Path(place))
            good = good and passed
            if not passed:
                print(said[-6000:])
            rate = re.search(r"throughput ([0-9.]+ \S+)", said)
            print(f"{name}: {'passes' if passed else 'FAILS'}, {rate.group(1) if rate else 'no'} "
                  "throughput", flush=True)
    return 0 if good else 1


sys.exit(main())
