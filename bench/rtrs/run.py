#!/usr/bin/env python3
"""./feroce bench rtrs: requests over sessions beside the same over kernel TCP, bare UDP, and UCX.

run.py --build FOLDER [--json] [--rounds N]
Sessions are measured by rings, as two processes of one machine have them, and by UDP. Beside the
latter are bare UDP sockets that copy and check the data on both sides, as RoCE must. Every round
measures each row once, peers and ours in turn, so that noise of the machine falls on all alike; the
table shows medians of the rounds, and ratios of those. UCX's active messages are not answered, so
they are compared as half of a round trip at depth 1, and one way at 128 KiB.
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
WAYS = {"rings": "on", "UDP": "off"}
PATHS = {"1 path": 1, "2 paths": 2}
PEERS = {"TCP": "tcp_requests", "bare UDP": "udp_requests"}
# Ours against TCP, at least: by way, size and depth.
BARS = {("rings", 4096, 1): 2, ("rings", 4096, 32): 1, ("rings", 4096, 256): 1,
        ("rings", *BULK): 1, ("UDP", 4096, 1): 0.9}
# Sessions by UDP against bare sockets, at least: by size and depth.
BARE_BARS = {(4096, 32): 0.85, (4096, 256): 0.85, BULK: 0.85}


def named(verb, size, depth):
    return f"{verb} {size >> 10} KiB, depth {depth}"


class Measures:
    def __init__(self, build):
        self.build = build
        self.env = environment(build)

    def own(self, program, *words, **settings):
        return json.loads(run([os.path.join(self.build, "bench", program), *map(str, words)],
                              dict(self.env, **settings)))

    def session(self, way, *words):
        return self.own("session_requests", *words, FEROCE_SAMEHOST=WAYS[way])

    def shape(self, verb, size, depth):
        """The same load over TCP, bare UDP and sessions, by rings and UDP, with 1 and 2 paths."""
        what = named(verb, size, depth)
        found = {f"{peer}, {what}": self.own(program, verb, size, depth, SECONDS)
                 for peer, program in PEERS.items()}
        for way in WAYS:
            for paths, count in PATHS.items():
                found[f"{way}, {paths}, {what}"] = self.session(way, verb, size, depth, SECONDS,
                                                                count)
        return found

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


def against_ucx(rows, verb, way):
    """Latency at depth 1 and the rate of large requests."""
    found = []
    if "UCX am, 128 KiB, one way" in rows:
        what = named(verb, *BULK)
        found.append((f"{way}, {what}: 1 path against UCX",
                      rows[f"{way}, 1 path, {what}"]["GB_per_s"]
                      / rows["UCX am, 128 KiB, one way"]["GB_per_s"], None))
    if "UCX am, 4 KiB, depth 1" in rows:
        what = named(verb, 4096, 1)
        found.append((f"{way}, {what}: latency against UCX's round trip",
                      rows[f"{way}, 1 path, {what}"]["us_p50"]
                      / rows["UCX am, 4 KiB, depth 1"]["us_p50"], None))
    return found


def ratios(rows):
    """Ours over a peer's: (name, ratio, bar); more is better but for UCX's latency."""
    found = []
    for way in WAYS:
        for verb in ("read", "write"):
            for size, depth in [(4096, depth) for depth in DEPTHS] + [BULK]:
                what = named(verb, size, depth)
                tcp, one, two = (rows[name] for name in (
                    f"TCP, {what}", f"{way}, 1 path, {what}", f"{way}, 2 paths, {what}"))
                found.append((f"{way}, {what}: 1 path against TCP", one["kIOPS"] / tcp["kIOPS"],
                              BARS.get((way, size, depth))))
                found.append((f"{way}, {what}: TCP's median latency against ours",
                              tcp["us_p50"] / one["us_p50"], None))
                found.append((f"{way}, {what}: 2 paths against 1", two["kIOPS"] / one["kIOPS"], 1))
                if way == "UDP":
                    found.append((f"{way}, {what}: 1 path against bare UDP",
                                  one["kIOPS"] / rows[f"bare UDP, {what}"]["kIOPS"],
                                  BARE_BARS.get((size, depth))))
            found += against_ucx(rows, verb, way)
    for verb in ("read", "write"):
        what = named(verb, *BULK)
        found.append((f"{what}: TCP requests against a TCP stream",
                      rows[f"TCP, {what}"]["GB_per_s"]
                      / rows["TCP stream, 128 KiB"]["GB_per_s"], 0.9))
    return found


def print_table(rows, compared):
    keys = ("kIOPS", "GB_per_s", "us_p50", "us_p99", "us_p999")
    print(f"{'':40}" + "".join(f"{key:>10}" for key in keys))
    for row, values in rows.items():
        cells = (f"{values[key]:10.2f}" if key in values else " " * 10 for key in keys)
        print(f"{row:40}" + "".join(cells))
    print()
    for name, ratio, bar in compared:
        verdict = "" if bar is None else f">= {bar}: {'met' if ratio >= bar else 'missed'}"
        print(f"{name:68} {ratio:6.2f}  {verdict}")


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
