#!/usr/bin/env python3
"""Which public programs run unmodified: run.py BUILD [--write docs/programs.md] [NAME...].
Programs that other tests run are asked of ctest; the rest runs here, server and client on one
address in a network of its own. A row for each; exit status 1 if one failed, or if docs/programs.md
has other rows. --write writes the rows there; with names only theirs."""
import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cli"), os.path.join(HERE, "..", "abi")]
from own_network import enter_own_network  # noqa: E402
from run_pair import listening  # noqa: E402

PATIENCE = 120
ADDRESS = "10.98.0.1"
REFUSED = "RDMA_CM_EVENT_REJECTED"  # fio's word.
PAGE = os.path.join(HERE, "..", "..", "docs", "programs.md")
BEGIN, END = "<!-- written by tests/programs/run.py -->", "<!-- end -->"


class Tests:
    """Tests of ctest that run the program."""

    def __init__(self, pattern):
        self.pattern = pattern

    def run(self, build):
        with tempfile.NamedTemporaryFile(suffix=".xml") as report:
            subprocess.run(["ctest", "--test-dir", build, "-R", self.pattern, "--output-junit",
                            report.name], stdout=subprocess.DEVNULL, check=False)
            suite = ElementTree.parse(report.name).getroot()
        results = {case.get("name"): case.get("status") for case in suite.iter("testcase")}
        passed = [name for name, status in results.items() if status == "run"]
        failed = sorted(name for name, status in results.items() if status == "fail")
        others = sorted(results.keys() - {*passed, *failed})
        if failed:
            return False, "failed: " + ", ".join(failed)
        if not passed:
            return False, "no test ran"
        return True, counted(passed, "test") + "".join(f", {name} skipped" for name in others)


def counted(things, noun):
    return f"{len(things)} {noun}" + ("" if len(things) == 1 else "s")


class Pairs:
    """Commands in pairs: the server, and when it listens, one try of the client."""

    def __init__(self, *pairs, success, port=None, ends=True):
        self.pairs = pairs
        self.success = success  # What a client that did its work prints: some end with 0 without.
        self.port = port  # None: it listens by rdma_cm, which no table of the system shows.
        self.ends = ends  # Whether the server ends after one client.

    def run(self, build):
        feroce = os.path.join(build, "bin", "feroce")
        for server, client in self.pairs:
            why = self.run_pair([feroce, "run", "--"], server, client)
            if why:
                return False, why
        return True, counted(self.pairs, "run")

    def run_pair(self, launcher, server, client):
        """Why it failed, or nothing."""
        words = {"address": ADDRESS, "here": HERE}
        server, client = server.format(**words), client.format(**words)
        deadline = time.monotonic() + PATIENCE
        if self.port and not wait_until(lambda: not listening(self.port), deadline):
            return f"failed: port {self.port} is taken before {server}"
        with subprocess.Popen([*launcher, *server.split()], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True) as peer:
            try:
                return self.run_client([*launcher, *client.split()], peer, deadline)
            except subprocess.TimeoutExpired as expired:
                return "does not end: " + " ".join(expired.cmd[len(launcher):])
            finally:
                end_group(peer)

    def run_client(self, command, peer, deadline):
        if self.port and not wait_until(lambda: listening(self.port), deadline, peer):
            return "does not listen: " + " ".join(peer.args[3:])
        done = self.try_client(command, peer, deadline)
        said = done.stdout + done.stderr
        if done.returncode != 0 or not re.search(self.success, said):
            print(said, file=sys.stderr)
            return "failed: " + " ".join(command[3:])
        if self.ends and peer.wait(max(0.1, deadline - time.monotonic())) != 0:
            return "failed: " + " ".join(peer.args[3:])
        return ""

    def try_client(self, command, peer, deadline):
        """Once; again only if nobody listened by rdma_cm yet."""
        while True:
            left = max(0.1, deadline - time.monotonic())
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  timeout=left)
            refused = self.port is None and REFUSED in done.stdout + done.stderr
            if not refused or peer.poll() is not None or time.monotonic() > deadline:
                return done
            time.sleep(0.1)


