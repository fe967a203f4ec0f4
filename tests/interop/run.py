#!/usr/bin/env python3
"""Feroce on this machine against the Linux kernel's rxe in a QEMU guest.

run.py --build FOLDER --work FOLDER [--keep] [--suite SUITE] [NAME...]
Builds and boots the guest (see vm), compares rxe's queue pair table with ours, makes each wire
operation once and compares what both sides see, cuts an idle connection, holds sessions with the
kernel's RTRS and disks with its RNBD, runs clusters of the global address space on rxe and on both
devices, then unmodified programs in pairs, and storage over iSER: all in both directions, over IPv4
and IPv6, and tshark reads what was on the wire. Writes WORK/results.md. NAME runs only the pairs
whose name has that text (wireprobe, keep_alive, sessions, rnbd, gas, rcopy, iser and lossy are
such, and restarts is a part of rnbd); --keep leaves the guest up for the next run; --suite
backports takes the kernel from there, and the names zeroes and dmabuf run what needs it.
Needs root, and the packages of .ci/packages/interop*.txt.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import time

import clusters
import dma_buffer
import iser
import keep_alive
import lossy
import pairs
import probes
import qp_table
import rnbd
import rnbd_restarts
import rsockets
import sessions
import wire
from lab import ADDRESS, DEVICES, GUEST, HERE, TAP, Failure, Lab, Vm, require_host

GOLDEN = HERE.parent.parent / "src/transport/qp_state.golden"
# A pair whose capture shows a starved guest is tried once more, and the table says so; any other
# failure stands, and so does a silence that comes too often.
AGAIN_MAX = 4


def check_tables(lab, program):
    """rxe's table and, by the same program, ours; each against the golden one."""
    subprocess.run(["cp", program, GOLDEN, lab.vm.share], check=True)
    gid = {side: lab.gids[side]["IPv4"] for side in DEVICES}
    found = {
        "rxe": lab.vm.on_guest(
            f"/share/qp_table {DEVICES['rxe']} {gid['rxe']} /share/{GOLDEN.name}", 300),
        "feroce": lab.vm.on_host_output([str(program), DEVICES["feroce"], gid["feroce"],
                                           str(GOLDEN)]),
    }
    good = True
    for side, text in found.items():
        (lab.work / f"{side}.table").write_text(text)
        sentences, explained = qp_table.judge(side, GOLDEN, HERE / "expected_differences.txt",
                                              text.splitlines())
        print("\n".join(sentences), flush=True)
        good = good and explained
    return good


class Table:
    """The rows of results.md, and how often something failed or was tried again."""

    def __init__(self):
        self.rows = []
        self.failed = self.again = 0

    def add(self, what, client, family, report, problems, note=""):
        self.failed += 1 if problems else 0
        packets, repeated = (report.packets, report.repeated) if report else ("", "")
        result = ("FAILED" if problems else "ok") + note
        self.rows.append([what, client, family, packets, repeated, result])

    def write(self, path, minutes):
        lines = ["| what | client | family | packets | repeated | result |",
                 "|---|---|---|---|---|---|"]
        lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in self.rows]
        summary = (f"{len(self.rows)} rows, {self.failed} failed, {self.again} tried twice, "
                   f"{minutes:.1f} minutes")
        path.write_text("\n".join(lines) + f"\n\n{summary}\n")
        print(f"{summary}: {path}")

    def is_good(self):
        return self.failed == 0 and self.again <= AGAIN_MAX


def attempt(lab, program, client, family):
    """Runs one pair once: the report of its wire, and what was wrong."""
    label = f"{program.name}-{client}-client-{family}"
    capture = lab.work / "capture" / f"{label}.pcapng"
    began = time.monotonic()
    with wire.Capture(lab.vm.base, TAP, capture):
        problems = pairs.run(lab, program, client, family)
    report = wire.read(capture)
    problems += report.problems(program.is_one_way)
    seconds = time.monotonic() - began
    print(f"{'FAIL' if problems else 'ok  '} {label}: {report}, {seconds:.1f} s", flush=True)
    for problem in problems:
        print(problem, flush=True)
    if problems:
        shutil.copy(capture, capture.with_suffix(".failed.pcapng"))
    return report, problems


