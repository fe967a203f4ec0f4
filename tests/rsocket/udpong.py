#!/usr/bin/env python3
"""Runs Debian's udpong, a server and a client, on the drop-in libraries.

udpong.py --library DIR [--options WORDS]. The client ends by itself, the server is ended then.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rdmacm"))
from run_cm import PORTS  # noqa: E402  (found by the path above)

LIMIT = 60


def is_bound(port, pid):
    with open(f"/proc/{pid}/net/udp") as table:
        return any(f":{port:04X} " in line for line in table)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--options", default="")
    options = parser.parse_args()
    if not shutil.which("udpong"):
        print("Debian's rdmacm-utils is not installed")
        sys.exit(77)
    environment = dict(os.environ, LD_LIBRARY_PATH=options.library, FEROCE_DEVICES="lo")
    port = next(PORTS)
    words = ["udpong", "-p", str(port), *options.options.split()]
    server = subprocess.Popen([*words, "-b", "127.0.0.1"], env=environment)
    try:
        deadline = time.monotonic() + LIMIT
        while not is_bound(port, server.pid):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit("the server does not listen")
            time.sleep(0.01)
        client = subprocess.run([*words, "-s", "127.0.0.1"], env=environment, text=True,
                                timeout=LIMIT, stdout=subprocess.PIPE, check=False)
        print(client.stdout)
        if client.returncode != 0 or server.poll() is not None:
            sys.exit(f"client {client.returncode}, server {server.poll()}")
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