class Built(Pairs):
    """A library of Debian's: a small program on it, compiled first. {folder} is one of its own."""

    def __init__(self, compile_command, server, client, success):
        super().__init__((server, client), success=success)
        self.compile_command = compile_command

    def run(self, build):
        with tempfile.TemporaryDirectory() as folder:
            words = {"folder": folder, "here": HERE, "address": ADDRESS}
            made = subprocess.run(self.compile_command.format(**words).split(), check=False,
                                  capture_output=True, text=True)
            if made.returncode != 0:
                print(made.stderr, file=sys.stderr)
                return False, "does not compile"
            pairs, self.pairs = self.pairs, [[part.format(**words) for part in self.pairs[0]]]
            try:
                return super().run(build)
            finally:
                self.pairs = pairs


def wait_until(condition, deadline, process=None):
    """Whether it holds before the deadline, and before the process ends."""
    while not condition():
        if time.monotonic() > deadline or (process and process.poll() is not None):
            return False
        time.sleep(0.02)
    return True


def end_group(process):
    """With what it started: a server may have a process for each client."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def fabric(provider, kind):
    server = f"fi_pingpong -p {provider} -e {kind} -I 100"
    return server, server + " {address}"


QPERF = ("rc_bw", "rc_lat", "rc_rdma_write_bw", "rc_rdma_write_lat", "rc_rdma_write_poll_lat",
         "rc_rdma_read_bw", "rc_rdma_read_lat", "rc_compare_swap_mr", "rc_fetch_add_mr")

# Program, Debian's package, what was run, how.
ROWS = [
    ("perftest", "perftest",
     "ib_send, ib_write, ib_read and ib_atomic, bandwidth and latency: RC, UC, UD; up to 16 queue "
     "pairs, both ways, events, inline, shared receive queue; by sockets and by rdma_cm",
     Tests(r"^(abi|rdmacm)\.(send|write|read|atomic)_(bw|lat)")),
    ("libibverbs' examples", "ibverbs-utils",
     "ibv_rc, uc, ud and srq_pingpong, with events, ODP, the newer posting calls, IPv6 and under "
     "Valgrind", Tests(r"^abi\.(rc|uc|ud|srq)_pingpong")),
    ("librdmacm's examples", "rdmacm-utils",
     "rping, ucmatose, udaddy, mckey, cmtime, rdma_client and rdma_server",
     Tests(r"^rdmacm\.(rping|ucmatose|udaddy|mckey|cmtime|endpoints)")),
    ("rsockets' examples", "rdmacm-utils",
     "rstream, riostream, rcopy, udpong; under librspreload Python's HTTP server, urllib, curl, nc "
     "and iperf3",
     Tests(r"^rsocket\.(rstream|riostream|programs|udpong)")),
    ("UCX", "ucx-utils", "ucx_perftest over rc_verbs and ud_verbs", Tests(r"^abi\.ucx_")),
    ("libfabric", "libfabric-bin", "fi_pingpong: verbs msg and dgram, verbs;ofi_rxm",
     Pairs(fabric("verbs", "msg"), fabric("verbs", "dgram"), fabric("verbs;ofi_rxm", "rdm"),
           success=r"64 +100", port=47592)),
    ("qperf", "qperf",
     "RC by rdma_cm: " + ", ".join(QPERF) + ". UC and UD know no GRH, which RoCE needs: refused, "
     "as by every RoCE device",
     Pairs(*(("qperf", f"qperf -cm1 -t 1 {{address}} {test}") for test in QPERF), success="=",
           port=19765, ends=False)),
    ("Open MPI", "openmpi-bin", "an all-to-all over UCX rc, checked", Tests(r"^abi\.mpi$")),
    ("MPICH, Slurm", "mpich", "mpiexec and srun start clusters of gas", Tests(r"^gas\.launcher_")),
    ("fio", "fio", "ioengine rdma: 4 MiB by WRITE and by READ",
     Pairs(("fio {here}/receive.fio", "fio {here}/write.fio"),
           ("fio {here}/receive.fio", "fio {here}/read.fio"),
           success=r"err= 0")),
    ("librpma", "librpma-dev",
     "a server and a client on it: connect, write, flush and read back 64 KiB, checked",
     Built("cc -Wall -Wextra -o {folder}/rpma_pair {here}/rpma_pair.c -lrpma -libverbs",
           "{folder}/rpma_pair {address}", "{folder}/rpma_pair {address} client",
           success="read back")),
    ("gloo", "libgloo-dev",
     "two processes on its ibverbs transport: sums of up to 1,000,000 floats by two of its rings, "
     "checked",
     Built("c++ -std=c++17 -Wall -o {folder}/gloo_pair {here}/gloo_pair.cpp -lgloo",
           "{folder}/gloo_pair {folder} 0", "{folder}/gloo_pair {folder} 1",
           success="every sum is right")),
    ("libnbd, qemu-img", "libnbd-bin",
     "nbdinfo, nbdcopy and qemu-img on a disk of feroce attach",
     Tests(r"^block\.(info|copies)$")),
]


def version_of(package):
    asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True,
                           text=True, check=False)
    return asked.stdout if asked.returncode == 0 else ""


def make_interface():
    """libfabric takes no loopback interface. Beside an interface that has IPv4 only, getaddrinfo
    gives rping no IPv6 address, not even loopback's."""
    for command in ("ip link add d0 type veth peer name d1", "ip link set d0 addrgenmode none up",
                    "ip link set d1 addrgenmode none up", f"ip addr add {ADDRESS}/24 dev d0",
                    "ip addr add fd98::1/64 dev d0 nodad"):
        subprocess.run(command.split(), check=True)
    os.environ["FEROCE_DEVICES"] = "d0"
    os.environ["FEROCE_TEST_ADDRESS"] = ADDRESS


