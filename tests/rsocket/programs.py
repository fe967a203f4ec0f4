#!/usr/bin/env python3
"""Copies a file by rcopy, fetches one over HTTP by programs that know only sockets, measures by
iperf3, and streams by a server that forks.

programs.py --library DIR. All but rcopy run under Debian's librspreload: its r* calls are ours.
That the bytes went by rsockets is seen from the kernel, which has no TCP socket of the port.
"""
import argparse
import glob
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rdmacm"))
from run_cm import PORTS, listening  # noqa: E402  (found by the path above)

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 60


def await_listener(server, port):
    deadline = time.monotonic() + LIMIT
    while not listening("tcp", port, server.pid):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the server does not listen")
        time.sleep(0.01)


class Served:
    def __init__(self, command, port, environment):
        self.server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
        self.port = port

    def __enter__(self):
        await_listener(self.server, self.port)
        return self

    def __exit__(self, *_):
        self.server.kill()
        print(self.server.communicate()[0])


def copy_by_rcopy(folder, environment):
    port = next(PORTS)
    with Served(["rcopy", "-p", str(port)], port, environment):
        subprocess.run(["rcopy", folder / "file", f"127.0.0.1:{folder}/copy", "-p", str(port)],
                       env=environment, timeout=LIMIT, check=True)
    assert (folder / "copy").read_bytes() == (folder / "file").read_bytes()


def kernel_has_port(port):
    with open("/proc/net/tcp") as table:
        return any(f":{port:04X} " in line for line in table)


def fetch_over_http(folder, environment, preload, client):
    port = next(PORTS)
    preloaded = dict(environment, LD_PRELOAD=preload)
    python = "/usr/bin/python3"
    with Served([python, str(HERE / "http_server.py"), str(port), str(folder)], port, preloaded):
        assert not kernel_has_port(port)
        for _ in range(3):
            got = client(port, preloaded)
            assert got == (folder / "file").read_bytes(), f"{len(got)} other bytes"


def by_url(*words):
    """A client that is given an address of the web."""
    return lambda port, environment: subprocess.run(
        [*words, f"http://127.0.0.1:{port}/file"], env=environment, timeout=LIMIT, check=True,
        stdout=subprocess.PIPE).stdout


def by_nc(port, environment):
    """The request is written to nc, and the answer has a head."""
    answer = subprocess.run(["nc", "127.0.0.1", str(port)], env=environment, timeout=LIMIT,
                            check=True, input=b"GET /file HTTP/1.0\r\n\r\n",
                            stdout=subprocess.PIPE).stdout
    return answer.partition(b"\r\n\r\n")[2]


def measure_by_iperf3(environment, preload):
    port, size = next(PORTS), 4 << 20
    preloaded = dict(environment, LD_PRELOAD=preload)
    with Served(["iperf3", "-s", "-p", str(port)], port, preloaded):
        assert not kernel_has_port(port)
        for direction in ([], ["-R"]):
            said = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", str(port), "-n", str(size),
                                   "-J", *direction], env=preloaded, timeout=LIMIT, check=True,
                                  stdout=subprocess.PIPE).stdout
            end = json.loads(said)["end"]
            sent, received = (end[f"sum_{what}"]["bytes"] for what in ("sent", "received"))
            # It ends when all is sent, and may leave the last bytes unread, with TCP too.
            assert sent >= size and size / 2 < received <= sent, f"iperf3: {sent}, {received}"


def stream_with_fork(environment, preload):
    """rstream -T f: the server forks for its connection. librspreload then accepts by the kernel's
    TCP and the child makes it an rsocket."""
    port = next(PORTS)
    preloaded = dict(environment, LD_PRELOAD=preload, RDMAV_FORK_SAFE="1")
    words = ["rstream", "-T", "f", "-p", str(port), "-S", "5000", "-C", "20", "-I", "2"]
    server = subprocess.Popen([*words, "-b", "127.0.0.1"], env=preloaded)
    try:
        deadline = time.monotonic() + LIMIT
        while not kernel_has_port(port):
            assert server.poll() is None and time.monotonic() < deadline, "no listener"
            time.sleep(0.01)
        subprocess.run([*words, "-s", "127.0.0.1"], env=preloaded, timeout=LIMIT, check=True)
        assert server.wait(timeout=LIMIT) == 0
    finally:
        server.kill()
        server.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    options = parser.parse_args()
    environment = dict(os.environ, LD_LIBRARY_PATH=options.library, FEROCE_DEVICES="lo")
    preload = glob.glob("/usr/lib/*/rsocket/librspreload.so")
    if not preload or not shutil.which("rcopy"):
        print("Debian's rdmacm-utils or librspreload is not installed")
        sys.exit(77)
    read_url = "import sys,urllib.request as u;" \
               "sys.stdout.buffer.write(u.urlopen(sys.argv[1]).read())"
    clients = [by_url("/usr/bin/python3", "-c", read_url)]
    clients += [by_url("curl", "-sS")] if shutil.which("curl") else []
    clients += [by_nc] if shutil.which("nc") else []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "file").write_bytes(random.Random(1).randbytes(700_000))
        copy_by_rcopy(folder, environment)
        for client in clients:
            fetch_over_http(folder, environment, preload[0], client)
    if shutil.which("iperf3"):
        measure_by_iperf3(environment, preload[0])
    stream_with_fork(environment, preload[0])


if __name__ == "__main__":
    main()
