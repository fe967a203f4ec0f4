#!/usr/bin/env python3
"""What the linter reads: lint_units.py COMPILE_COMMANDS FOLDER

Writes FOLDER/compile_commands.json, without precompiled headers, and prints its files. Most of what
the linter does in a source, it does in the headers of others, so the joined sources of several
rooms are joined once more. Two of one room are not: both may give a local name. Nor are those of
cli/, which take long enough by themselves, nor what defines functions that others call.
"""
import json
import pathlib
import re
import shlex
import sys

TOGETHER = 4
ALONE = re.compile(r"/src/(cli|verbs|rdmacm|preload|rsocket)/")
PRECOMPILED = re.compile(r"-Xclang (-include-pch|-include|[^ ]*cmake_pch[^ ]*) ?")
PRODUCT = re.compile(r"/src/.*\.c(pp|xx)$")
TEST = re.compile(r"_test\.(cpp|dir/)")


def options(entry):
    """What the compiler gets, but for its output and its source."""
    words = shlex.split(PRECOMPILED.sub("", entry["command"]))
    output = words.index("-o")
    del words[output:output + 2]
    return [word for word in words if word not in ("-c", entry["file"])]


def size(entry):
    text = pathlib.Path(entry["file"]).read_text(encoding="utf-8")
    included = re.findall(r'#include "(/[^"]*)"', text)
    return sum(pathlib.Path(path).stat().st_size for path in included) or len(text)


def group(entries):
    """Lists of entries, none with two of one target, nor of different options."""
    groups = []
    for entry in sorted(entries, key=size, reverse=True):
        target = re.sub(r"\.dir/.*", "", entry["file"])
        own = sorted(word for word in options(entry) if not word.startswith(("-I", "-D", "-O")))
        key = entry["file"] if ALONE.search(entry["file"]) else own
        fitting = (other for other in groups if other["key"] == key
                   and len(other["entries"]) < TOGETHER and target not in other["targets"])
        found = next(fitting, None)
        if found is None:
            found = {"key": key, "entries": [], "targets": set()}
            groups.append(found)
        found["entries"].append(entry)
        found["targets"].add(target)
    return [found["entries"] for found in groups]


def joined(entries, number, folder):
    """One entry of a compilation database for all of them."""
    file = entries[0]["file"]
    if len(entries) > 1:
        lines = (f'#include "{entry["file"]}"\n' for entry in entries)
        path = folder / f"joined_{number}.cxx"
        path.write_text("".join(lines), encoding="utf-8")
        file = str(path)
    words = dict.fromkeys(word for entry in entries for word in options(entry))
    return {"directory": entries[0]["directory"], "file": file, "arguments": [*words, "-c", file]}


def main():
    commands, folder = map(pathlib.Path, sys.argv[1:])
    entries = [entry for entry in json.loads(commands.read_text(encoding="utf-8"))
               if PRODUCT.search(entry["file"]) and not TEST.search(entry["file"])]
    units = [joined(some, number, folder) for number, some in enumerate(group(entries))]
    text = json.dumps(units, indent=1)
    (folder / "compile_commands.json").write_text(text, encoding="utf-8")
    for unit in units:
        print(unit["file"])


if __name__ == "__main__":
    main()
