#!/usr/bin/env python3
"""Feroce on this machine against the Linux kernel's rxe in a QEMU guest.

run.py --build FOLDER --work FOLDER [--keep] [NAME...]
Builds and boots the guest (see vm), compares rxe's queue pair table with ours, then runs unmodified
programs in pairs, in both directions, over IPv4 and IPv6, and has tshark read what was on the wire.
Writes WORK/results.md. NAME runs only the pairs whose name has that text; --keep leaves the guest
up for the next run. Needs root, and the packages of .ci/packages/interop*.txt.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

import qp_table
import wire

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent.parent / "src/transport/qp_state.golden"
GUEST = "a"
TAP = "guest-a"
GUEST_ADDRESS = {"IPv4": "198.51.100.11", "IPv6": "2001:db8::11"}
HOST_ADDRESS = {"IPv4": "198.51.100.1", "IPv6": "2001:db8::1"}
DEVICES = {"feroce": "feroce_br0", "rxe": "rxe0"}
PAIR_SECONDS = 60
# A guest that stalls for half a second exhausts the retries of ibv_*_pingpong, whose timeout is
# fixed at 67 ms. So a failed pair is tried once more, but only so many may need it.
AGAIN_MAX = 6

# An emulated guest is scheduled away for longer than real hardware ever is: the programs get a
# QP timeout of 1 s (18) where they let one choose, and few iterations.
PERFTEST = "-u 18 -F -n {n} -m {mtu}"
PROGRAMS = [
    ("rc_pingpong", "ibv_rc_pingpong -n 20 -s 3001 -m 1024"),
    ("rc_pingpong_4096", "ibv_rc_pingpong -n 20 -s 9001 -m 4096"),
    ("uc_pingpong", "ibv_uc_pingpong -n 20 -s 3001 -m 1024"),
    ("ud_pingpong", "ibv_ud_pingpong -n 20 -s 1000"),
    ("srq_pingpong", "ibv_srq_pingpong -n 20 -s 3001 -m 1024 -q 4"),
    *[(f"{verb}_bw{suffix}", f"ib_{verb}_bw -s 16384 " + PERFTEST.format(n=20, mtu=mtu))
      for verb in ("send", "write", "read") for mtu, suffix in ((1024, ""), (4096, "_4096"))],
    *[(f"{verb}_lat", f"ib_{verb}_lat -s 64 " + PERFTEST.format(n=20, mtu=1024))
      for verb in ("send", "write", "read")],
    ("atomic_bw", "ib_atomic_bw " + PERFTEST.format(n=20, mtu=1024)),
    ("atomic_lat", "ib_atomic_lat -A CMP_AND_SWAP " + PERFTEST.format(n=20, mtu=1024)),
    ("write_bw_uc", "ib_write_bw -c UC -s 3001 " + PERFTEST.format(n=5, mtu=1024)),
    ("send_bw_ud", "ib_send_bw -c UD -s 1000 " + PERFTEST.format(n=5, mtu=1024)),
]
# Neither acknowledged nor answered: only one side ever sends.
ONE_WAY = ("write_bw_uc", "send_bw_ud")


class Failure(Exception):
    pass


class Vm:
    def __init__(self, work, build):
        self.base = [str(HERE / "vm"), "-w", str(work)]
        self.share = work / "guest" / GUEST / "share"
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(build / "lib"),
                                FEROCE_DEVICES="br0")

    def call(self, *words, timeout=400):
        result = subprocess.run([*self.base, *words], capture_output=True, text=True,
                                timeout=timeout, check=False)
        if result.returncode != 0:
            raise Failure(f"vm {' '.join(words)}: status {result.returncode}\n"
                          f"{result.stdout}{result.stderr}")
        return result.stdout.strip()

    def is_up(self):
        return subprocess.run([*self.base, "run", "-t", "10", GUEST, "true"], check=False,
                              capture_output=True).returncode == 0

    def on_guest(self, command):
        return self.call("run", "-t", str(PAIR_SECONDS), GUEST, command)

    def on_host(self, command):
        """A process of the host on its side of the private network, on Feroce."""
        return subprocess.Popen([*self.base, "ns", *command], env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def on_host_output(self, command):
        process = self.on_host(command)
        output, _ = process.communicate(timeout=PAIR_SECONDS)
        if process.returncode != 0:
            raise Failure(f"{' '.join(command)}: status {process.returncode}\n{output}")
        return output


class HostJob:
    def __init__(self, vm, command):
        self.process = vm.on_host(command.split())

    def finish(self, seconds):
        try:
            output, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, _ = self.process.communicate()
            return 124, output
        return self.process.returncode, output


class GuestJob:
    def __init__(self, vm, command):
        self.vm = vm
        self.job = vm.call("bg", GUEST, command)

    def finish(self, seconds):
        result = subprocess.run(
            [*self.vm.base, "wait", "-t", str(max(1, int(seconds))), GUEST, self.job],
            capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr


class Bench:
    """The booted guest and what is known about both devices."""

    def __init__(self, vm, work):
        self.vm = vm
        self.work = work
        self.port = 20000
        host = vm.on_host_output(["ibv_devinfo", "-v", "-d", DEVICES["feroce"]])
        guest = vm.on_guest(f"ibv_devinfo -v -d {DEVICES['rxe']}")
        self.gids = {"feroce": self.read_gids(host, HOST_ADDRESS),
                     "rxe": self.read_gids(guest, GUEST_ADDRESS)}

    @staticmethod
    def read_gids(text, addresses):
        """Address family to GID index."""
        found = {gid: index for index, gid in re.findall(r"GID\[\s*(\d+)\]:\s*([\w.:]+)", text)}
        return {"IPv4": found["::ffff:" + addresses["IPv4"]], "IPv6": found[addresses["IPv6"]]}

    def command(self, program, side, family, port):
        gid = "-x" if program.startswith("ib_") else "-g"
        return f"{program} -p {port} -d {DEVICES[side]} {gid} {self.gids[side][family]}"

    def wait_for_listener(self, side, port, job):
        """Servers say nothing when they are ready, but the kernel's table of sockets does."""
        test = f"grep -qi ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"
        deadline = time.monotonic() + PAIR_SECONDS
        if side == "rxe":
            self.vm.on_guest(f"for i in $(seq 200); do {test} && break; sleep 0.1; done")
            return
        while self.vm.on_host(["sh", "-c", test]).wait() != 0:
            if time.monotonic() > deadline or job.process.poll() is not None:
                return
            time.sleep(0.05)

    def run_pair(self, program, client, family):
        """Runs the program on both sides; the control connection is always IPv4."""
        server = "rxe" if client == "feroce" else "feroce"
        address = (GUEST_ADDRESS if server == "rxe" else HOST_ADDRESS)["IPv4"]
        start = {"feroce": HostJob, "rxe": GuestJob}
        self.port += 1
        jobs = {server: start[server](self.vm, self.command(program, server, family, self.port))}
        self.wait_for_listener(server, self.port, jobs[server])
        command = self.command(program, client, family, self.port) + " " + address
        jobs[client] = start[client](self.vm, command)
        deadline = time.monotonic() + PAIR_SECONDS
        problems = []
        for side in (client, server):
            status, output = jobs[side].finish(max(2, deadline - time.monotonic()))
            if status != 0:
                problems.append(f"{side} ended with status {status}:\n{output}")
        return problems


