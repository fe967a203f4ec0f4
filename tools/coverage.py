#!/usr/bin/env python3
"""Which lines of the rooms the tests run. Reads what `gcovr --json` wrote.

Usage: coverage.py REPORT.json            a table: lines of each room, and how many of them were run
       coverage.py REPORT.json ROOM...    the lines of these rooms that no test ran, FILE:FIRST-LAST

Tests themselves are not counted. A line of a template or an inline function counts as run if any of
its copies was.
"""
import itertools
import json
import pathlib
import sys


def lines_of(report):
    """{file: {line: times run}} of the product's files."""
    files = {}
    for entry in report["files"]:
        path = entry["file"]
        if not path.startswith("src/") or path.endswith("_test.cpp"):
            continue
        counts = files.setdefault(path, {})
        for line in entry["lines"]:
            if line.get("gcovr/noncode"):
                continue
            number = line["line_number"]
            counts[number] = max(counts.get(number, 0), line["count"])
    return files


def room_of(path):
    return path.split("/")[1]


def print_table(files):
    print(f"{'room':<12}{'lines':>8}{'run':>8}{'%':>8}")
    for room, paths in itertools.groupby(sorted(files), key=room_of):
        counts = [count for path in paths for count in files[path].values()]
        run = sum(1 for count in counts if count > 0)
        print(f"{room:<12}{len(counts):>8}{run:>8}{100 * run / max(len(counts), 1):>8.1f}")


def print_missed(files, rooms):
    for path in sorted(files):
        if room_of(path) not in rooms:
            continue
        missed = sorted(number for number, count in files[path].items() if count == 0)
        # Neighbours in the list of a file's lines differ from their index by the same number.
        for _, group in itertools.groupby(enumerate(missed), key=lambda pair: pair[1] - pair[0]):
            numbers = [number for _, number in group]
            print(f"{path}:{numbers[0]}-{numbers[-1]}")


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    files = lines_of(json.loads(pathlib.Path(arguments[0]).read_text(encoding="utf-8")))
    if arguments[1:]:
        print_missed(files, set(arguments[1:]))
    else:
        print_table(files)


if __name__ == "__main__":
    main(sys.argv[1:])
