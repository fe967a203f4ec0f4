#!/usr/bin/env python3
"""Which lines and branches of the rooms the tests run. Reads what `gcovr --json` wrote.

Usage: coverage.py REPORT.json                a table: lines and branches of each room, and how many
                                              of them were run
       coverage.py REPORT.json --page PAGE    the same, put into PAGE in place of the table there
       coverage.py REPORT.json ROOM...        the lines of these rooms that no test ran,
                                              FILE:FIRST-LAST

Tests and what only they include are not counted. A line of a template or an inline function counts
as run if any of its copies was, and so does a branch.
"""
import itertools
import json
import pathlib
import sys

# The table of a page stands between these two.
BEGIN = "<!-- made by tools/coverage.py -->"
END = "<!-- end -->"
HEAD = ("room", "lines", "run", "%", "branches", "run", "%")


def is_product(path):
    name = path.rsplit("/", 1)[-1]
    only_for_tests = name.startswith("test_") or name.endswith(("_test.cpp", "_fixture.hpp"))
    return path.startswith("src/") and not only_for_tests


def counts_of(report):
    """{file: ({line: times run}, {(line, branch): times taken})} of the product's files."""
    files = {}
    for entry in report["files"]:
        if not is_product(entry["file"]):
            continue
        lines, branches = files.setdefault(entry["file"], ({}, {}))
        for line in entry["lines"]:
            if line.get("gcovr/noncode"):
                continue
            number = line["line_number"]
            lines[number] = max(lines.get(number, 0), line["count"])
            for index, branch in enumerate(line.get("branches", ())):
                place = (number, index)
                branches[place] = max(branches.get(place, 0), branch["count"])
    return files


def room_of(path):
    return path.split("/")[1]


def share(counts):
    run = sum(1 for count in counts if count > 0)
    percent = f"{100 * run / len(counts):.1f}" if counts else "-"
    return [str(len(counts)), str(run), percent]


def rows_of(files):
    for room, paths in itertools.groupby(sorted(files), key=room_of):
        both = [files[path] for path in paths]
        lines = [count for counts, _ in both for count in counts.values()]
        branches = [count for _, counts in both for count in counts.values()]
        yield [room, *share(lines), *share(branches)]


def print_table(files):
    for row in [list(HEAD), *rows_of(files)]:
        print(f"{row[0]:<12}" + "".join(f"{cell:>10}" for cell in row[1:]))


def markdown_table(files):
    rows = [list(HEAD), ["---", *["---:"] * (len(HEAD) - 1)]]
    rows += [[f"`{room}/`", *figures] for room, *figures in rows_of(files)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def with_table(page, table):
    """The text of a page with another table in it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"the page has no place for the table: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{table}{END}{after}"


def missed_of(files, rooms):
    for path in sorted(files):
        if room_of(path) not in rooms:
            continue
        missed = sorted(number for number, count in files[path][0].items() if count == 0)
        # Neighbours in the list of a file's lines differ from their index by the same number.
        for _, group in itertools.groupby(enumerate(missed), key=lambda pair: pair[1] - pair[0]):
            numbers = [number for _, number in group]
            yield f"{path}:{numbers[0]}-{numbers[-1]}"


def main(arguments):
    if not arguments or arguments[1:] == ["--page"]:
        sys.exit(__doc__)
    files = counts_of(json.loads(pathlib.Path(arguments[0]).read_text(encoding="utf-8")))
    if arguments[1:2] == ["--page"]:
        page = pathlib.Path(arguments[2])
        text = with_table(page.read_text(encoding="utf-8"), markdown_table(files))
        page.write_text(text, encoding="utf-8")
    elif arguments[1:]:
        print("\n".join(missed_of(files, set(arguments[1:]))))
    else:
        print_table(files)


if __name__ == "__main__":
    main(sys.argv[1:])
