#!/usr/bin/env python3
"""Which public programs run unmodified: run.py BUILD [--write docs/programs.md] [NAME...].
Programs that other tests run are asked of ctest; the rest runs here, server and client on one
address in a network of its own. A row for each; exit status 1 if one failed."""
import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
from own_network import enter_own_network  # noqa: E402

PATIENCE = 120
ADDRESS = "10.98.0.1"
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
        failed = sorted(name for name, status in results.items() if status == "fail")
        passed = sum(1 for status in results.values() if status == "run")
        if failed:
            return False, "failed: " + ", ".join(failed)
        if passed == 0:
            return False, "no test ran"
        return True, f"{passed} tests"


class Pairs:
    """Commands in pairs. A server is ready when it listens, which the client finds out by trying
    until `PATIENCE` is over: programs differ in what they say."""

    def __init__(self, *pairs, success=""):
        self.pairs = pairs
        self.success = success  # What a client that did its work prints.

    def run(self, build):
        feroce = os.path.join(build, "bin", "feroce")
        for server, client in self.pairs:
            why = self.run_pair([feroce, "run", "--"], server, client)
            if why:
                return False, why
        return True, f"{len(self.pairs)} runs"

    def run_pair(self, launcher, server, client):
        words = {"address": ADDRESS, "here": HERE}
        command = client.format(**words)
        deadline = time.monotonic() + PATIENCE
        why = f"failed: {command}"
        while time.monotonic() < deadline:
            with subprocess.Popen([*launcher, *server.format(**words).split()],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as peer:
                why = self.try_client([*launcher, *command.split()], peer, deadline)
                peer.kill()
            if not why or why.startswith("does not end"):
                return why
        return why

    def try_client(self, command, peer, deadline):
        """Empty: it did its work. A server that is not there yet refuses it."""
        attempts = time.monotonic() + 10
        while time.monotonic() < min(attempts, deadline):
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False,
                                      timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                return "does not end: " + " ".join(command[3:])
            # Some end with 0 although they were refused.
            if done.returncode == 0 and re.search(self.success, done.stdout + done.stderr):
                return ""
            if peer.poll() is not None:
                break  # It served one client, and that one failed.
            time.sleep(0.1)
        return "failed: " + " ".join(command[3:])




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
    ("rsockets' examples", "rdmacm-utils", "rstream, riostream; programs under librspreload",
     Tests(r"^rsocket\.(rstream|riostream|programs|udpong)")),
    ("UCX", "ucx-utils", "ucx_perftest over rc_verbs and ud_verbs", Tests(r"^abi\.ucx_")),
    ("libfabric", "libfabric-bin", "fi_pingpong: verbs msg and dgram, verbs;ofi_rxm",
     Pairs(fabric("verbs", "msg"), fabric("verbs", "dgram"), fabric("verbs;ofi_rxm", "rdm"),
           success=r"64 +100")),
    ("qperf", "qperf",
     "RC by rdma_cm: " + ", ".join(QPERF) + ". UC and UD know no GRH, which RoCE needs: refused, "
     "as by every RoCE device",
     Pairs(*(("qperf", f"qperf -cm1 -t 1 {{address}} {test}") for test in QPERF), success="=")),
    ("Open MPI", "openmpi-bin", "an all-to-all over UCX rc, checked", Tests(r"^abi\.mpi$")),
    ("MPICH, Slurm", "mpich", "mpiexec and srun start clusters of gas", Tests(r"^gas\.launcher_")),
    ("fio", "fio", "ioengine rdma: 4 MiB by WRITE and by READ",
     Pairs(("fio {here}/receive.fio", "fio {here}/write.fio"),
           ("fio {here}/receive.fio", "fio {here}/read.fio"),
           success=r"err= 0")),
    ("nbdkit, libnbd, qemu-img", "nbdkit",
     "nbdinfo, nbdcopy and qemu-img on a disk of feroce attach",
     Tests(r"^block\.(info|copies)$")),
]


def version_of(package):
    asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True,
                           text=True, check=False)
    return asked.stdout if asked.returncode == 0 else ""


def make_interface():
    """libfabric takes no loopback interface."""
    for command in ("ip link add d0 type veth peer name d1", "ip link set d0 addrgenmode none up",
                    "ip link set d1 addrgenmode none up", f"ip addr add {ADDRESS}/24 dev d0"):
        subprocess.run(command.split(), check=True)
    os.environ["FEROCE_DEVICES"] = "d0"
    os.environ["FEROCE_TEST_ADDRESS"] = ADDRESS


def run_row(build, row):
    name, package, what, how = row
    version = version_of(package)
    if not version:
        return False, f"| {name} | not installed | {what} | not run |"
    passed, detail = how.run(build)
    result = f"passes ({detail})" if passed else detail
    return passed, f"| {name} | {version} | {what} | {result} |"


def write_table(path, lines):
    with open(path, encoding="utf-8") as page:
        text = page.read()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    table = [f"Debian {release()}, {platform.machine()}:", "",
             "| Program | Version | What was run | Result |", "|---|---|---|---|", *lines]
    with open(path, "w", encoding="utf-8") as page:
        page.write(head + BEGIN + "\n" + "\n".join(table) + "\n" + END + tail)


def release():
    with open("/etc/debian_version", encoding="utf-8") as file:
        return file.read().strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--write")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    known = [row[0] for row in ROWS]
    for name in options.names:
        if name not in known:
            sys.exit(f"there is no row {name}; there are: {', '.join(known)}")
    if not enter_own_network():
        return 77
    make_interface()
    lines, failed = [], []
    for row in ROWS:
        if options.names and row[0] not in options.names:
            continue
        passed, line = run_row(os.path.abspath(options.build), row)
        print(line, flush=True)
        lines.append(line)
        if not passed:
            failed.append(row[0])
    if options.write and not options.names:
        write_table(options.write, lines)
    if failed:
        sys.exit("do not run: " + ", ".join(failed))
    return 0


sys.exit(main())
