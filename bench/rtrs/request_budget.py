#!/usr/bin/env python3
"""What a request over a session costs: instructions, locks, clock readings and system calls.

request_budget.py --build FOLDER [--json] [--wires rings,udp] [--verbs read,write]
                  [--depths 1,32,256] [--functions N]

Runs bench/request_budget under callgrind, both ends, and divides what was counted by the number of
requests. The ends take turns, so nothing is counted while one waits for the other, and figures
repeat to a hundredth whatever else the machine does. An instruction belongs to the room (folder of
src/) whose file it was compiled from; what comes from the C++ library's headers, to the room of the
function that it is in. A *lock* is an atomic read-modify-write: taking a lock is one, and so is
each count that threads share. What the kernel executes is not seen, nor what the device's own
thread does. Callgrind knows no AVX-512, so checksums are longer here than they are without it.
"""
import argparse
import collections
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "verbs"))
from run import environment  # noqa: E402

# Callgrind makes a program about 100 times slower, and neighbours on the machine more than that.
# What is done by time (a look for connection events every 20 us, say) is hardly seen then.
SLOWER = "1000"
ATOMIC = re.compile(r"\s(lock\s|xchg\s.*\(|(ldaxr|ldxr|cas|swp|ldadd|ldset|ldclr)\w*\s)")
NAMED = re.compile(r"(\w+)=\((\d+)\)(?: (.*))?$")
NO_CALLS = ("clock_gettime", "sched_getcpu")  # But for callgrind, which hides the kernel's page.
KINDS = ("instructions", "locks", "clock readings", "system calls")


@functools.lru_cache(None)
def atomics(binary):
    """Addresses of the instructions of a binary that read and write memory as one."""
    if not os.path.exists(binary):
        return frozenset()
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", binary], check=True,
                          capture_output=True, text=True).stdout
    lines = (line.split(":", 1) for line in text.splitlines() if ":\t" in line)
    return frozenset(int(at, 16) for at, what in lines if ATOMIC.search(what))


def own_room(path):
    found = re.search(r"/(?:src|include)/(?:feroce/)?(rtrs|gas|block)/", path)
    if found:
        return found.group(1)
    if "/include/feroce/" in path:
        return "rdma"
    found = re.search(r"/src/(\w+)/", path)
    return found.group(1) if found and "/bench/" not in path else None


def room_of(place):
    own = own_room(place["file"]) or own_room(place["home"])
    if own:
        return own
    if "isal" in place["binary"]:
        return "checksums (isal)"
    if re.search(r"mem(cpy|move|set|cmp)", place["function"]):
        return "copies (libc)"
    if "/bench/" in place["home"] or "slow_clock" in place["binary"]:
        return "benchmark"
    return "other libraries"


class Profile:
    """One file of callgrind's, read into (function, room) -> kind -> count."""

    def __init__(self, path):
        self.names = {}
        self.found = collections.defaultdict(collections.Counter)
        self.calls = []  # (room, function called, times)
        self.in_kernel = collections.Counter()  # Times, by function of the C library.
        self.read(path)
        called_at_all = collections.Counter()
        for _, called, times in self.calls:
            called_at_all[called] += times
        for room, called, times in self.calls:
            if room is None:
                continue
            if "steady_clock::now" in called or called.startswith("clock_gettime"):
                self.found[called, room]["clock readings"] += times
            elif self.in_kernel[called] and called not in NO_CALLS:
                # Not once a call: a thread that loses its turn looks as if it were in the kernel.
                share = min(1, self.in_kernel[called] / max(1, called_at_all[called]))
                self.found[called, room]["system calls"] += times * share

    def name(self, kind, number, text):
        space = {"cfn": "fn", "cob": "ob"}.get(kind, kind if kind in ("fn", "ob") else "fl")
        if text is not None:
            self.names[space, number] = text
        return self.names[space, number]

    def read(self, path):
        place = dict.fromkeys(("file", "home", "binary", "function"), "")
        called, times, at = "", None, 0
        for line in open(path, encoding="utf-8"):
            named = NAMED.match(line.rstrip("\n"))
            if named:
                kind, name = named.group(1), self.name(*named.groups())
                if kind in ("fl", "fi", "fe"):
                    place["file"] = name
                if kind == "fl":
                    place["home"] = name
                elif kind == "fn":
                    place["function"] = name
                elif kind == "ob":
                    place["binary"] = name
                elif kind == "cfn":
                    called = name
            elif line.startswith("calls="):
                times = int(line[6:].split()[0])
            elif line[0] in "0123456789+-*":
                words = line.split()
                at = self.address(words[0], at)
                if times is not None:  # The next line has the cost of what was called.
                    own = own_room(place["file"]) or own_room(place["home"])
                    self.calls.append((own, called, times))
                    times = None
                else:
                    self.count(place, at, [int(word) for word in words[2:]])

    @staticmethod
    def address(word, before):
        if word == "*":
            return before
        return before + int(word, 0) if word[0] in "+-" else int(word, 0)

    def count(self, place, at, costs):
        kinds = self.found[place["function"], room_of(place)]
        kinds["instructions"] += costs[0]
        if at in atomics(place["binary"]):
            kinds["locks"] += costs[0]
        if len(costs) > 1 and "/libc." in place["binary"]:
            self.in_kernel[place["function"]] += costs[1]


