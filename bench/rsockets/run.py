#!/usr/bin/env python3
"""./feroce bench rsockets: a stream by rsockets and by the kernel's TCP, between two processes of
one machine: by rings in shared memory, and by UDP.

run.py --build FOLDER [--json] [--rounds N] [--check]
Every round measures each row once, in turn; the table shows medians and ratios to TCP. --check is
the test: short, it asserts that every stream arrived whole, and nothing about time.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from figures import environment  # noqa: E402

LIMIT_SECONDS = 60
KINDS = [("TCP", "tcp", "on"), ("rsockets by rings", "rsocket", "on"),
         ("rsockets by UDP", "rsocket", "off")]
# what, size, the figure, its unit
ROWS = [("bandwidth", 64, "GB_per_s", "GB/s"), ("bandwidth", 4096, "GB_per_s", "GB/s"),
        ("bandwidth", 65536, "GB_per_s", "GB/s"), ("bandwidth", 1 << 20, "GB_per_s", "GB/s"),
        ("latency", 64, "us_p50", "us"), ("latency", 4096, "us_p50", "us"),
        ("latency", 65536, "us_p50", "us"), ("busy", 64, "us_p50", "us")]
MEANING = {"bandwidth": "stream", "latency": "round trip, blocking", "busy": "round trip, spinning"}


def measure(build, kind, rings, row, amounts):
    what, size, figure, _ = row
    command = [os.path.join(build, "bench/stream_rate"), kind, what, str(size),
               str(amounts[what])]
    done = subprocess.run(command, env=environment(build, FEROCE_SAMEHOST=rings), text=True,
                          capture_output=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode != 0:
        sys.exit(f"bench rsockets: {' '.join(command)}: status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)[figure]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    amounts = {"bandwidth": 0.6, "latency": 5000, "busy": 20000}
    if options.check:
        options.rounds, amounts = 1, {"bandwidth": 0.05, "latency": 50, "busy": 50}
    found = {}
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        for row in ROWS:
            for title, kind, rings in KINDS:
                found.setdefault((row, title), []).append(
                    measure(build, kind, rings, row, amounts))
    medians = {key: statistics.median(values) for key, values in found.items()}
    table = [{"what": MEANING[row[0]], "bytes": row[1], "unit": row[3], "kind": title,
              "figure": value, "ratio_to_tcp": value / medians[row, "TCP"]}
             for (row, title), value in medians.items()]
    if options.json:
        print(json.dumps(table, indent=2))
        return
    for line in table:
        print(f"{line['what']:22} {line['bytes']:8} B  {line['kind']:18} {line['figure']:10.3f} "
              f"{line['unit']:5} {line['ratio_to_tcp']:7.2f} x TCP")


if __name__ == "__main__":
    main()
