#!/usr/bin/env python3
"""./feroce bench locks: ALock's experiment on this machine.

run.py --build FOLDER [--json] [--svg FILE] [--milliseconds N] [--rounds N] [--quick]
       [--shapes 2x1,...]
Processes take locks of a table that is spread over them. All kinds of locks run in the same
processes, one after another; of several rounds each cell shows its median. On the soft device
these figures measure what an operation through the loopback device costs beside one of the CPU; a
NIC's loopback costs other times.
"""
import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import figures  # noqa: E402
import plot  # noqa: E402

LOCKS = [1, 20, 1000]
LOCALITY = [100, 95, 90, 85, 0]
SHAPES = [(2, 1), (2, 2), (4, 1), (4, 2)]  # Processes, threads of each.
RIVALS = ["spin loopback", "mcs loopback"]
PLOTTED = (20, 2, 1)  # Locks, and the shape.


def measure(build, shape, options, locks, locality):
    """{(kind, locks, locality): figures}, of the median round, and what a free lock costs."""
    rounds, free = [], {}
    for number in range(options.rounds):
        figures.say(f"{shape[0]} processes x {shape[1]} threads, round {number + 1} of "
                    f"{options.rounds}")
        cells, free = measure_once(build, shape, options.milliseconds, locks, locality)
        rounds.append(cells)
    out = {}
    for key in rounds[0]:
        by_rate = sorted((cells[key] for cells in rounds), key=lambda cell: cell["per_s"])
        out[key] = by_rate[len(by_rate) // 2]
    return out, free


def measure_once(build, shape, milliseconds, locks, locality):
    processes, threads = shape
    program = os.path.join(build, "bench/lock_table")
    words = [program, str(threads), str(milliseconds), ",".join(map(str, locks)),
             ",".join(map(str, locality))]
    lines = figures.launch(build, processes, words, 600)
    cells, free = {}, {}
    for line in lines:
        if "free" in line:
            free[line["free"]] = {"acquire": line["acquire"], "release": line["release"]}
        else:
            cells.setdefault((line["kind"], line["locks"], line["locality"]), []).append(line)
    out = {}
    for key, nodes in cells.items():
        local = figures.merge(node["local"] for node in nodes)
        remote = figures.merge(node["remote"] for node in nodes)
        count = figures.total(local) + figures.total(remote)
        out[key] = {"per_s": count / nodes[0]["seconds"], "local_us": figures.percentiles(local),
                    "remote_us": figures.percentiles(remote)}
    return out, free


def kinds_of(cells):
    return list(dict.fromkeys(kind for kind, _, _ in cells))


def show(number):
    return "-" if number is None else f"{number:.1f}" if number < 100 else f"{number:.0f}"


def print_shape(shape, cells, locks, locality):
    kinds = kinds_of(cells)
    print(f"\n{shape[0]} processes x {shape[1]} threads: thousand acquisitions a second, "
          "and ALock's ratio to its rivals")
    print(f"{'locks':>5} {'local':>6} " + " ".join(f"{kind:>15}" for kind in kinds) +
          " ".join(f"{'x ' + rival:>16}" for rival in RIVALS))
    for count in locks:
        for part in locality:
            rates = {kind: cells[(kind, count, part)]["per_s"] for kind in kinds}
            print(f"{count:>5} {part:>5}% " +
                  " ".join(f"{rates[kind] / 1000:>15.1f}" for kind in kinds) +
                  " ".join(f"{rates['alock'] / rates[rival]:>16.1f}" for rival in RIVALS))


def print_tails(shape, cells, count, locality):
    print(f"\nmicroseconds to acquire, p50 / p99 / p99.9, {shape[0]} x {shape[1]}, {count} locks")
    for part in locality:
        for kind in kinds_of(cells):
            cell = cells[(kind, count, part)]
            sides = ["  ".join(f"{show(cell[side][p]):>8}" for p in cell[side])
                     for side in ("local_us", "remote_us")]
            print(f"{part:>5}% {kind:>16}   local {sides[0]}   remote {sides[1]}")


def draw(path, cells, locality, title):
    kinds = kinds_of(cells)
    lines = {kind: [cells[(kind, PLOTTED[0], part)]["per_s"] for part in locality]
             for kind in kinds}
    plot.write(path, title, [f"{part} %" for part in locality], lines, "acquisitions a second",
               "acquisitions on the own node")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--svg")
    parser.add_argument("--milliseconds", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", help="processes x threads; all usual ones unless given")
    parser.add_argument("--quick", action="store_true", help="one shape, one table")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    shapes = [PLOTTED[1:]] if options.quick else SHAPES
    if options.shapes:
        shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes.split(",")]
    locks = [20] if options.quick else LOCKS
    results, free = {}, {}
    for shape in shapes:
        results[shape], free = measure(build, shape, options, locks, LOCALITY)
    shape = PLOTTED[1:]
    if options.svg and shape in results:
        draw(options.svg, results[shape], LOCALITY,
             f"{PLOTTED[0]} locks, {shape[0]} processes, threads of each: {shape[1]}, soft device")
    if options.json:
        cells = [dict(value, processes=shape[0], threads=shape[1], kind=key[0], locks=key[1],
                      locality=key[2])
                 for shape, cells in results.items() for key, value in cells.items()]
        print(json.dumps({"free_lock_round_trips": free, "cells": cells}, indent=1))
        return
    print("round trips to acquire and to release a free lock of another node:")
    for kind, cost in free.items():
        print(f"  {kind:16} {cost['acquire']} {cost['release']}")
    for shape, cells in results.items():
        print_shape(shape, cells, locks, LOCALITY)
    for shape, cells in results.items():
        for count in locks:
            print_tails(shape, cells, count, LOCALITY)


if __name__ == "__main__":
    main()