def run_pair(lab, table, program, client, family):
    report, problems = attempt(lab, program, client, family)
    note = ""
    who, seconds = report.longest_silence()
    if problems and seconds > wire.STALL_SECONDS:
        table.again += 1
        side = next(side for side in pairs.SIDES if who in ADDRESS[side].values())
        note = f" at the second try: {side} was silent for {seconds * 1000:.0f} ms at the first"
        report, problems = attempt(lab, program, client, family)
    table.add(program.title, client, family, report, problems, note)


def run_probes(lab, table):
    """wireprobe; one capture a direction."""
    probes.prepare(lab)
    rules = probes.read_rules()
    for family in pairs.BOTH:
        directions, reports = [], []
        for client in pairs.SIDES:
            capture = lab.work / "capture" / f"wireprobe-{client}-client-{family}.pcapng"
            with wire.Capture(lab.vm.base, TAP, capture):
                directions.append(probes.run(lab, client, family))
            reports.append(wire.read(capture))
        probes.judge(rules, directions)
        for direction, report in zip(directions, reports):
            for probe, problems in direction.problems.items():
                what = f"wireprobe {probe} {probes.MEANING.get(probe, '')}".rstrip()
                print("ok  " if not problems else "FAIL", what, direction.client, family,
                      *problems, flush=True)
                table.add(what, direction.client, family, None, problems)
            problems = report.problems(is_one_way=False)
            print(f"     wireprobe {direction.client} {family}: {report}", *problems, flush=True)
            table.add("wireprobe, the wire", direction.client, family, report, problems)
    for line in probes.unused(rules):
        print(line, flush=True)
        table.failed += 1


def run_clusters(lab, table):
    """The global address space on rxe, and on both devices at a time."""
    clusters.prepare(lab)
    for cluster in clusters.CLUSTERS:
        for family in pairs.BOTH:
            problems = clusters.run(lab, cluster, family)
            what = f"gas {cluster.name}, " + " and ".join(cluster.nodes)
            print("ok  " if not problems else "FAIL", what, family, *problems, flush=True)
            table.add(what, cluster.nodes[-1], family, None, problems)


def run_all(lab, chosen):
    began = time.monotonic()
    (lab.work / "capture").mkdir(exist_ok=True)
    table = Table()
    if not chosen or "wireprobe" in chosen:
        run_probes(lab, table)
    if not chosen or "keep_alive" in chosen:
        keep_alive.run(lab, table)
    if not chosen or "sessions" in chosen:
        sessions.run(lab, table)
    if not chosen or "rnbd" in chosen:
        rnbd.run(lab, table)
    if not chosen or "rnbd" in chosen or "restarts" in chosen:
        rnbd.run(lab, table, rnbd_restarts.CASES)
    if "zeroes" in chosen:
        rnbd.run(lab, table, rnbd.NEWER_CASES)
    if "dmabuf" in chosen:
        rnbd.run(lab, table, dma_buffer.CASES)
    if not chosen or "gas" in chosen:
        run_clusters(lab, table)
    for program in pairs.PROGRAMS:
        if chosen and not any(text in program.name for text in chosen):
            continue
        for family in program.families:
            for client in program.clients:
                run_pair(lab, table, program, client, family)
    if not chosen or "rcopy" in chosen:
        rsockets.run(lab, table)
    if not chosen or "iser" in chosen:
        iser.run(lab, table)
    if not chosen or "lossy" in chosen:
        lossy.run(lab, table)
    table.write(lab.work / "results.md", (time.monotonic() - began) / 60)
    return table.is_good()


def run(options):
    vm = Vm(options.work, options.build)
    if not vm.is_up():
        vm.call("down", "all")
        suite = [f"suite={options.suite}"] if options.suite else []
        print(vm.call("build", *suite, timeout=1800), flush=True)
        # 4200 carries a path MTU of 4096.
        print(vm.call("up", GUEST, "mtu=4200"), flush=True)
    try:
        # Both sides know each other's link address before a packet is timed.
        for address in ADDRESS["feroce"].values():
            vm.on_guest(f"ping -c 1 -W 5 {address}")
        lab = Lab(vm)
        program = options.build / "tests/interop/qp_table"
        tables_good = bool(options.names) or check_tables(lab, program)
        return run_all(lab, options.names) and tables_good
    finally:
        if not options.keep:
            vm.call("down", "all")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--suite")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    options.build, options.work = options.build.resolve(), options.work.resolve()
    require_host("interop")
    try:
        return 0 if run(options) else 1
    except (Failure, subprocess.TimeoutExpired) as failure:
        sys.exit(f"interop: {failure}")


if __name__ == "__main__":
    sys.exit(main())
