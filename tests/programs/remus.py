#!/usr/bin/env python3
"""Remus' own programs as a cluster of three on Feroce: remus.py BUILD REMUS.

Remus is in no distribution, so no stage runs this: REMUS is the build folder of a checkout of
sss-lehigh/remus-tutorial-2025, branch in_progress_code, with the programs that PROGRAMS names.
In a network of its own; nodes find each other by the names node0, node1, ... Exit status 1 if a
program fails, and what its nodes printed. On a machine with more work than processors one may: a
node is given up when it has not answered for 8 times 16 ms, which Remus asks for.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from own_network import enter_own_network  # noqa: E402  (found by the path above)

NODES, PATIENCE, PORT = 3, 120, 33330
# The first node has memory and computes, the others compute: one thread each, since they spin. A
# node with memory ends 3 s after all threads have arrived, also if one has not seen it yet.
CLUSTER = ("--seg-size 22 --segs-per-mn 2 --first-mn-id 0 --last-mn-id 0 --first-cn-id 0 "
           f"--last-cn-id {NODES - 1} --qp-lanes 2 --qp-sched-pol RR --cn-threads 1")
# Program, more arguments, what every node says at its end.
PROGRAMS = [
    ("rdma/root_test", "", "pass root test"),
    ("rdma/helloworld_test", "", "pass root test"),
    ("benchmark/lazy_list", "--num-ops 64 --key-ub 64", ""),
]


def name_nodes(folder):
    """node0, node1, ... are addresses of one interface, in a file that only this namespace sees."""
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" +
                     "".join(f"10.98.0.{node + 1} node{node}\n" for node in range(NODES)))
    commands = ["link add d0 type veth peer name d1", "link set d0 up", "link set d1 up",
                *(f"address add 10.98.0.{node + 1}/24 dev d0" for node in range(NODES))]
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    os.environ["FEROCE_DEVICES"] = "d0"


def end(node, deadline):
    """Its exit status, or that it did not end by itself."""
    try:
        return node.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()
        return "it did not end"


def run_cluster(feroce, program, words, port, folder):
    """What each node printed, and how it ended."""
    nodes = []
    for node in range(NODES):
        with open(folder / f"node{node}", "wb") as out:
            nodes.append(subprocess.Popen(
                [*feroce, program, *CLUSTER.split(), "--mn-port", str(port), "--node-id", str(node),
                 *words.split()], stdout=out, stderr=subprocess.STDOUT))
    deadline = time.monotonic() + PATIENCE
    statuses = [end(node, deadline) for node in nodes]
    return [((folder / f"node{node}").read_text(errors="replace"), status)
            for node, status in enumerate(statuses)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, remus = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    if not enter_own_network():
        return 77
    good = True
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        name_nodes(folder)
        for number, (program, words, last) in enumerate(PROGRAMS):
            begin = time.monotonic()
            nodes = run_cluster([build / "bin/feroce", "run", "--"], remus / program, words,
                                PORT + 10 * number, folder)
            passed = all(status == 0 and last in text for text, status in nodes)
            good = good and passed
            if not passed:
                for node, (text, status) in enumerate(nodes):
                    print(f"node {node} ended with {status}:\n{text[-3000:]}")
            print(f"{program}: {'passes' if passed else 'FAILS'}, {NODES} nodes, "
                  f"{time.monotonic() - begin:.1f} s", flush=True)
    return 0 if good else 1


sys.exit(main())
