#!/usr/bin/env python3
"""./feroce bench rtrs: requests over sessions beside the same over kernel TCP, and UCX.

run.py --build FOLDER [--json] [--rounds N]
Every round measures each row once, peers and ours in turn, so that noise of the machine falls on
all alike; the table shows medians of the rounds, and ratios of those. UCX's active messages are not
answered, so they stand beside depth 1 as half of a round trip, and beside 128 KiB one way.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "verbs"))
from run import environment, free_port, run, run_pair  # noqa: E402

SECONDS = "0.5"
DEPTHS = (1, 32, 256)
BULK = (128 << 10, 32)


class Measures:
    def __init__(self, build):
        self.build = build
        self.env = environment(build)

    def own(self, program, *words):
        return json.loads(run([os.path.join(self.build, "bench", program), *map(str, words)],
                              self.env))

    def shape(self, verb, size, depth):
        """The same load over TCP and over sessions with one and two paths."""
        what = f"{verb} {size >> 10} KiB, depth {depth}"
        return {f"TCP, {what}": self.own("tcp_requests", verb, size, depth, SECONDS),
                f"1 path, {what}": self.own("session_requests", verb, size, depth, SECONDS, 1),
                f"2 paths, {what}": self.own("session_requests", verb, size, depth, SECONDS, 2)}

    def requests(self):
        found = {}
        for verb in ("read", "write"):
            for depth in DEPTHS:
                found.update(self.shape(verb, 4096, depth))
            found.update(self.shape(verb, *BULK))
        found["TCP stream, 128 KiB"] = self.own("tcp_requests", "stream", *BULK, SECONDS)
        return found

    def ucx(self):
        if not shutil.which("ucx_perftest"):
            return {}
        env = dict(os.environ, UCX_TLS="tcp", UCX_NET_DEVICES="lo", UCX_WARN_UNUSED_ENV_VARS="n")
        found = {}
        for row, test, size, count in (("UCX am, 4 KiB, depth 1", "ucp_am_lat", 4096, 5000),
                                       ("UCX am, 128 KiB, one way", "ucp_am_bw", BULK[0], 5000)):
            port = free_port()
            base = ["ucx_perftest", "-p", str(port), "-t", test, "-s", str(size), "-n", str(count)]
            text = run_pair(base, base[:1] + ["127.0.0.1"] + base[1:], port, env)
            # Final: iterations, percentile, average and overall us, average and overall MB/s.
            words = re.search(r"Final:\s+(.*)", text).group(1).split()
            half, rate = float(words[1]), float(words[5]) * 1.048576 / 1000
            found[row] = {"us_p50": 2 * half} if "depth" in row else {"GB_per_s": rate}
        return found


def medians(rounds):
    return {row: {key: statistics.median(r[row][key] for r in rounds) for key in rounds[0][row]}
            for row in rounds[0]}


def ratios(rows):
    """Ours over a peer's: (name, ratio, bar); more is better but for UCX's latency."""
    found = []
    for verb in ("read", "write"):
        for depth in DEPTHS:
            what = f"{verb} 4 KiB, depth {depth}"
            one, two, tcp = (rows[f"{who}, {what}"] for who in ("1 path", "2 paths", "TCP"))
            found.append((f"{what}: 1 path against TCP", one["kIOPS"] / tcp["kIOPS"],
                          1 if depth > 1 else None))
            found.append((f"{what}: TCP's median latency against ours",
                          tcp["us_p50"] / one["us_p50"], None))
            found.append((f"{what}: 2 paths against 1", two["kIOPS"] / one["kIOPS"], 1))
        what = f"{verb} 128 KiB, depth {BULK[1]}"
        one, two, tcp = (rows[f"{who}, {what}"]["GB_per_s"] for who in ("1 path", "2 paths", "TCP"))
        found.append((f"{what}: 1 path against TCP", one / tcp, None))
        found.append((f"{what}: 2 paths against 1", two / one, 1))
        found.append((f"{what}: TCP requests against a TCP stream",
                      tcp / rows["TCP stream, 128 KiB"]["GB_per_s"], 0.9))
        if "UCX am, 128 KiB, one way" in rows:
            found.append((f"{what}: 1 path against UCX",
                          one / rows["UCX am, 128 KiB, one way"]["GB_per_s"], None))
        if "UCX am, 4 KiB, depth 1" in rows:
            found.append((f"{verb} 4 KiB, depth 1: latency against UCX's round trip",
                          rows[f"1 path, {verb} 4 KiB, depth 1"]["us_p50"]
                          / rows["UCX am, 4 KiB, depth 1"]["us_p50"], None))
    return found


def print_table(rows, compared):
    keys = ("kIOPS", "GB_per_s", "us_p50", "us_p99", "us_p999")
    print(f"{'':32}" + "".join(f"{key:>10}" for key in keys))
    for row, values in rows.items():
        cells = (f"{values[key]:10.2f}" if key in values else " " * 10 for key in keys)
        print(f"{row:32}" + "".join(cells))
    print()
    for name, ratio, bar in compared:
        verdict = "" if bar is None else f">= {bar}: {'met' if ratio >= bar else 'missed'}"
        print(f"{name:60} {ratio:6.2f}  {verdict}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    measures = Measures(os.path.abspath(arguments.build))
    rounds = []
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        rounds.append({**measures.requests(), **measures.ucx()})
    rows = medians(rounds)
    compared = ratios(rows)
    if arguments.json:
        print(json.dumps({"figures": rows, "ratios": {n: r for n, r, _ in compared}}, indent=2))
    else:
        print_table(rows, compared)


if __name__ == "__main__":
    main()
