#!/usr/bin/env python3
"""Every header compiles alone, in C++20 and without warnings.

Left out: `*_arm64.hpp` and `*_amd64.hpp`, the halves of a header that chooses between them, and
headers that a source includes before anything else, since building that source shows the same.

Usage: check_headers.py COMPILER ROOT. Two compilers at a time: the smallest machine has two cores.
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys

FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]


def compile_alone(compiler, root, header):
    # Through stdin, since `#pragma once` in the main file is itself a warning.
    command = [compiler, *FLAGS, f"-I{root}/src", f"-I{root}/include", "-xc++", "-"]
    done = subprocess.run(command, input=f'#include "{header}"\n', capture_output=True, text=True,
                          check=False)
    return header, done.returncode, done.stderr


def included_first(root):
    """Headers that some source of the product includes as its first line of code."""
    found = set()
    for source in (root / "src").rglob("*.cpp"):
        first = re.search(r'^#include ["<](.+)[">]$', source.read_text(encoding="utf-8"), re.M)
        if first:
            both = (root / tree / first[1] for tree in ("src", "include"))
            found.update(header for header in both if header.exists())
    return found


def main():
    compiler, root = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    proven = included_first(root)
    headers = sorted(path for tree in ("src", "include") for path in (root / tree).rglob("*.hpp")
                     if not path.stem.endswith(("_arm64", "_amd64")) and path not in proven)
    if not headers:
        print("no headers found", file=sys.stderr)
        return 1
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for header, status, text in pool.map(lambda h: compile_alone(compiler, root, h), headers):
            if status != 0:
                failures += 1
                print(f"{header.relative_to(root)} does not compile alone:\n{text}")
    print(f"headers: {len(headers)} compiled alone, {failures} failed; "
          f"{len(proven)} come first in a source")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
