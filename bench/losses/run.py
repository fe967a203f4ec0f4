#!/usr/bin/env python3
"""./feroce bench losses: one flow on a line that loses packets, by Feroce and by the kernel's TCP.

run.py --build FOLDER [--json] [--rounds N] [--check]
Two network namespaces, and between them `line`: 1 Gb/s, a queue of 10 ms, 1 and 20 ms there and
back, 0 to 5 % of the packets lost at random in both directions, without segmentation offload.
perftest's WRITE, SEND and READ of 64 KiB and TCP with cubic and with BBR take turns; a table shows
medians of N rounds in Mb/s of payload, and ratios to the better TCP. --check is the test: short, it
asserts that all of them move bytes, and nothing about time. Needs root, for the namespaces.
"""
import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "tests/netns")]
from figures import environment, say  # noqa: E402
from namespaces import Namespace, command  # noqa: E402

DEVICE = "line0"
ADDRESSES = "10.47.92.1", "10.47.92.2"
PORT = 18515
MBIT, QUEUE_US = 1000, 10_000
WARM_SECONDS, MEASURED_SECONDS = 2, 4
CHECK_SECONDS = 1
PATIENCE = 60
# Path MTU, that of the device.
LENGTHS = [(1024, 1500), (4096, 4200)]
TCP = ["cubic", "bbr"]
VERBS = ["write", "send", "read"]
SKIPPED = 77
CASES = [(trip_ms, loss) for trip_ms in (1, 20) for loss in (0.0, 0.001, 0.01, 0.05)]


# ---- the far and the near end of a TCP stream, in a process each -------------------------------

def receive_tcp(warm, measured):
    """Prints how many bytes came in a second, after a while."""
    with socket.create_server(("", PORT)) as listener:
        print("ready", flush=True)
        stream = listener.accept()[0]
    buffer = bytearray(1 << 20)
    begin = time.monotonic() + warm
    end, came, now = begin + measured, 0, 0
    while now < end:
        count = stream.recv_into(buffer)
        now = time.monotonic()
        if count == 0:
            sys.exit("the stream ended early")
        came += count if now >= begin else 0
    print(came / (now - begin))


def send_tcp(address, control):
    stream = socket.socket()
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    stream.connect((address, PORT))
    block = bytes(1 << 20)
    with contextlib.suppress(ConnectionError):  # The far end has seen enough.
        while True:
            stream.sendall(block)


# ---- one measurement ---------------------------------------------------------------------------

