#!/usr/bin/env python3
"""Compares the table that the program qp_table found with the golden one.

qp_table.py rxe|feroce GOLDEN DIFFERENCES -- QP_TABLE DEVICE GID_INDEX
Every difference must be explained in DIFFERENCES, and every explanation must be needed.
"""
import fnmatch
import subprocess
import sys


def read_table(lines):
    return dict(line.strip().split(": ", 1) for line in lines if line.strip())


def attributes(row):
    """"required A B; optional -" as {"required": {"A", "B"}, "optional": set()}"""
    parts = {}
    for part in row.split("; "):
        kind, *names = part.split()
        parts[kind] = set(names) - {"-"}
    return parts


def row_differences(key, wanted, found):
    if not found.startswith("required"):
        return [f"{key}: {found}"]
    want, have = attributes(wanted), attributes(found)
    differences = []
    for name in sorted(set().union(*want.values(), *have.values())):
        before = next((kind for kind in want if name in want[kind]), "no")
        after = next((kind for kind in have if name in have[kind]), "refused")
        if before == after or (before, after) == ("no", "refused"):
            continue
        differences.append(f"{key}: {before} {name} is {after}")
    return differences


def differences(golden, found):
    result = []
    for key, row in golden.items():
        answer = found.get(key) or found.get(key.split()[0], "was not tried")
        result += row_differences(key, row, answer)
    types = {key.split()[0] for key in golden}
    return result + [f"{key}: {row}" for key, row in found.items()
                     if key not in golden and key not in types]


def read_expected(path, device):
    with open(path, encoding="utf-8") as file:
        rows = [line.split(" | ") for line in file if not line.startswith("#")]
    return [row[1].strip() for row in rows if row[0] == device]


def judge(device, golden_path, expected_path, found_lines):
    """The sentences to print, and whether all is well."""
    with open(golden_path, encoding="utf-8") as file:
        golden = read_table(file)
    expected = read_expected(expected_path, device)
    seen = differences(golden, read_table(found_lines))
    used = {pattern: [d for d in seen if fnmatch.fnmatchcase(d, pattern)] for pattern in expected}
    explained = set().union(*used.values()) if used else set()
    problems = [f"unexplained: {d}" for d in seen if d not in explained]
    problems += [f"explained but not seen: {pattern}" for pattern, hits in used.items() if not hits]
    summary = (f"{device}: {len(golden)} transitions, {len(seen)} differences, "
               f"{len(explained)} of them explained")
    return [summary, *problems], not problems


def main():
    device, golden, expected, _, *command = sys.argv[1:]
    found = subprocess.run([*command, golden], capture_output=True, text=True, check=True)
    sentences, good = judge(device, golden, expected, found.stdout.splitlines())
    print("\n".join(sentences))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
