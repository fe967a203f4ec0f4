#!/usr/bin/env python3
"""Runs unmodified rdma_cm programs as servers and clients on the drop-in libraries.

run_cm.py --library DIR [--pairs N] [--space tcp|udp] [--port N] [--expect-failure] [--no-server]
          [--endless-server] [--group ADDRESS]
          --server "COMMAND {port}" --client "COMMAND {address} {port}"
Each pair gets a port of its own unless one is given; a client starts once something has leased its
server's port (with --group: has joined the group). Fails unless all sides end in time and well
(with --expect-failure: unless every client fails).
"""
import argparse
import ipaddress
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "abi"))
from attempts import run_pairs  # noqa: E402  (found by the path above)

SPACES = {"tcp": 0x0106, "udp": 0x0111}
# Below the ephemeral range; tgtd and others keep ports in a signed short. No two pairs of one run
# get the same.
PORTS = iter(random.sample(range(10000, 30000), 10000))


def listening(space, port, pid="self"):
    """Whether a process in the network namespace of the given one listens for a service: it then
    holds an abstract unix socket named after it."""
    service = SPACES[space] << 16 | port
    with open(f"/proc/{pid}/net/unix") as f:
        return any(f"-{service}-" in line and "@feroce-cm-" in line for line in f)


def joined(group, pid):
    """Whether a process in the network namespace of the given one is in a multicast group."""
    packed = ipaddress.ip_address(group).packed
    path, text = ("igmp", packed[::-1].hex()) if len(packed) == 4 else ("igmp6", packed.hex())
    with open(f"/proc/{pid}/net/{path}") as f:
        return text in f.read().lower()


class Pair:
    """Each side may have words in front that place it elsewhere."""

    def __init__(self, options, environment, server_place=(), client_place=()):
        self.options = options
        self.environment = environment
        self.client_place = list(client_place)
        self.port = options.port or next(PORTS)
        self.server = None if options.no_server else self.start(server_place, options.server)
        self.client = None
        self.output = ""

    def start(self, place, command):
        words = command.format(port=self.port, address=self.options.address)
        return subprocess.Popen([*place, *shlex.split(words)], env=self.environment, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)

    def connect(self, deadline):
        while self.server is not None and not self.ready():
            if self.server.poll() is not None or time.monotonic() > deadline:
                return
            time.sleep(0.01)
        self.client = self.start(self.client_place, self.options.client)

    def ready(self):
        try:
            if self.options.group:
                return joined(self.options.group, self.server.pid)
            return listening(self.options.space, self.port, self.server.pid)
        except OSError:  # It has ended.
            return False

    def finish(self, deadline):
        good = self.client is not None
        for name, process in (("client", self.client), ("server", self.server)):
            if process is None:
                continue
            if name == "server" and self.options.endless_server:
                if process.poll() is None:
                    process.terminate()
            try:
                output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                output += "\n(killed: out of time)\n"
                good = False
            # In newer releases of rdma-core such a server ends by itself.
            endless = name == "server" and self.options.endless_server
            failed = process.returncode not in ((0, -signal.SIGTERM) if endless else (0,))
            if name == "client" and self.options.expect_failure:
                # Refused, not crashed.
                failed = process.returncode <= 0
            good = good and not failed
            self.output += output
            print(f"--- {name}, exit status {process.returncode}\n{output}")
            if not good:  # A partner left alone may wait for ever.
                deadline = min(deadline, time.monotonic() + 5)
        return good


def parse(words=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="")
    parser.add_argument("--device", default="lo")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--space", choices=SPACES, default="tcp")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--port", type=int)
    parser.add_argument("--group", help="the server joins this instead of listening")
    parser.add_argument("--endless-server", action="store_true")
    parser.add_argument("--no-server", action="store_true")
    parser.add_argument("--expect-failure", action="store_true")
    parser.add_argument("--server", default="")
    parser.add_argument("--client", required=True)
    return parser.parse_args(words)


def main():
    options = parse()
    environment = dict(os.environ, LD_LIBRARY_PATH=options.library, FEROCE_DEVICES=options.device)
    good = run_pairs(lambda: Pair(options, environment), options.pairs, options.timeout)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