def check_tables(bench, program):
    """rxe's table and, by the same program, ours; each against the golden one."""
    subprocess.run(["cp", program, GOLDEN, bench.vm.share], check=True)
    gid = {side: bench.gids[side]["IPv4"] for side in DEVICES}
    found = {
        "rxe": bench.vm.call("run", "-t", "300", GUEST,
                             f"/share/qp_table {DEVICES['rxe']} {gid['rxe']} /share/{GOLDEN.name}"),
        "feroce": bench.vm.on_host_output([str(program), DEVICES["feroce"], gid["feroce"],
                                           str(GOLDEN)]),
    }
    good = True
    for side, text in found.items():
        (bench.work / f"{side}.table").write_text(text)
        sentences, explained = qp_table.judge(side, GOLDEN, HERE / "expected_differences.txt",
                                              text.splitlines())
        print("\n".join(sentences), flush=True)
        good = good and explained
    return good


def attempt(bench, name, program, client, family):
    """Runs one pair once: the report of its wire, and what was wrong."""
    label = f"{name}-{client}-client-{family}"
    capture = bench.work / "capture" / f"{label}.pcapng"
    began = time.monotonic()
    with wire.Capture(bench.vm.base, TAP, capture):
        problems = bench.run_pair(program, client, family)
    report = wire.read(capture)
    problems += report.problems(is_one_way=name in ONE_WAY)
    seconds = time.monotonic() - began
    print(f"{'ok  ' if not problems else 'FAIL'} {label}: {report}, {seconds:.1f} s", flush=True)
    for problem in problems:
        print(problem, flush=True)
    return report, problems


def run_pairs(bench, chosen):
    (bench.work / "capture").mkdir(exist_ok=True)
    rows = ["| program | client | family | packets | repeated | result |",
            "|---|---|---|---|---|---|"]
    failed = again = 0
    cases = [(name, program, client, family) for name, program in PROGRAMS
             for family in ("IPv4", "IPv6") for client in ("feroce", "rxe")
             if not chosen or any(text in name for text in chosen)]
    for name, program, client, family in cases:
        report, problems = attempt(bench, name, program, client, family)
        result = "ok"
        if problems:
            again += 1
            result = "ok at the second try"
            report, problems = attempt(bench, name, program, client, family)
        if problems:
            failed += 1
            result = "FAILED"
        cells = [program, client, family, str(report.packets), str(report.repeated), result]
        rows.append("| " + " | ".join(cells) + " |")
    (bench.work / "results.md").write_text("\n".join(rows) + "\n")
    print(f"{len(cases)} pairs, {failed} failed, {again} tried twice: {bench.work}/results.md")
    return failed == 0 and again <= AGAIN_MAX


def run(options):
    vm = Vm(options.work, options.build)
    if not vm.is_up():
        vm.call("down", "all")
        print(vm.call("build"), flush=True)
        # 4200 carries a path MTU of 4096.
        print(vm.call("up", GUEST, "mtu=4200"), flush=True)
    try:
        # Both sides know each other's link address before a packet is timed.
        for address in HOST_ADDRESS.values():
            vm.on_guest(f"ping -c 1 -W 5 {address}")
        bench = Bench(vm, options.work)
        program = options.build / "tests/interop/qp_table"
        tables_good = bool(options.names) or check_tables(bench, program)
        return run_pairs(bench, options.names) and tables_good
    finally:
        if not options.keep:
            vm.call("down", "all")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    options.build, options.work = options.build.resolve(), options.work.resolve()
    if os.geteuid() != 0:
        sys.exit("interop: needs root, to make a network namespace and a tap device")
    if not os.path.exists("/dev/net/tun"):
        sys.exit("interop: there is no /dev/net/tun, so the guest cannot have a network")
    try:
        return 0 if run(options) else 1
    except (Failure, subprocess.TimeoutExpired) as failure:
        sys.exit(f"interop: {failure}")


if __name__ == "__main__":
    sys.exit(main())
