#!/usr/bin/env python3
"""bpftrace reads our probes with the values that docs/watching.md promises, and the script of
tools/bpftrace runs: tracers_test.py FOLDER_OF_FEROCE. As root. Exit status 77: not here."""
import os
import re
import subprocess
import sys
import tempfile

from metrics_test import Programs, await_true, listens, running_pair
from own_network import enter_own_network

PATIENCE = 100
SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/bpftrace")
PORT = 18605
OPCODE_WRITE, WC_RDMA_WRITE, WC_SUCCESS = 0, 1, 0
SIZE = 8192  # Of running_pair.


class Tracer:
    """bpftrace in the folder of the libraries; it ends with the test."""

    def __init__(self, folder, feroce, *words):
        self.output = os.path.join(folder, "traced")
        self.complaints = os.path.join(folder, "complaints")
        library = os.path.join(os.path.dirname(feroce), "..", "lib")
        with open(self.output, "w", encoding="ascii") as out, \
                open(self.complaints, "w", encoding="ascii") as err:
            self.child = subprocess.Popen(["bpftrace", *words], stdout=out, stderr=err,
                                          cwd=os.path.realpath(library))

    def read(self):
        with open(self.output, encoding="ascii") as file:
            return file.read()

    def await_output(self, what, condition):
        def done():
            if self.child.poll() is not None:
                with open(self.complaints, encoding="ascii") as file:
                    raise AssertionError(f"bpftrace has ended: {file.read()}")
            return condition(self.read())
        await_true(what, done)
        return self.read()

    def end(self):
        self.child.kill()
        self.child.wait()


def traced(feroce, words, body):
    with tempfile.TemporaryDirectory() as folder:
        tracer = Tracer(folder, feroce, *words)
        try:
            return body(tracer)
        finally:
            tracer.end()


# A line each: the name of the probe, and its values.
PROBES = """
BEGIN { printf("begun\\n"); }
usdt:./libibverbs.so.1:feroce:post_send /@n[0]++ < 20/
    { printf("post_send %d %d %d %d\\n", arg0, arg1, arg2, arg3); }
usdt:./libibverbs.so.1:feroce:poll_cq /@n[1]++ < 20/
    { printf("poll_cq %d %d %d %d %d\\n", arg0, arg1, arg2, arg3, arg4); }
usdt:./libibverbs.so.1:feroce:pkt_tx /@n[2]++ < 20/
    { printf("pkt_tx %d %d %d %d\\n", arg0, arg1, arg2, arg3); }
usdt:./libibverbs.so.1:feroce:pkt_rx /@n[3]++ < 20/
    { printf("pkt_rx %d %d %d %d\\n", arg0, arg1, arg2, arg3); }
"""


def values_of(text, name):
    return [[int(word) for word in line.split()] for line in
            re.findall(rf"^{name} (.*)$", text, re.M)]


def test_values(feroce):
    with running_pair(feroce) as (_, client):
        qpn = qpn_of(feroce, client.pid)

        def body(tracer):
            return tracer.await_output("all four", lambda text: all(
                len(values_of(text, name)) >= 5
                for name in ("post_send", "poll_cq", "pkt_tx", "pkt_rx")))
        text = traced(feroce, ["-p", str(client.pid), "-e", PROBES], body)
    for source, opcode, size, _ in values_of(text, "post_send"):
        assert (source, opcode, size) == (qpn, OPCODE_WRITE, SIZE), text
    for source, opcode, size, _, status in values_of(text, "poll_cq"):
        assert (source, opcode, status) == (qpn, WC_RDMA_WRITE, WC_SUCCESS), text
    assert all(to != qpn and size >= 16 for to, _, size, _ in values_of(text, "pkt_tx")), text
    assert all(to == qpn and size >= 16 for to, _, size, _ in values_of(text, "pkt_rx")), text


def qpn_of(feroce, pid):
    told = subprocess.run([feroce, "res", "show", "qp"], capture_output=True, text=True, check=True)
    return next(int(line.split()[3], 16) for line in told.stdout.split("\n")
                if f" pid {pid} " in line)


def test_connections(feroce):
    """tools/bpftrace/cm_events.bt, beside rping."""
    programs = Programs(feroce)
    script = os.path.join(SCRIPTS, "cm_events.bt")

    def body(tracer):
        tracer.await_output("a heading", lambda text: "EVENT" in text)
        programs.start("rping", "-s", "-a", "127.0.0.1", "-p", str(PORT), "-C", "3",
                       stdout=subprocess.DEVNULL)
        client = ["rping", "-c", "-a", "127.0.0.1", "-p", str(PORT), "-C", "3"]
        await_true("a connection", lambda: programs.start(
            *client, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait(PATIENCE) == 0)
        return tracer.await_output("its end", lambda text: "DISCONNECTED" in text)
    try:
        text = traced(feroce, [script], body)
    finally:
        programs.end()
    lines = [line.split() for line in text.split("\n")[1:] if "rping" in line]
    assert {line[3] for line in lines} >= {"ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT_REQUEST",
                                           "ESTABLISHED", "DISCONNECTED"}, text
    asked = next(line for line in lines if line[3] == "ROUTE_RESOLVED")
    assert asked[4] == "0" and asked[-1] == f"127.0.0.1:{PORT}", text


def main():
    if os.geteuid() != 0 or not enter_own_network():
        return 77
    feroce = os.path.join(os.path.abspath(sys.argv[1]), "feroce")
    for test in test_values, test_connections:
        test(feroce)
        print(f"{test.__name__}: good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
