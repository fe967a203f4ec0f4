#!/usr/bin/env python3
"""Compares a library of ours with the system's by libabigail: abidiff.py OURS THEIRS.

All that theirs exports must be in ours, same version and kind, and ours may export nothing else but
what stands under its own nodes (FEROCE_*). Left out on purpose: the second, older version of names
at IBVERBS_1.0, for programs of 2006, and what rdma-core's providers register by.
"""
import re
import subprocess
import sys

LEFT_OUT = re.compile(r"^\w+@IBVERBS_1\.0$|^ibv_register_driver@IBVERBS_1\.1$")

# What later releases have: nodes, and private names of a node that kept its own. symbols.py knows
# them all.
LATER = re.compile(r"^(ibv_cmd_create_cq_ex2|ibv_wr_opcode_str)@@IBVERBS_PRIVATE_34$"
                   r"|@@?(IBVERBS_1\.1[5-8]|IBVERBS_PRIVATE_(25|33|57|59|64|65)|RDMACM_1\.[45])$")


def allowed(kind, symbol):
    if kind == "A":
        return "@@FEROCE_" in symbol or LATER.search(symbol) is not None
    return kind == "D" and LEFT_OUT.match(symbol) is not None


def main():
    ours, theirs = sys.argv[1], sys.argv[2]
    done = subprocess.run(["abidiff", theirs, ours], text=True, capture_output=True, check=False)
    if done.returncode & 3:  # It could not compare; what it found different are other bits.
        sys.exit(f"abidiff: {done.stderr}")
    if "changes summary" not in done.stdout and done.stdout:
        sys.exit(f"abidiff has another form of report now:\n{done.stdout}")
    problems = []
    for line in done.stdout.splitlines():
        # [D] name@version, or [A] 'function int name()' {name@@version}
        found = re.match(r"\s+\[([ACD])\] (?:.*\{)?([\w.@]+)", line)
        if found and not allowed(*found.groups()):
            problems.append(line.strip())
    for problem in problems:
        print(problem)
    print(f"{len(problems)} differences that break programs")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
