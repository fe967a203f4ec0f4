#!/usr/bin/env python3
"""Compares the exported symbols of our library with those of the system's, by name and version.

symbols.py OURS THEIRS. Every default symbol of theirs must be in ours under the same version and
kind, and ours may export nothing else but what stands under its own nodes (FEROCE_*). Compatibility
symbols (name@version, for programs of 2006) are left out on purpose.
"""
import subprocess
import sys


def exported(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library],
                             check=True, capture_output=True, text=True).stdout
    symbols = {}
    for line in listing.splitlines():
        fields = line.split()
        kind, name = fields[-2], fields[-1]
        if "@@" in name:
            # Data may stand in either data section.
            symbols[name] = "data" if kind in "BDR" else kind
    return symbols


def main():
    ours, theirs = exported(sys.argv[1]), exported(sys.argv[2])
    if len(theirs) < 100:
        sys.exit(f"{sys.argv[2]} exports only {len(theirs)} symbols: is it libibverbs?")
    problems = []
    for name, kind in sorted(theirs.items()):
        if name not in ours:
            problems.append(f"missing: {name}")
        elif ours[name] != kind:
            problems.append(f"{name} is {ours[name]} but should be {kind}")
    for name in sorted(ours.keys() - theirs.keys()):
        if "@@FEROCE_" not in name:
            problems.append(f"should not be exported: {name}")
    print(f"{len(theirs)} symbols, {len(problems)} problems")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