class Measure:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder

    def program(self, name):
        return os.path.join(self.build, "bench", name)

    def run(self, wire, verb, depth):
        """Per end: (function, room) -> kind -> count a request."""
        env = dict(environment(self.build), FEROCE_SLOW_CLOCK=SLOWER,
                   LD_PRELOAD=self.program("slow_clock.so"),
                   FEROCE_SAMEHOST="off" if wire == "udp" else "on")
        out = os.path.join(self.folder, f"{wire}-{verb}-{depth}")
        os.mkdir(out)
        command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}/%p",
                   "--dump-instr=yes", "--collect-systime=yes", "--collect-atstart=no",
                   "--toggle-collect=counted_turn", "--zero-before=counting_begins",
                   "--dump-before=counting_ends", self.program("request_budget"),
                   verb, "4096", str(depth), "1"]
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True,
                              timeout=600)
        told = json.loads(done.stdout)
        ends = {"server": f"{told['server']}.1", "client": f"{told['client']}.1"}
        found = {"turns": told["turns"] * depth / told["requests"]}
        for end, name in ends.items():
            counts = Profile(os.path.join(out, name)).found
            found[end] = {key: {kind: value / told["requests"] for kind, value in kinds.items()}
                          for key, kinds in counts.items()}
        return found


def by_room(end, kind):
    rooms = collections.Counter()
    for (_, room), kinds in end.items():
        rooms[room] += kinds.get(kind, 0)
    return rooms


def cell(value, kind):
    return f"{value:,.0f}" if kind == "instructions" else f"{value:.2f}"


def print_table(wire, runs):
    """Rows are rooms, columns shapes; a cell is the client's part + the server's."""
    shapes = list(runs)
    print(f"| by {wire}: client + server | " + " | ".join(f"{v} {d}" for v, d in shapes) + " |")
    print("|---" * (len(shapes) + 1) + "|")
    for kind in KINDS:
        sums = {shape: [by_room(runs[shape][end], kind) for end in ("client", "server")]
                for shape in shapes}
        whole = [" + ".join(cell(sum(end.values()), kind) for end in sums[s]) for s in shapes]
        print(f"| **{kind}** | " + " | ".join(f"**{text}**" for text in whole) + " |")
        rooms = collections.Counter()
        for client, server in sums.values():
            rooms.update(client + server)
        for room, weight in rooms.most_common():
            if weight < (20 if kind == "instructions" else 0.1):
                continue
            cells = (" + ".join(cell(end[room], kind) for end in sums[s]) for s in shapes)
            print(f"| {room} | " + " | ".join(cells) + " |")
    print()


def print_functions(wire, runs, most):
    for (verb, depth), run in runs.items():
        for end in ("client", "server"):
            print(f"{wire}, {verb}, depth {depth}, {end} ({run['turns']:.2f} turns a round):")
            functions = collections.defaultdict(collections.Counter)
            for (function, _), kinds in run[end].items():
                functions[function].update(kinds)
            ranked = sorted(functions.items(), key=lambda item: -item[1]["instructions"])
            for function, kinds in ranked[:most]:
                print(f"  {kinds['instructions']:8.1f} {kinds['locks']:5.2f}  {function[:150]}")
            for function, kinds in ranked:
                if kinds["clock readings"] or kinds["system calls"]:
                    calls = kinds["clock readings"] + kinds["system calls"]
                    print(f"  {calls:8.2f} calls  {function[:80]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--wires", default="rings,udp")
    parser.add_argument("--verbs", default="read,write")
    parser.add_argument("--depths", default="1,32,256")
    parser.add_argument("--functions", type=int, default=0, help="the dearest N of each end")
    arguments = parser.parse_args()
    shapes = [(verb, int(depth)) for verb in arguments.verbs.split(",")
              for depth in arguments.depths.split(",")]
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        measure = Measure(os.path.abspath(arguments.build), folder)
        for wire in arguments.wires.split(","):
            runs = {shape: measure.run(wire, *shape) for shape in shapes}
            for (verb, depth), run in runs.items():
                for end in ("client", "server"):
                    figures[f"{wire}, {verb}, depth {depth}, {end}"] = {
                        kind: dict(by_room(run[end], kind)) for kind in KINDS}
            if not arguments.json:
                print_table(wire, runs)
            if arguments.functions:
                print_functions(wire, runs, arguments.functions)
    if arguments.json:
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
