#!/usr/bin/env python3
"""What `feroce web` answers, without a browser: web_test.py NAME FOLDER_OF_FEROCE STATE_CROWD.
Exit status 77: not here."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

from own_network import run_named_test
from top_test import PATIENCE, await_true, cpu_ticks, running, running_pair


class Server:
    def __init__(self, feroce, *options):
        self.process = subprocess.Popen([feroce, "web", "--listen", "0", *options], text=True,
                                        stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        assert line.startswith("page at http://127.0.0.1:"), line
        self.port = int(line.split(":")[2].split("/")[0])

    def ask(self, path="/", method="GET", host="127.0.0.1", half_closed=False, **headers):
        """The status, the headers by name in small letters, and the body."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}",
                 *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as stream:
            stream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            if half_closed:
                stream.shutdown(socket.SHUT_WR)
            answer = b""
            while part := stream.recv(65536):
                answer += part
        head, _, body = answer.decode().partition("\r\n\r\n")
        status, *rest = head.split("\r\n")
        return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in rest), body

    def state(self):
        status, _, body = self.ask("/state.json")
        assert status == 200, body
        return json.loads(body)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0


@contextlib.contextmanager
def serving(feroce, *options):
    server = Server(feroce, *options)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def test_files(feroce, _):
    with serving(feroce) as server:
        status, headers, body = server.ask()
        assert status == 200 and body.startswith("<!doctype html>"), body
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy, policy
        assert headers["cross-origin-resource-policy"] == "same-origin", headers
        assert headers["x-content-type-options"] == "nosniff", headers
        assert headers["cache-control"] == "no-store", headers
        for name, kind in ("style.css", "text/css"), ("main.js", "text/javascript"), \
                ("icon.svg", "image/svg+xml"):
            status, headers, body = server.ask(f"/{name}")
            assert status == 200 and headers["content-type"].startswith(kind) and body, name
            assert "://" not in body.replace("http://www.w3.org/2000/svg", ""), name
        assert server.ask("/etc/passwd")[0] == server.ask("/../main.js")[0] == 404
        for method in "POST", "PUT", "DELETE", "OPTIONS":
            assert server.ask("/state.json", method)[0] == 405, method
        server.end()


