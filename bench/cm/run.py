#!/usr/bin/env python3
"""./feroce bench cm: connections set up and torn down between two processes, beside TCP's.

run.py --build FOLDER [--json] [--count N] [--rounds N]
Every round measures each row once, so that noise of the machine falls on all alike; the table shows
medians. --check is the test: after the first round, whose tables grow to their size, nothing may
stay behind, neither descriptors nor memory nor queue pairs.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from figures import environment, say  # noqa: E402

LIMIT_SECONDS = 240
ROWS = [("tcp", "TCP connect, accept, close"),
        ("rdma_cm", "rdma_cm, one after another"),
        ("rdma_cm_64", "rdma_cm, 64 under way")]
# Less than any object that a connection needs: a leak of one each would be far beyond.
LEAK_BYTES = 24


class Connections:
    """Runs connect_rate, and reads what it prints."""

    def __init__(self, build, count, rounds):
        self.count = count
        self.build = build
        self.environment = environment(build)
        self.rates = {name: [] for name, _ in ROWS}
        self.usage = []
        self.queue_pairs = None
        command = ["timeout", str(LIMIT_SECONDS), os.path.join(build, "bench/connect_rate"),
                   str(count), str(rounds)]
        with subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                words = line.split()
                if words[0] == "done":
                    self.queue_pairs = self.count_queue_pairs()
                    process.stdin.close()
                elif words[0] == "usage":
                    self.usage.append([int(words[i]) for i in (2, 3, 5, 6)])
                    say(f"round {len(self.usage)} of {rounds} is done")
                else:
                    self.rates[words[0]].append(float(words[1]))
        if process.returncode != 0:
            sys.exit(f"bench cm: connect_rate ended with status {process.returncode}")

    def count_queue_pairs(self):
        """Of the two processes, while they live and have no connection."""
        command = [os.path.join(self.build, "bin/feroce"), "-j", "res", "show", "qp"]
        text = subprocess.run(command, env=self.environment, capture_output=True, text=True,
                              check=True).stdout
        return sum(1 for pair in json.loads(text) if pair["comm"] == "connect_rate")

    def leaks(self):
        """What every round leaves behind, in sentences. A table that grows does so once."""
        found = []
        connections = 2 * self.count
        rounds = list(zip(self.usage, self.usage[1:]))
        for index, side in ((0, "client"), (2, "server")):
            opened = min(after[index] - before[index] for before, after in rounds)
            if opened > 0:
                found.append(f"the {side} keeps {opened} descriptors of {connections} connections")
            grown = min(after[index + 1] - before[index + 1] for before, after in rounds)
            if grown > LEAK_BYTES * connections:
                found.append(f"the {side} keeps {grown} bytes of {connections} connections")
        if self.queue_pairs != 0:
            found.append(f"{self.queue_pairs} queue pairs are left")
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be 2 or more: leaks show against the round before")
    run = Connections(os.path.abspath(options.build), options.count, options.rounds)
    leaks = run.leaks()
    if options.check:
        print(f"descriptors and heap, client and server, a round each: {run.usage}")
        sys.exit("\n".join(leaks) or 0)
    medians = {name: statistics.median(run.rates[name]) for name, _ in ROWS}
    ratios = {name: medians[name] / medians["tcp"] for name, _ in ROWS}
    if options.json:
        print(json.dumps({"connections_per_s": medians, "ratio_to_tcp": ratios, "leaks": leaks},
                         indent=2))
        return
    print(f"{options.count} connections a row and round, medians of {options.rounds} rounds")
    for name, title in ROWS:
        print(f"{title:32} {medians[name]:10.0f} /s {ratios[name]:8.2f} x TCP")
    print("\n".join(leaks) or "nothing was left behind")


if __name__ == "__main__":
    main()
