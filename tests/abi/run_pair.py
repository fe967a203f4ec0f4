#!/usr/bin/env python3
"""Runs an unmodified verbs program as server and client on the drop-in library.

run_pair.py --library DIR [--device lo] [--address 127.0.0.1] [--pairs N] [--through FEROCE]
            [--valgrind] [--set NAME=VALUE]... -- TOOL ARGS
Both sides get `-p PORT` with a free TCP port; the client gets the address as last argument.
--through runs the tool by `FEROCE run`, for tools that look at /sys/class/infiniband; --valgrind
lets valgrind watch it, and find nothing. Fails if either side does, or if they do not end in time.
"""
import argparse
import os
import socket
import subprocess
import sys
import time

from attempts import run_pairs


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listening(port, pid="self"):
    """Whether the port is open in the network namespace of the process."""
    for table in (f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6"):
        try:
            with open(table) as f:
                for line in f.readlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and int(fields[1].split(":")[1], 16) == port:
                        return True
        except OSError:  # No IPv6, or the process has ended.
            pass
    return False


class Pair:
    """Server and client of one command. Words in front of each may place it elsewhere."""

    def __init__(self, command, address, environment, server_place=(), client_place=()):
        self.port = free_port()
        self.command = command[:1] + ["-p", str(self.port)] + command[1:]
        self.address = address
        self.environment = environment
        self.client_place = list(client_place)
        self.server = self.start(list(server_place) + self.command)
        self.client = None
        self.output = ""

    def start(self, command):
        return subprocess.Popen(command, env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def start_client(self):
        return self.start(self.client_place + self.command + [self.address])

    def connect(self, deadline):
        while not listening(self.port, self.server.pid):
            if self.server.poll() is not None or time.monotonic() > deadline:
                return
            time.sleep(0.01)
        self.client = self.start_client()

    def finish(self, deadline):
        good = self.client is not None
        for name, process in (("client", self.client), ("server", self.server)):
            if process is None:
                continue
            try:
                output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                output += "\n(killed: out of time)\n"
            good = good and process.returncode == 0
            self.output += output
            print(f"--- {name}, exit status {process.returncode}\n{output}")
            if not good:  # A partner left alone may wait for ever.
                deadline = min(deadline, time.monotonic() + 5)
        return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", default="lo")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--through", metavar="FEROCE")
    parser.add_argument("--valgrind", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    environment = dict(os.environ, LD_LIBRARY_PATH=options.library,
                       FEROCE_DEVICES=options.device,
                       **dict(setting.split("=", 1) for setting in options.set))
    place = [options.through, "run", "--"] if options.through else []
    if options.valgrind:
        place += ["valgrind", "--quiet", "--error-exitcode=9"]
    good = run_pairs(lambda: Pair(options.command, options.address, environment, place, place),
                     options.pairs, options.timeout)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
