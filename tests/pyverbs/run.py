#!/usr/bin/env python3
"""Runs rdma-core's own Python tests, as Debian ships them, on the drop-in library.

run.py FEROCE [--update | --lint]. Every test must end as expected.tsv (test, outcome, reason of a
skip) says and be skipped only for a reason that reasons.tsv explains; a test that is not in the
table is a failure too. --update writes the table again. With --lint the tests run under
`feroce run --lint`, and lint may report only what reports.tsv explains, and must report what always
occurs by that table. As root it reserves 64 huge pages of 2 MiB for the tests that need them, and
gives them back.
"""
import argparse
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "python3-pyverbs"
SOURCE = "/usr/share/doc/rdma-core/tests"
PATIENCE = 600
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
    def startTest(self, test):
        super().startTest(test)
        print("begins:", test.id().removeprefix("tests."), file=sys.stderr, flush=True)
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


def find_source(scratch):
    """The tests are documentation, which small installations leave out: then take the package."""
    if os.path.isdir(SOURCE):
        return SOURCE
    subprocess.run(["apt-get", "download", "-q", PACKAGE], cwd=scratch, check=True)
    archive = next(pathlib.Path(scratch).glob(f"{PACKAGE}_*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(archive), scratch], check=True)
    return scratch + SOURCE


def unpack(source, into):
    for name in os.listdir(source):
        path = os.path.join(source, name)
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


def say(command, **more):
    """What a command says on stderr. It is shown also where the command takes too long."""
    late = False
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:
            subprocess.run(command, stderr=said, timeout=PATIENCE, check=False, **more)
        except subprocess.TimeoutExpired:
            late = True
        said.seek(0)
        text = said.read()
    sys.stderr.write(text)
    if late:
        sys.exit(f"not over after {PATIENCE} seconds")
    return text


def run(feroce, *options):
    """The table of outcomes, and what was said beside it."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as folder, \
            HugePages():
        unpack(find_source(scratch), folder)
        outcomes = os.path.join(folder, "outcomes.tsv")
        environment = dict(os.environ, OUTCOMES=outcomes, FEROCE_DEVICES="lo")
        said = say([feroce, "run", *options, "--", "/usr/bin/python3", "-c", INNER],
                   cwd=folder, env=environment)
        return (read_table(outcomes) if os.path.exists(outcomes) else {}), said


def judge_reports(said, known):
    """Reports of lint that no row of reports.tsv explains, and rows that always occur and did not.
    What a test did may be reported in the next one, when its objects go."""
    tests, problems, seen = ["", ""], [], set()
    for line in said.splitlines():
        if line.startswith("begins: "):
            tests = [tests[1], line.split()[1]]
        found = re.match(r"feroce: lint: ([a-z-]+): (.*)", line)
        if not found:
            continue
        rows = {(test, found[1]) for test in tests} & known.keys()
        seen |= rows
        if not rows:
            problems.append(f"{tests[1]}: lint: {found[1]}: {found[2]}")
    return problems + [f"{test}: lint reported no {kind}" for (test, kind), often in known.items()
                       if often == "always" and (test, kind) not in seen]


def read_reports(path):
    """How often each occurs, by test and kind."""
    with open(path, encoding="utf-8") as f:
        rows = [line.split("\t") for line in f if not line.startswith("#")]
    return {(test, kind): often for test, kind, often, _ in rows}


def compare(found, expected, reasons):
    """Sentences about everything that is not as it should be."""
    # Who may not reserve huge pages cannot run the tests that need them.
    excused = {test for test, (outcome, reason) in found.items()
               if outcome == "skip" and "huge pages" in reason and os.geteuid() != 0}
    problems = []
    for test in sorted(found.keys() - excused):
        outcome, reason = found[test]
        wanted = expected.get(test, ("nothing", ""))[0]
        if outcome != wanted:
            problems.append(f"{test}: {outcome} {reason}, expected {wanted}")
        elif outcome == "skip" and not any(reason.startswith(known) for known in reasons):
            problems.append(f"{test}: skipped for a reason nobody explained: {reason}")
    return problems + [f"{test}: did not run" for test in sorted(expected.keys() - found.keys())]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("feroce")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--lint", action="store_true")
    options = parser.parse_args()
    found, said = run(os.path.abspath(options.feroce), *(["--lint"] if options.lint else []))
    if options.update:
        with open(HERE / "expected.tsv", "w") as f:
            f.write("# Test, outcome, reason of a skip. Written by run.py --update.\n")
            for test in sorted(found):
                f.write("\t".join([test, *found[test]]).rstrip("\t") + "\n")
    problems = compare(found, read_table(HERE / "expected.tsv"), read_table(HERE / "reasons.tsv"))
    if options.lint:
        reports = read_reports(HERE / "reports.tsv")
        # A peer that has no receive in time fails or not, by chance.
        late = {test for test, kind in reports if kind == "no-receive"}
        problems = [p for p in problems if p.split(":")[0] not in late]
        problems += judge_reports(said, reports)
    passed = [test for test, (outcome, _) in found.items() if outcome == "ok"]
    generic = [test for test in passed if not test.startswith(("test_mlx5", "test_efa"))]
    print(f"{len(found)} tests, {len(passed)} ok ({len(generic)} generic), "
          f"{len(problems)} not as expected")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems or not found else 0)


if __name__ == "__main__":
    main()
