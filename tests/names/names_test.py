#!/usr/bin/env python3
"""A program may use all rooms above the waist at once: names_test.py ROOT.

For every name that a public header gives in feroce::rdma, rtrs, gas or block, a program that has
`using namespace` of all four says it without a room, and both compilers must know which one is
meant. The names are read from the headers, whose declarations begin in the first column.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

COMPILERS = ("g++-12", "clang++-14")
ROOMS = ("rdma", "rtrs", "gas", "block")
HEAD = re.compile(r"(?:template <.*> *$|requires\b|\[\[noreturn\]\] *$)")
TYPE = re.compile(r"(?:class|struct|enum class|enum|union)\s+(?:\[\[\w+\]\]\s+)?"
                  r"(?:alignas\(.*?\)\s+)?(\w+(?:::\w+)?)\b(.*)")
ALIAS = re.compile(r"(?:using|concept)\s+(\w+)\s*=?")
TAKEN = re.compile(r"using\s+(?:\w+::)+(\w+);")  # The same thing under a shorter name.
VALUE = re.compile(r"(?:inline|constexpr|extern|static)\b[^(]*?\b(\w+)\s*(?:=|\{|;)")
FUNCTION = re.compile(r"[\w\[][^=;]*?\b(operator\b[^(]*|\w+)\(")
# Both are in feroce for the rooms below the waist, with static text; programs mean rdma's.
TWICE = {"Error", "Result"}


def declared(header):
    """(room, name) of what stands in the first column of a room's name space."""
    room, depth, out = None, 0, set()
    # A name space of one line has no comment at its end.
    text = re.sub(r"^(namespace .* \{\n.*\n\})$", r"\1  // namespace", header.read_text(),
                  flags=re.M)
    for line in text.splitlines():
        opened = re.match(r"namespace (?:feroce::)?([\w:]+) \{$", line)
        if opened:
            depth += 1
            room = opened[1] if depth == 1 else room
            continue
        if line.startswith("}  // namespace"):
            depth -= 1
            continue
        # Not what only the room itself may use, nor what is no declaration.
        if depth != 1 or room not in ROOMS or not re.match(r"[A-Za-z\[]", line) or HEAD.match(line):
            continue
        if line.startswith(("static_assert", "public:", "private:", "protected:", "const {")):
            continue
        found = (TYPE.match(line) or TAKEN.match(line) or ALIAS.match(line) or VALUE.match(line)
                 or FUNCTION.match(line))
        if not found:
            raise SystemExit(f"{header}: what does this declare? {line}")
        name = found[1]
        # A class that is in another, or the operator of a type, is found by that.
        if "::" not in name and not name.startswith("operator"):
            out.add((room, name))
    return out


def program(root, names):
    """Its last line says a name that two rooms have, and is to be complained of."""
    headers = sorted(path.relative_to(root / "include") for path in
                     (root / "include/feroce").rglob("*.hpp"))
    lines = [f'#include "{path}"' for path in headers]
    lines.append("namespace everything {")
    lines += [f"using namespace feroce::{room};" for room in ROOMS]
    lines.append("}")
    lines += [f"namespace name_{number} {{ using everything::{name}; }}"
              for number, name in enumerate(names)]
    # With what feroce itself has.
    lines.append("namespace everything { using namespace feroce; }")
    lines += [f"namespace again_{number} {{ using everything::{name}; }}"
              for number, name in enumerate(names) if name not in TWICE]
    lines.append("namespace feroce::block { class Loop; }")
    lines.append("namespace planted { using everything::Loop; }")
    return lines


def complaints(root, lines, compiler):
    """What the compiler says, and the lines of the program that it finds wrong; 0: of a header."""
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
        file.write("\n".join([*lines, ""]))
        file.flush()
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{root / 'include'}",
                               file.name], capture_output=True, text=True, timeout=280)
    found = re.findall(r"^(.*?):(\d+):\d+: (?:fatal )?error:", done.stderr, re.M)
    return done.stderr, {int(line) if path == file.name else 0 for path, line in found}


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    found = set()
    for header in sorted((root / "include/feroce").rglob("*.hpp")):
        found |= declared(header)
    for known in (("rdma", "Loop"), ("rdma", "text_of"), ("rtrs", "kDefaultPort"), ("gas", "ptr"),
                  ("gas", "share"), ("gas", "Shareable"), ("block", "Disk"), ("block", "ClientId")):
        if known not in found:
            raise SystemExit(f"the test does not see {known} any more")
    names = sorted({name for _, name in found})
    failed = False
    lines = program(root, names)
    for compiler in COMPILERS:
        said, wrong = complaints(root, lines, compiler)
        if wrong != {len(lines)}:
            failed = True
            print(f"{compiler}: not the last line alone, but {sorted(wrong)}:\n{said[:4000]}")
    print(f"{len(names)} names of {len(ROOMS)} rooms, {len(COMPILERS)} compilers")
    return 1 if failed else 0


sys.exit(main())
