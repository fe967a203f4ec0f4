#!/usr/bin/env python3
"""Every C++ block of the pages compiles: compile_docs.py BUILD [PAGE...].

All blocks of all pages are one unit, so that each compiler reads the headers once. A page says in
a comment what its blocks take for granted:

    <!-- cpp
    #include "feroce/rdma.hpp"
    extern feroce::rdma::Loop& loop;
    -->

A block is the body of a coroutine that gives a Result<>, or, with `<!-- top level -->` or
`<!-- file: PATH -->` on the line before it, what a source file has at its top. Each page and each
block is a name space of its own, but for blocks that open one themselves.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

from pages import ROOT, Page, all_pages

COMPILERS = ("g++-12", "clang++-14")
FLAGS = ("-std=c++20", "-fsyntax-only", "-w", *(f"-I{ROOT / path}" for path in
                                               ("src", "include", "tests", "tests/script")))
INCLUDE = re.compile(r"\s*#include\b.*")


class Unit:
    """One source file of many pieces."""

    def __init__(self):
        self.includes = []
        self.lines = []

    def add(self, page, line, text):
        """These lines begin there in the page. Includes go to the top of the unit."""
        self.lines.append(f'#line {line} "{page.name}"')
        for row in text.splitlines():
            if INCLUDE.fullmatch(row):
                self.includes.append(row)
                row = ""
            self.lines.append(row)

    def text(self):
        return "\n".join([*dict.fromkeys(self.includes), *self.lines, ""])


def preamble(page):
    """(line, text) of what the page's blocks take for granted."""
    whole = "\n".join(page.lines)
    for found in re.finditer(r"^<!-- cpp\n(.*?)^-->$", whole, re.M | re.S):
        yield whole.count("\n", 0, found.start()) + 2, found.group(1)


def add_block(unit, page, fence):
    top = fence.note == "top level" or fence.note.startswith("file: ")
    if re.search(r"^namespace ", fence.text, re.M):
        unit.lines.append("}")
        unit.add(page, fence.line + 1, fence.text)
        unit.lines.append(f"namespace {name_of(page)} {{")
        return
    unit.lines.append(f"namespace block_{fence.line} {{")
    if not top:
        unit.lines.append("feroce::rdma::Task<feroce::rdma::Result<>> body() {")
    unit.add(page, fence.line + 1, fence.text)
    unit.lines.append("}" if top else "co_return feroce::rdma::Result<>{}; } }")


def name_of(page):
    return "page_" + re.sub(r"\W", "_", page.name)


def unit_of(pages):
    unit = Unit()
    unit.includes.append('#include "feroce/rdma.hpp"')
    blocks = 0
    for page in pages:
        fences = [fence for fence in page.fences if fence.language == "cpp"]
        if not fences:
            continue
        unit.lines.append(f"namespace {name_of(page)} {{")
        for line, text in preamble(page):
            unit.add(page, line, text)
        for fence in fences:
            add_block(unit, page, fence)
            blocks += 1
        unit.lines.append("}")
    return unit, blocks


def compile_unit(build, unit):
    """The compilers side by side: name, what it says, status."""
    with tempfile.NamedTemporaryFile("w", suffix=".cpp", dir=build, encoding="utf-8") as source:
        source.write(unit.text())
        source.flush()
        running = [subprocess.Popen([compiler, *FLAGS, source.name], cwd=ROOT, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                   for compiler in COMPILERS]
        said = [process.communicate()[0] for process in running]
        return list(zip(COMPILERS, said, [process.returncode for process in running]))


def main():
    build, *names = sys.argv[1:]
    pages = [Page(pathlib.Path(name).resolve()) for name in names] or all_pages()
    unit, blocks = unit_of(pages)
    if blocks == 0:
        sys.exit("FAILED: there is no C++ block in these pages")
    failed = False
    for compiler, said, status in compile_unit(build, unit):
        print(f"{compiler}: {blocks} blocks, {'fine' if status == 0 else 'FAILED'}")
        if status != 0:
            print(said)
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
