#!/usr/bin/env python3
"""Copies a file by rcopy, fetches one over HTTP by programs that know only sockets, and streams by
a server that forks.

programs.py --library DIR. The last two run under Debian's librspreload: its r* calls are ours. That
the bytes went by rsockets is seen from the kernel, which has no TCP socket of the port.
"""
import argparse
import glob
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
            url = f"http://127.0.0.1:{port}/file"
            got = subprocess.run([*client, url], env=preloaded, timeout=LIMIT, check=True,
                                 stdout=subprocess.PIPE).stdout
            assert got == (folder / "file").read_bytes(), f"{len(got)} other bytes"


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
    clients = [["/usr/bin/python3", "-c", read_url]]
    if shutil.which("curl"):
        clients.append(["curl", "-sS"])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "file").write_bytes(random.Random(1).randbytes(700_000))
        copy_by_rcopy(folder, environment)
        for client in clients:
            fetch_over_http(folder, environment, preload[0], client)
    stream_with_fork(environment, preload[0])


if __name__ == "__main__":
    main()
