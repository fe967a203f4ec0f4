#!/usr/bin/env python3
"""Runs unmodified rdma_cm programs as servers and clients on the drop-in libraries.

run_cm.py --library DIR [--pairs N] [--space tcp|udp] [--port N] [--expect-failure] [--no-server]
          [--endless-server] --server "COMMAND {port}" --client "COMMAND {address} {port}"
Each pair gets a port of its own unless one is given; a client starts once something has leased its
server's port. Fails unless all sides end in time and well (with
--expect-failure: unless every client fails).
"""
import argparse
import os
import random
import shlex
import signal
import subprocess
import sys
import time

SPACES = {"tcp": 0x0106, "udp": 0x0111}


def listening(space, port):
    """The process that listens for a service holds an abstract unix socket named after it."""
    service = SPACES[space] << 16 | port
    with open("/proc/net/unix") as f:
        return any(f"-{service}-" in line and "@feroce-cm-" in line for line in f)


class Pair:
    def __init__(self, options, environment):
        self.options = options
        self.environment = environment
        # Below the ephemeral range; tgtd and others keep ports in a signed short.
        self.port = options.port or random.randrange(10000, 30000)
        self.server = None if options.no_server else self.start(options.server)
        self.client = None

    def start(self, command):
        words = command.format(port=self.port, address=self.options.address)
        return subprocess.Popen(shlex.split(words), env=self.environment, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)

    def connect(self, deadline):
        while self.server is not None and not listening(self.options.space, self.port):
            if self.server.poll() is not None or time.monotonic() > deadline:
                return
            time.sleep(0.01)
        self.client = self.start(self.options.client)

    def finish(self, deadline):
        good = self.client is not None
        for name, process in (("client", self.client), ("server", self.server)):
            if process is None:
                continue
            if name == "server" and self.options.endless_server:
                good = good and process.poll() is None
                process.terminate()
            try:
                output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                output += "\n(killed: out of time)\n"
                good = False
            ended_by_us = name == "server" and self.options.endless_server
            failed = process.returncode != (-signal.SIGTERM if ended_by_us else 0)
            if name == "client" and self.options.expect_failure:
                # Refused, not crashed.
                failed = process.returncode <= 0
            good = good and not failed
            print(f"--- {name}, exit status {process.returncode}\n{output}")
        return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", default="lo")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--space", choices=SPACES, default="tcp")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--port", type=int)
    parser.add_argument("--endless-server", action="store_true")
    parser.add_argument("--no-server", action="store_true")
    parser.add_argument("--expect-failure", action="store_true")
    parser.add_argument("--server", default="")
    parser.add_argument("--client", required=True)
    options = parser.parse_args()
    environment = dict(os.environ, LD_LIBRARY_PATH=options.library, FEROCE_DEVICES=options.device)
    deadline = time.monotonic() + options.timeout
    pairs = [Pair(options, environment) for _ in range(options.pairs)]
    for pair in pairs:
        pair.connect(deadline)
    results = [pair.finish(deadline) for pair in pairs]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