@contextlib.contextmanager
def line(build, mtu, trip_ms, loss, seed):
    sides = [Namespace(), Namespace()]
    program = None
    try:
        program = subprocess.Popen(
            [os.path.join(build, "bench/line"), *(side.path for side in sides), DEVICE, str(MBIT),
             str(trip_ms * 500), str(QUEUE_US), str(loss), str(seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if program.stdout.readline() != b"ready\n":
            sys.exit("bench losses: the line could not be made, as said above")
        for side, address in zip(sides, ADDRESSES):
            ip = side.place("ip")
            command(*ip, "link", "set", "lo", "up")
            command(*ip, "link", "set", DEVICE, "mtu", str(mtu), "txqueuelen", "1000", "up")
            command(*ip, "address", "add", f"{address}/24", "dev", DEVICE)
        yield sides
    finally:
        if program:
            program.stdin.close()
            program.wait()
        for side in sides:
            side.close()


def pair(sides, server, client, env):
    """What both print; the server is the first side, and is ready once its port is taken."""
    with subprocess.Popen(sides[0].place(*server), env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as far:
        try:
            deadline = time.monotonic() + PATIENCE
            while not subprocess.run(sides[0].place("ss", "-Hltn", f"sport = {PORT}"), check=True,
                                     capture_output=True).stdout:
                if time.monotonic() > deadline or far.poll() is not None:
                    sys.exit(f"bench losses: {' '.join(server)}: {far.communicate()[0]}")
                time.sleep(0.02)
            near = subprocess.run(sides[1].place(*client), env=env, text=True, check=False,
                                  timeout=PATIENCE, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            if near.returncode != 0:
                sys.exit(f"bench losses: {' '.join(client)}: {near.stdout}")
            return far.communicate(timeout=PATIENCE)[0], near.stdout
        finally:
            far.kill()


def tcp_mbit(sides, control, span):
    me = [sys.executable, str(HERE / "run.py")]
    said, _ = pair(sides, [*me, "--receive", *map(str, span)],
                   [*me, "--send", ADDRESSES[0], control], os.environ)
    return float(said.split()[-1]) * 8 / 1e6


def verbs_mbit(sides, build, verb, path_mtu, span):
    """Of perftest's last line: message size, iterations, the peak, the average."""
    warm, measured = span
    words = [f"ib_{verb}_bw", "-F", "-s", "65536", "-m", str(path_mtu), "-p", str(PORT), "-d",
             f"feroce_{DEVICE}", "-D", str(2 * warm + measured), "-f", str(warm),
             "--report_gbits"]
    _, said = pair(sides, words, [*words, ADDRESSES[0]],
                   dict(environment(build), FEROCE_DEVICES=DEVICE))
    rows = [line for line in said.splitlines() if line.split()[:1] == ["65536"]]
    if not rows:
        sys.exit(f"bench losses: {' '.join(words)} printed no figure: {said}")
    return float(rows[-1].split()[3]) * 1000


def measure(build, lengths, cases, rounds, span):
    found = {}
    for number in range(rounds):
        for path_mtu, mtu in lengths:
            for trip_ms, loss in cases:
                say(f"round {number + 1} of {rounds}: path MTU {path_mtu}, {trip_ms} ms, "
                    f"{loss:.1%} lost")
                for kind in TCP + VERBS:
                    with line(build, mtu, trip_ms, loss, number * 1000 + 1) as sides:
                        figure = (tcp_mbit(sides, kind, span) if kind in TCP
                                  else verbs_mbit(sides, build, kind, path_mtu, span))
                    found.setdefault((path_mtu, trip_ms, loss), {}).setdefault(kind, []).append(
                        figure)
    return {case: {kind: statistics.median(values) for kind, values in kinds.items()}
            for case, kinds in found.items()}


def rows_of(medians):
    rows = []
    for (path_mtu, trip_ms, loss), kinds in medians.items():
        best = max(kinds[kind] for kind in TCP)
        rows += [{"path_mtu": path_mtu, "round_trip_ms": trip_ms, "loss": loss, "kind": kind,
                  "mbit_per_s": value, "ratio_to_tcp": value / best}
                 for kind, value in kinds.items()]
    return rows


def show(medians):
    print("path MTU  there and back    lost" + "".join(f"{kind:>8}" for kind in TCP) +
          "".join(f"{verb.upper():>15}" for verb in VERBS))
    for (path_mtu, trip_ms, loss), kinds in medians.items():
        best = max(kinds[kind] for kind in TCP)
        print(f"{path_mtu:8} {trip_ms:12} ms {loss:8.1%}" +
              "".join(f"{kinds[kind]:8.0f}" for kind in TCP) +
              "".join(f"{kinds[verb]:8.0f} {kinds[verb] / best:4.2f} x" for verb in VERBS))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--receive", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--send", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.receive:
        return receive_tcp(*options.receive)
    if options.send:
        return send_tcp(*options.send)
    if not options.build:
        parser.error("--build is needed")
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        say("bench losses: needs root and /dev/net/tun, to make network namespaces and TAP devices")
        return SKIPPED
    build = os.path.abspath(options.build)
    if options.check:
        medians = measure(build, LENGTHS[:1], [(1, 0.01)], 1, (0, CHECK_SECONDS))
        return min(min(kinds.values()) for kinds in medians.values()) <= 0
    medians = measure(build, LENGTHS, CASES, options.rounds, (WARM_SECONDS, MEASURED_SECONDS))
    if options.json:
        print(json.dumps(rows_of(medians), indent=2))
    else:
        show(medians)
    return 0


if __name__ == "__main__":
    sys.exit(main())
