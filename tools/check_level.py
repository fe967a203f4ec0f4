#!/usr/bin/env python3
"""Compiles the tree by another compiler, with another system's headers: check_level.py BUILD CXX.

For systems that are not at hand: what their compiler and their libraries' headers refuse is found
without them. Nothing is made: the compiler only reads (-fsyntax-only), each source of BUILD as it
is compiled there. `--headers FOLDER` comes before /usr/include, `--only TEXT` takes the sources
with that text in their path. Exit status 1 if a source does not compile.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

PATIENCE = 600


def command_of(entry, compiler, headers):
    """The words of a compilation for another compiler, without what would be written."""
    words = shlex.split(entry["command"])
    while words[0].endswith("ccache"):
        words.pop(0)
    out = [compiler, "-fsyntax-only"]
    for folder in headers:
        out += ["-isystem", folder]
    rest = iter(words[1:])
    for word in rest:
        if word in ("-o", "-MF", "-MT"):
            next(rest)
        elif word not in ("-c", "-MD", "-Winvalid-pch"):
            out.append(word)
    return out


def judge(entry, compiler, headers):
    done = subprocess.run(command_of(entry, compiler, headers), cwd=entry["directory"], text=True,
                          capture_output=True, check=False, timeout=PATIENCE)
    return done.returncode == 0, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("compiler")
    parser.add_argument("--headers", action="append", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    entries = [entry for entry in json.loads((options.build / "compile_commands.json").read_text())
               if options.only in entry["file"] and not entry["file"].endswith(".c")]
    if not entries:
        sys.exit(f"no source of {options.build} has {options.only} in its path")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        judged = pool.map(lambda entry: judge(entry, options.compiler, options.headers), entries)
        for entry, (good, said) in zip(entries, judged):
            if not good:
                failed += 1
                print(f"{entry['file']}\n{said}", flush=True)
    print(f"{len(entries)} sources, {failed} of them do not compile with {options.compiler}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
