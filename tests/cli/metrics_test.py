#!/usr/bin/env python3
"""`feroce metrics` beside real programs, read by Prometheus' own parsers:
metrics_test.py NAME FOLDER_OF_FEROCE. Exit status 77: not here."""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import dashboard
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from own_network import run_named_test

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
    check_round_trips(metrics)


def check_round_trips(metrics):
    buckets = {float(s.labels["le"]): s.value
               for s in metrics.all("feroce_rtt_seconds_bucket", **DEVICE)}
    assert len(buckets) == 24 and min(buckets) == 1e-6, buckets
    assert [buckets[le] for le in sorted(buckets)] == sorted(buckets.values())
    count = metrics.value("feroce_rtt_seconds_count", **DEVICE)
    assert count == buckets[float("inf")] > 0, buckets
    mean = metrics.value("feroce_rtt_seconds_sum", **DEVICE) / count
    assert 1e-7 < mean < 10, mean


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


OPEN = "application/openmetrics-text; version=1.0.0"


class Server:
    def __init__(self, feroce, *options):
        self.process = subprocess.Popen([feroce, "metrics", "--listen", "0", *options], text=True,
                                        stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        assert line.startswith("metrics at http://127.0.0.1:"), line
        self.port = int(line.split(":")[2].split("/")[0])

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def raw(self, request):
        """The status that the request gets, and what follows the headers; (0, "") if it was closed
        without a word."""
        with self.connect() as stream:
            answer = b""
            with contextlib.suppress(ConnectionError):
                stream.sendall(request)
                while part := stream.recv(65536):
                    answer += part
        head, _, body = answer.decode().partition("\r\n\r\n")
        return (int(head.split()[1]), body) if head else (0, "")

    def get(self, path="/metrics", method="GET", host="127.0.0.1", accept=OPEN):
        return self.raw(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
                        f"Accept: {accept}\r\n\r\n".encode())

    def metrics(self, accept=OPEN):
        status, body = self.get(accept=accept)
        assert status == 200, (status, body)
        return Metrics(body, "openmetrics" if accept == OPEN else "text")

    def memory(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        assert status == 0, f"the server ended with {status}"


@contextlib.contextmanager
def serving(feroce, *options):
    server = Server(feroce, *options)
    try:
        yield server
        server.end()
    finally:
        server.process.kill()
        server.process.wait()


def test_http(feroce):
    name = socket.gethostname()
    with serving(feroce, "--host", "front.example") as server:
        for host in "127.0.0.1", f"127.0.0.1:{server.port}", "localhost", name, "front.example:80":
            assert server.get(host=host)[0] == 200, host
        for host in "evil.example", f"evil.example:{server.port}", "", "127.0.0.1.evil.example":
            status, body = server.get(host=host)
            assert status in (400, 403) and "feroce" not in body, (host, status)
        assert server.raw(b"GET /metrics HTTP/1.0\r\n\r\n")[0] == 400, "no Host at all"
        assert server.get("/")[0] == server.get("/metrics/x")[0] == 404
        assert server.get(method="POST")[0] == server.get(method="DELETE")[0] == 405
        assert server.get(method="HEAD") == (200, "")
        # Both formats, as the client takes them; programs come and go.
        with running_pair(feroce) as pair:
            await_true("the server sees them",
                       lambda: server.metrics().value("feroce_processes") == 2)
            check_pair(server.metrics(), *pair)
            check_pair(server.metrics("text/plain"), *pair)
            moved = server.metrics().value("rdma_sent_pkts_total", **DEVICE)
        await_true("they are gone", lambda: server.metrics().value("feroce_processes") == 0)
        later = server.metrics()
        assert later.value("rdma_sent_pkts_total", **DEVICE) >= moved, "a counter never falls"
        assert not later.all("feroce_process_sent_bytes_total")
        # A second one cannot have the port.
        second = subprocess.run([feroce, "metrics", "--listen", str(server.port)], text=True,
                                capture_output=True, timeout=PATIENCE, check=False)
        assert second.returncode == 1 and second.stdout == "", second
        assert second.stderr == (f"feroce: metrics cannot listen on 127.0.0.1:{server.port}: "
                                 "Address already in use\n"), second


def test_hostile_clients(feroce):
    with serving(feroce) as server:
        server.metrics()
        before = server.memory()
        # On a busy machine their time may be over before ours has come.
        for _ in range(5):
            slow, beside = look_beside_slow_clients(server)
            if beside:
                break
        assert beside, "the server answered only when the slow clients were gone"
        await_true("each ends in time", lambda: all(is_over(stream) for stream in slow))
        assert server.raw(b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 1_000_000)[0] in (0, 413, 431)
        assert server.raw(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n"
                          b"Content-Length: 1000000000\r\n\r\n" + b"a" * 1_000_000)[0] in (0, 405)
        assert server.raw(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
                          b"Content-Length: 1000000000\r\n\r\n" + b"a" * 1_000_000)[0] in (0, 400)
        assert server.raw(b"\0" * 100_000)[0] in (0, 400, 413, 414, 431)
        server.metrics()
        assert server.memory() - before < 16 * 1024, f"{before} to {server.memory()} KiB"
        for stream in slow:
            stream.close()


def look_beside_slow_clients(server):
    slow = [server.connect() for _ in range(200)]
    for stream in slow:
        with contextlib.suppress(ConnectionError):
            stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0")
    for _ in range(20):
        server.metrics()
    return slow, is_over(slow[0]) and not is_over(slow[-1])


def is_over(stream):
    stream.setblocking(False)
    try:
        return stream.recv(65536) == b"" or is_over(stream)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


class Folder:
    """A folder that `feroce metrics --sysfs` keeps up to date."""

    def __init__(self, feroce, path):
        self.path = path
        self.process = subprocess.Popen([feroce, "metrics", "--sysfs", path, "--every", "1"],
                                        text=True, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == f"counters in {path}/class/infiniband\n"

    def read(self, name):
        with open(f"{self.path}/class/infiniband/feroce_lo/{name}", encoding="ascii") as file:
            return file.read().rstrip("\n")

    def port(self, name):
        return int(self.read(f"ports/1/{name}"))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0


@contextlib.contextmanager
def kept_folder(feroce):
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(feroce, f"{place}/tree")
        try:
            yield folder
        finally:
            folder.process.kill()
            folder.process.wait()


def test_sysfs(feroce):
    with kept_folder(feroce) as folder:
        assert folder.read("ports/1/state") == "4: ACTIVE"
        assert folder.port("counters/port_xmit_data") == 0
        with running_pair(feroce):
            await_true("data are counted",
                       lambda: folder.port("counters/port_xmit_data") > 1_000_000 / 4)
            await_true("packets are", lambda: folder.port("hw_counters/sent_pkts") > 100)
            assert folder.port("hw_counters/local_ack_timeout_err") >= 0
        refused(feroce, folder.path, "another feroce metrics writes to this folder")
        refused(feroce, os.path.dirname(folder.path),
                "the folder has files that feroce metrics did not write")
        folder.end()
        # One that comes later finds the folder marked as ours.
        subprocess.run([feroce, "metrics", "--sysfs", folder.path], timeout=PATIENCE, check=True,
                       stdout=subprocess.DEVNULL)


def refused(feroce, path, why):
    done = subprocess.run([feroce, "metrics", "--sysfs", path], text=True, capture_output=True,
                          timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr == f"feroce: {path}: {why}\n", done


# What others have put into a folder, or could, must not lead a writer elsewhere.
def test_sysfs_of_others(feroce):
    with tempfile.TemporaryDirectory() as place:
        kept = os.path.join(place, "kept")
        os.mkdir(kept)
        with open(os.path.join(kept, "file"), "w", encoding="ascii") as file:
            file.write("kept")
        planted = os.path.join(place, "planted")
        os.mkdir(planted)
        with open(os.path.join(planted, ".feroce-metrics"), "w", encoding="ascii"):
            pass
        os.symlink(kept, os.path.join(planted, "class"))
        refused(feroce, planted, "the folder has files that feroce metrics did not write")
        shared = os.path.join(place, "shared")
        os.mkdir(shared)
        os.chmod(shared, 0o777)
        refused(feroce, shared, "this is no folder that you alone can write to")
        link = os.path.join(place, "link")
        os.symlink(kept, link)
        refused(feroce, link, "this is no folder that you alone can write to")
        assert os.listdir(kept) == ["file"]


def test_dashboard(feroce):
    """Its queries know no metric that is not there; dashboard_test.py asks Prometheus."""
    programs = Programs(feroce)
    failing = os.path.join(os.path.dirname(feroce), "bad_access")
    try:
        child = programs.start(failing, "--wait", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout.readline(), "it says how its work request ended"
        names = {s.name for s in Metrics(look(feroce)).samples}
    finally:
        programs.end()
    board = dashboard.load()
    asked = {name for query in dashboard.queries(board) for name in query.metrics()}
    assert len(asked) > 20, asked
    # Those of round trips need one that was answered well.
    missing = asked - names - {"feroce_rtt_min_seconds", "feroce_rtt_max_seconds"}
    assert not missing, missing
    identities = [panel["id"] for panel in board["panels"]]
    assert len(set(identities)) == len(identities)


if __name__ == "__main__":
    sys.exit(run_named_test(globals()))
