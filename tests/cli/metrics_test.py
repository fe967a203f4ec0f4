#!/usr/bin/env python3
"""`feroce metrics` beside real programs, read by Prometheus' own parsers:
metrics_test.py NAME FOLDER_OF_FEROCE. Exit status 77: not here."""
import contextlib
import os
import subprocess
import sys
import time

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

PATIENCE = 30
DEVICE = {"device": "feroce_lo", "port": "1"}


class Metrics:
    """What one look gave, parsed: families by name, and values by sample name and labels."""

    def __init__(self, text, form="openmetrics"):
        parse = (openmetrics_parser if form == "openmetrics" else parser)
        self.families = {f.name: f for f in parse.text_string_to_metric_families(text)}
        self.samples = [s for f in self.families.values() for s in f.samples]

    def all(self, name, **labels):
        return [s for s in self.samples
                if s.name == name and labels.items() <= s.labels.items()]

    def value(self, name, **labels):
        found = self.all(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {found}"
        return found[0].value

    def sum(self, name, **labels):
        return sum(s.value for s in self.all(name, **labels))


class Programs:
    """Programs that end with the test."""

    def __init__(self, feroce):
        self.feroce = feroce
        self.running = []

    def start(self, *words, **options):
        child = subprocess.Popen([self.feroce, "run", "--", *words], **options)
        self.running.append(child)
        return child

    def end(self):
        for child in self.running:
            child.kill()
            child.wait()


def look(feroce, *options):
    done = subprocess.run([feroce, "metrics", *options], capture_output=True, text=True,
                          timeout=PATIENCE, check=True)
    assert done.stderr == "", done.stderr
    return done.stdout


def await_true(what, condition):
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, f"waited in vain: {what}"
        time.sleep(0.02)


def listens(port):
    with open("/proc/net/tcp", encoding="ascii") as v4, \
            open("/proc/net/tcp6", encoding="ascii") as v6:
        return any(f":{port:04X} " in line and " 0A " in line for line in [*v4, *v6])


@contextlib.contextmanager
def running_pair(feroce):
    """ib_write_bw, both ends, which goes on until the test ends it."""
    programs = Programs(feroce)
    words = ["ib_write_bw", "-d", "feroce_lo", "-p", "18600", "-s", "8192", "--run_infinitely"]
    try:
        server = programs.start(*words, stdout=subprocess.DEVNULL)
        await_true("the server listens", lambda: listens(18600))
        client = programs.start(*words, "127.0.0.1", stdout=subprocess.DEVNULL)
        await_true("data flow", lambda: sent_by(feroce, client.pid) > 1_000_000)
        yield server, client
    finally:
        programs.end()


def sent_by(feroce, pid):
    return Metrics(look(feroce)).sum("feroce_process_sent_bytes_total", pid=str(pid))


def check_pair(metrics, server, client):
    moved = metrics.value("node_infiniband_port_data_transmitted_bytes_total", **DEVICE)
    assert moved > 1_000_000
    assert metrics.value("node_infiniband_port_packets_transmitted_total", **DEVICE) == \
        metrics.value("rdma_sent_pkts_total", **DEVICE) > 100
    assert moved == metrics.sum("feroce_process_sent_bytes_total")
    assert {s.labels["pid"] for s in metrics.all("feroce_process_queue_pairs")} == \
        {str(server.pid), str(client.pid)}
    assert metrics.value("feroce_process_sent_bytes_total", pid=str(client.pid),
                         command="ib_write_bw") > 1_000_000
    assert metrics.sum("feroce_queue_pairs", device="feroce_lo", type="RC") == 2
    assert metrics.value("feroce_processes") == 2
    assert metrics.value("feroce_objects", device="feroce_lo", kind="ctx") == 2
    assert metrics.value("node_infiniband_state_id", **DEVICE) == 4
    assert metrics.value("node_infiniband_info", device="feroce_lo", hca_type="feroce") == 1
    assert metrics.value("rdma_port_info", netdev="lo", link_layer="Ethernet") == 1
    causes = {s.labels["cause"] for s in metrics.all("feroce_retransmitted_packets_total")}
    assert causes == {"timeout", "probe", "nak_seq", "rnr", "lost_response"}, causes
    assert metrics.sum("feroce_errors_total") == 0


def test_pair(feroce):
    with running_pair(feroce) as (server, client):
        text = look(feroce)
        assert text.endswith("# EOF\n")
        metrics = Metrics(text)
        assert metrics.families["node_infiniband_port_data_received_bytes"].unit == "bytes"
        check_pair(metrics, server, client)
        check_pair(Metrics(look(feroce, "--format", "text"), "text"), server, client)
        few = Metrics(look(feroce, "--processes", "1", "--qps", "1"))
        assert {s.labels["pid"] for s in few.all("feroce_process_sent_bytes_total")} == \
            {str(min(server.pid, client.pid)), "other"}
        assert few.sum("feroce_process_sent_bytes_total") > 1_000_000
        assert len(few.all("feroce_qp_sent_packets_total")) == 1
        assert len(metrics.all("feroce_qp_sent_packets_total")) == 0
    # Nobody is there: the devices still are, and their counters begin at zero.
    metrics = Metrics(look(feroce))
    assert metrics.value("feroce_processes") == 0
    assert metrics.value("rdma_sent_pkts_total", **DEVICE) == 0


def test_errors(feroce):
    programs = Programs(feroce)
    failing = os.path.join(os.path.dirname(feroce), "bad_access")
    try:
        child = programs.start(failing, "--wait", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout.readline(), "it says how its work request ended"
        metrics = Metrics(look(feroce))
        errors = metrics.all("feroce_errors_total")
        assert len(errors) == 1, errors
        assert errors[0].labels == {**DEVICE, "status": "IBV_WC_REM_ACCESS_ERR",
                                    "reason": "peer_refused"}
        assert errors[0].value == 1
        assert metrics.value("feroce_refusals_total", reason="remote_key",
                             status="IBV_WC_REM_ACCESS_ERR") == 1
        assert metrics.value("node_infiniband_req_remote_access_errors_total", **DEVICE) == 1
        assert metrics.value("rdma_req_cqe_error_total", **DEVICE) == 1
        assert metrics.sum("feroce_queue_pairs", state="ERR") == 2
        assert metrics.value("feroce_process_errors_total", pid=str(child.pid)) == 1
    finally:
        programs.end()


def enter_own_network():
    if "FEROCE_METRICS_TEST" in os.environ:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return True
    os.environ["FEROCE_METRICS_TEST"] = "inside"
    options = ["-nm"] if os.geteuid() == 0 else ["-rnm"]
    if subprocess.run(["unshare", *options, "true"], check=False).returncode != 0:
        print("no namespaces can be made here")
        return False
    os.execvp("unshare", ["unshare", *options, sys.executable, *sys.argv])


def main():
    name, folder = sys.argv[1:]
    if not enter_own_network():
        return 77
    globals()[f"test_{name}"](os.path.join(os.path.abspath(folder), "feroce"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
