#!/usr/bin/env python3
"""./feroce bench guidelines: what each rule of docs/gas-speed.md is worth on the soft device.

run.py --build FOLDER [--json] [--milliseconds N]
Figures come from the median time of what is repeated.
"""
import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import figures  # noqa: E402

# The rule, followed and not followed: rows of the program.
RULES = [
    ("post lists: one doorbell", "16 writes, one doorbell", "16 writes, a doorbell each"),
    ("signal one of sixteen", "16 writes, one doorbell", "16 writes, all signalled"),
    ("inline small writes", "16 writes, one doorbell", "16 writes, not inline"),
    ("fence only where needed", "16 reads, no fences", "16 reads, fenced"),
    ("keep 16 under way", "reads, 16 under way", "reads, 1 under way"),
    ("chain what depends", "swap and read, one after the other", "swap and read, one chain"),
    ("a queue pair per thread", "2 threads, a queue pair each", "2 threads, one queue pair"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--milliseconds", type=int, default=300)
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    lines = figures.launch(build, 2, [os.path.join(build, "bench/guidelines"),
                                      str(options.milliseconds)], 300)
    rows = {line["row"]: line["value"] for line in lines}
    effects = {rule: rows[good] / rows[bad] for rule, good, bad in RULES}
    if options.json:
        print(json.dumps({"rows": lines, "effects": effects}, indent=1))
        return
    for line in lines:
        print(f"{line['row']:38} {line['value']:>10.1f} {line['unit']}")
    print()
    for rule, effect in effects.items():
        print(f"{rule:38} {effect:>10.2f} x")


if __name__ == "__main__":
    main()