def run_row(build, row):
    name, package, what, how = row
    version = version_of(package)
    if not version:
        return False, f"| {name} | not installed | {what} | not run | |"
    passed, detail = how.run(build)
    result = f"passes ({detail})" if passed else detail
    return passed, f"| {name} | {version} | {what} | {result} | {platform.machine()} |"


def read_page(path):
    """What is before the table, its rows by program, and what is after it."""
    with open(path, encoding="utf-8") as page:
        head, rest = page.read().split(BEGIN)
    table, tail = rest.split(END)
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return head, {line.split(" | ")[0][2:]: line for line in lines}, tail


def with_machines(line, before):
    """The row, and the machines on which it was seen before with this version and result."""
    cells, known = line.split(" | "), before.split(" | ")
    if known[1:-1] == cells[1:-1]:
        machines = {*cells[-1].strip(" |").split(", "), *known[-1].strip(" |").split(", ")}
        cells[-1] = ", ".join(sorted(machines)) + " |"
    return " | ".join(cells)


def write_table(path, lines):
    """Rows that were not run stay as they are."""
    head, rows, tail = read_page(path)
    rows.update({name: with_machines(line, rows.get(name, "")) for name, line in lines.items()})
    table = [f"Debian {release()}:", "",
             "| Program | Version | What was run | Result | Seen on |", "|---|---|---|---|---|",
             *(rows[row[0]] for row in ROWS if row[0] in rows)]
    with open(path, "w", encoding="utf-8") as page:
        page.write(head + BEGIN + "\n" + "\n".join(table) + "\n" + END + tail)


def page_differs():
    """A sentence if the page does not list the programs and runs of ROWS."""
    there = {name: line.split(" | ")[2] for name, line in read_page(PAGE)[1].items()}
    here = {name: what for name, _, what, _ in ROWS}
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    return f"docs/programs.md has other rows: {', '.join(names)}; --write it" if names else ""


def release():
    with open("/etc/debian_version", encoding="utf-8") as file:
        return file.read().strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--write")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()  # Names after --write too.
    known = [row[0] for row in ROWS]
    for name in options.names:
        if name not in known:
            sys.exit(f"there is no row {name}; there are: {', '.join(known)}")
    if not enter_own_network():
        return 77
    make_interface()
    lines, failed = {}, []
    for row in ROWS:
        if options.names and row[0] not in options.names:
            continue
        passed, lines[row[0]] = run_row(os.path.abspath(options.build), row)
        print(lines[row[0]], flush=True)
        if not passed:
            failed.append(row[0])
    if options.write:
        write_table(options.write, lines)
    wrong = ["do not run: " + ", ".join(failed)] if failed else []
    if not options.write and page_differs():
        wrong.append(page_differs())
    return "\n".join(wrong) or 0


sys.exit(main())
