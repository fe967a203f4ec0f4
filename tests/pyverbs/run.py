#!/usr/bin/env python3
"""Runs rdma-core's own Python tests, as Debian ships them, on the drop-in library.

run.py FEROCE EXPECTED [--update]. Every test must end as EXPECTED (a table: test, outcome, reason
of a skip) says; a test that is not in the table is a failure too. --update writes the table anew.
As root it reserves 64 huge pages of 2 MiB for the tests that need them, and gives them back.
"""
import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = "/usr/share/doc/rdma-core/tests"
HUGE_PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

# Runs inside, on the soft device. Names tests without the class's module path.
INNER = '''
import importlib.machinery, os, sys, unittest
sys.path.insert(0, os.getcwd())
from args_parser import parser
init = os.path.join(os.getcwd(), "__init__.py")
tests = importlib.machinery.SourceFileLoader("tests", init).load_module()
sys.argv = ["run_tests.py", "--dev", "feroce_lo"]
parser.parse_args()

class Table(unittest.TextTestResult):
    def say(self, test, outcome, reason=""):
        with open(os.environ["OUTCOMES"], "a") as f:
            f.write(f"{test.id().removeprefix('tests.')}\\t{outcome}\\t{reason}\\n")
    def addSuccess(self, test):
        super().addSuccess(test); self.say(test, "ok")
    def addSkip(self, test, reason):
        super().addSkip(test, reason); self.say(test, "skip", " ".join(reason.split()))
    def addError(self, test, err):
        super().addError(test, err); self.say(test, "error")
    def addFailure(self, test, err):
        super().addFailure(test, err); self.say(test, "fail")

suite = unittest.defaultTestLoader.loadTestsFromModule(tests)
unittest.TextTestRunner(resultclass=Table, verbosity=0).run(suite)
'''


def unpack(into):
    for name in os.listdir(SOURCE):
        path = os.path.join(SOURCE, name)
        if name.endswith(".gz"):
            with gzip.open(path) as packed, open(os.path.join(into, name[:-3]), "wb") as out:
                shutil.copyfileobj(packed, out)
        elif name.endswith(".py"):
            shutil.copy(path, into)


def read_table(path):
    table = {}
    with open(path) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                test, outcome, reason = (line.rstrip("\n").split("\t") + ["", ""])[:3]
                table[test] = (outcome, reason)
    return table


class HugePages:
    def __enter__(self):
        self.before = None
        try:
            with open(HUGE_PAGES) as f:
                self.before = f.read().strip()
            with open(HUGE_PAGES, "w") as f:
                f.write(str(int(self.before) + 64))
        except OSError:
            self.before = None

    def __exit__(self, *_):
        if self.before is not None:
            with open(HUGE_PAGES, "w") as f:
                f.write(self.before)


def run(feroce):
    with tempfile.TemporaryDirectory() as folder, HugePages():
        unpack(folder)
        outcomes = os.path.join(folder, "outcomes.tsv")
        environment = dict(os.environ, OUTCOMES=outcomes, FEROCE_DEVICES="lo")
        subprocess.run([feroce, "run", "--", "/usr/bin/python3", "-c", INNER], cwd=folder,
                       env=environment, timeout=600, check=False)
        return read_table(outcomes) if os.path.exists(outcomes) else {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("feroce")
    parser.add_argument("expected")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if not os.path.isdir(SOURCE):
        sys.exit(f"{SOURCE} is missing: install python3-pyverbs")
    found = run(os.path.abspath(options.feroce))
    if options.update:
        with open(options.expected, "w") as f:
            f.write("# Test, outcome, reason of a skip. Written by run.py --update.\n")
            for test in sorted(found):
                f.write("\t".join([test, *found[test]]).rstrip("\t") + "\n")
    expected = read_table(options.expected)
    # Who may not reserve huge pages cannot run the tests that need them.
    excused = {t for t, (outcome, reason) in found.items()
               if outcome == "skip" and "huge pages" in reason}
    problems = [f"{t}: {found[t][0]}, expected {expected.get(t, ('nothing', ''))[0]}"
                for t in sorted(found.keys() - excused)
                if found[t][0] != expected.get(t, ("", ""))[0]]
    problems += [f"{t}: did not run" for t in sorted(expected.keys() - found.keys())]
    count = sum(outcome == "ok" for outcome, _ in found.values())
    print(f"{len(found)} tests, {count} ok, {len(problems)} not as expected")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems or not found else 0)


if __name__ == "__main__":
    main()