def test_gate(feroce, _):
    with serving(feroce) as server:
        origin = f"http://127.0.0.1:{server.port}"
        own = {"host": f"127.0.0.1:{server.port}"}
        for headers in ({}, {"Origin": origin, "Sec_Fetch_Site": "same-origin"},
                        {"Sec_Fetch_Site": "none"}):
            assert server.ask("/state.json", **own, **headers)[0] == 200, headers
        link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate",
                "Sec_Fetch_Dest": "document"}
        assert server.ask("/", **own, **link)[0] == 200, "a link to the page"
        for path, headers in (
                ("/state.json", {"Origin": "http://evil.example"}),
                ("/state.json", {"Origin": "null"}),
                ("/state.json", {"Origin": f"https://127.0.0.1:{server.port}"}),
                ("/state.json", {"Origin": "http://127.0.0.1:1"}),
                ("/state.json", {"Sec_Fetch_Site": "cross-site"}),
                ("/state.json", {"Sec_Fetch_Site": "same-site"}),
                ("/state.json", link),
                ("/", link | {"Sec_Fetch_Dest": "iframe"}),
                ("/main.js", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"})):
            status, _, body = server.ask(path, **own, **headers)
            assert status == 403 and body.count("\n") == 1 and "feroce_lo" not in body, \
                (path, headers, status, body)
        for host in "evil.example", "localhost.evil.example", socket.gethostname() + ".evil":
            assert server.ask("/state.json", host=host)[0] == 403, host
        assert server.ask("/state.json", host="localhost")[0] == 200
        assert server.ask("/state.json", half_closed=True)[0] == 200
        check_other_user(server)
        server.end()


def check_other_user(server):
    """The port is there for all users of the machine; what it shows is not."""
    if os.geteuid() != 0 or os.environ.get("container"):
        return
    for address in "127.0.0.1", "::ffff:127.0.0.1":
        # A connection of root to another server, whose port the other user's shares. One for each
        # address: what ended may keep its two ends for a minute.
        with socket.create_server(("127.0.0.1", 0)) as listener, \
                socket.create_connection(listener.getsockname(), timeout=PATIENCE) as of_root:
            for port in 0, of_root.getsockname()[1]:
                said = as_other_user(address, server.port, port)
                assert said.startswith("403 only root may read this page\n") or \
                    (port and said == "this kernel lets nobody choose\n"), (address, port, said)


# Asks ADDRESS PORT, from the port of the third word if that is not 0.
OTHER_USER = """
import http.client, socket, struct, sys
address, port, own = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
IP_LOCAL_PORT_RANGE = 51
stream = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
stream.settimeout(20)
if own:
    try:
        stream.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("I", own << 16 | own))
    except OSError:
        sys.exit(print("this kernel lets nobody choose"))
stream.connect((address, port))
assert own in (0, stream.getsockname()[1])
stream.sendall(b"GET /state.json HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
answer = http.client.HTTPResponse(stream)
answer.begin()
print(answer.status, answer.read().decode())
"""


def as_other_user(address, port, own_port):
    done = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", "/usr/bin/python3",
                           "-c", OTHER_USER, address, str(port), str(own_port)],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_state(feroce, _):
    with serving(feroce) as server:
        assert server.state()["processes"] == []
        with running_pair(feroce) as pair:
            def flows():
                state = server.state()
                return any((p["sent_bytes_per_second"] or 0) > 0 for p in state["processes"])
            await_true("rates", flows)
            state = server.state()
            pids = {child.pid for child in pair}
            assert {p["pid"] for p in state["processes"]} == pids
            assert {n["pid"] for n in state["graph"]["nodes"]} == pids, state["graph"]
            assert len(state["graph"]["edges"]) == 1, state["graph"]
            edge = state["graph"]["edges"][0]
            assert edge["queue_pairs"] == 1 and edge["failed"] == 0, edge
            assert {edge["from"], edge["to"]} == {f"pid {pid}" for pid in pids}, edge
            assert state["failures"] == [] and state["qps_all"] == 2, state
        await_true("they are gone", lambda: server.state()["processes"] == [])
        server.end()


def test_crowd(feroce, crowd):
    with serving(feroce) as server, \
            running([crowd, "250", "40"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    text=True) as members:
        assert members.stdout.readline() == "ready\n"
        # On a busy machine not all of them may answer in time at once.
        await_true("all are seen", lambda: server.state()["qps_all"] == 10000)
        _, _, body = server.ask("/state.json")
        state = json.loads(body)
        assert len(state["processes"]) == 250 and len(state["qps"]) == 400, len(state["qps"])
        assert state["qps_more"] == 9600 and len(state["graph"]["nodes"]) == 60, state["graph"]
        assert state["graph"]["nodes_more"] == 190, state["graph"]["nodes_more"]
        print(f"{len(body)} bytes a look")
        assert len(body) < 500_000, len(body)
        print_cost(server)
        server.end()


def print_cost(server, looks=5):
    """Of an open page, which looks once a second."""
    ticks, began, waited = cpu_ticks(server.process.pid), time.monotonic(), 0.0
    for number in range(looks):
        asked = time.monotonic()
        server.state()
        waited = max(waited, time.monotonic() - asked)
        time.sleep(max(0.0, began + number + 1 - time.monotonic()))
    used = (cpu_ticks(server.process.pid) - ticks) / os.sysconf("SC_CLK_TCK")
    print(f"answers within {waited:.2f} s, {used / (time.monotonic() - began):.0%} of a core")


def refused(feroce, *options):
    done = subprocess.run([feroce, "web", *options], text=True, capture_output=True,
                          timeout=PATIENCE, check=False)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.returncode, done.stderr


def test_usage(feroce, _):
    with serving(feroce) as server:
        assert refused(feroce, "--listen", str(server.port)) == \
            (1, f"feroce: web cannot listen on 127.0.0.1:{server.port}: Address already in use\n")
    for address in "0.0.0.0:0", "[::]:0", "10.0.0.1:1":
        status, said = refused(feroce, "--listen", address)
        assert status == 2 and "loopback only" in said, said
    assert refused(feroce, "--listen", "here")[0] == 2
    assert refused(feroce, "--listen", "0", "--pcap", "/nowhere") == \
        (2, "feroce: /nowhere: No such file or directory\n")
    assert refused(feroce, "--listen", "0", "--pcap", "/etc/passwd") == \
        (2, "feroce: /etc/passwd is neither a pcapng nor a pcap file\n")


if __name__ == "__main__":
    sys.exit(run_named_test(globals()))
