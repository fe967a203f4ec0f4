"""libiscsi's conformance suite, iscsi-test-cu, over two transports to the same disk.

Which tests pass is tgt's business; that they are the same over both is ours. The tests of a group
share a process, which saves most of the time; where the transports seem to differ, and where they
are known to, each test gets a process and a target of its own, since some bring libiscsi down.
"""
import pathlib
import re

from place import Place

HERE = pathlib.Path(__file__).resolve().parent
DIFFERENCES = HERE / "differences.txt"
TRANSPORTS = ("iscsi", "iser")
PROCESS_SECONDS = 60
# Over iSER libiscsi takes a second without an answer for an error: on a busy machine that happens.
ATTEMPTS = 3
# From the second session in a process on, libiscsi 1.19 takes memory for zeroed that is not; this
# makes it so. It also spoils freed memory, which libiscsi uses after a session's end, so programs
# with one session go without.
ZEROED = {"MALLOC_PERTURB_": "255"}
# A choice for every day: data in both directions, none at all, and an answer with sense.
QUICK = ("Inquiry.Standard", "Read10.Simple", "Read10.BeyondEol", "Write10.Simple",
         "WriteSame16.Simple", "Unmap.Simple")


def list_tests(place):
    """The names of all, Group.Test."""
    return re.findall(r"^ALL\.(\w+\.\w+)$", place.check("iscsi-test-cu", "--list"), re.M)


def run_program(place, tests, url):
    # Several paths to one disk are two sessions with it.
    urls = [url, url] if tests[0].startswith("MultipathIO.") else [url]
    names = ",".join(f"ALL.{test}" for test in tests)
    zeroing = Place({**place.environment, **ZEROED}, place.words, place.feroce)
    return zeroing.run("iscsi-test-cu", "--dataloss", "--allow-sanitize", "--test", names,
                       *urls, timeout=PROCESS_SECONDS)


def verdict(text):
    """How a test ended by what was printed from its name on; None if that does not say."""
    found = re.search(r"(?<!\[)\b(passed|FAILED)(?!\])", text)
    if found is None:
        return None
    if found.group(1) == "FAILED":
        return "fails"
    return "skips" if "[SKIPPED]" in text else "passes"


def run_together(place, tests, url):
    """Test to verdict, of those in one group that got one."""
    _, output = run_program(place, tests, url)
    group = tests[0].split(".")[0]
    parts = re.split(r"^  Test: (\w+) \.\.\.", output, flags=re.M)
    found = {f"{group}.{name}": verdict(text) for name, text in zip(parts[1::2], parts[2::2])}
    return {test: word for test, word in found.items() if word}


def run_alone(place, test, target, transport):
    """Verdict and output of a test in a process of its own."""
    status, output = run_program(place, [test], target.url(transport))
    if status is None or status < 0 or status > 128:
        target.restart()  # The dead initiator's session holds reservations and the disk.
        return "hangs" if status is None else "crashes", output
    parts = re.split(r"^  Test: \w+ \.\.\.", output, maxsplit=1, flags=re.M)
    return (len(parts) > 1 and verdict(parts[1])) or "stops", output


def read_differences(path=DIFFERENCES):
    """Test to the verdicts that are right over iSCSI and over iSER; `a or b` allows two."""
    known = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            test, iscsi, iser, cause = (part.strip() for part in line.split("|"))
            assert cause, line
            known[test] = (iscsi.split(" or "), iser.split(" or "))
    return known


class Comparison:
    def __init__(self, place, target):
        self.place = place
        self.target = target
        self.known = read_differences()
        self.problems = []
        self.counts = {}

    def is_right(self, test, pair):
        if test not in self.known:
            return pair[0] == pair[1]
        return all(word in right for word, right in zip(pair, self.known[test]))

    def note(self, test, pair):
        self.counts[pair] = self.counts.get(pair, 0) + 1
        over_iser = f", over iSER {pair[1]}" if pair[0] != pair[1] else ""
        print(f"{test}: {pair[0]}{over_iser}", flush=True)

    def compare_alone(self, test):
        for _ in range(ATTEMPTS):
            found = [run_alone(self.place, test, self.target, way) for way in TRANSPORTS]
            pair = tuple(word for word, _ in found)
            if self.is_right(test, pair):
                break
        else:
            self.problems.append(f"{test} {pair[0]} over iscsi:// and {pair[1]} over iser://, "
                                 f"which differences.txt does not say\n{found[1][1]}")
        self.note(test, pair)

    def compare_group(self, tests):
        plain = [test for test in tests if test not in self.known]
        found = [run_together(self.place, plain, self.target.url(way)) if plain else {}
                 for way in TRANSPORTS]
        for test in tests:
            pair = tuple(words.get(test) for words in found)
            if pair[0] is not None and pair[0] == pair[1]:
                self.note(test, pair)
            else:
                self.compare_alone(test)


def compare(place, target, tests):
    """Runs the tests over both transports; what is not as differences.txt says, in words."""
    comparison = Comparison(place, target)
    groups = {}
    for test in tests:
        groups.setdefault(test.split(".")[0], []).append(test)
    for group in groups.values():
        comparison.compare_group(group)
    for (iscsi, iser), count in sorted(comparison.counts.items()):
        print(f"{count} tests: over iscsi:// {iscsi}, over iser:// {iser}")
    return comparison.problems
