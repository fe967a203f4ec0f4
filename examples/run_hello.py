#!/usr/bin/env python3
"""Runs hello_server and hello_client on loopback and looks at what the client prints.

run_hello.py FOLDER             the programs of a build

tests/install does the same with programs that were built outside.
"""
import os
import socket
import subprocess
import sys

GREETING = "Hello from another process's memory"
PATIENCE = 30
ENVIRONMENT = {**os.environ, "FEROCE_DEVICES": "lo"}


def free_port():
    # Of TCP; rdma_cm's ports are another space, but seldom used.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(command, **options):
    return subprocess.run(command, text=True, check=False, timeout=PATIENCE, env=ENVIRONMENT,
                          capture_output=True, **options)


def try_client(prefix, folder, address, server):
    """The client may come before the server listens, and is then refused."""
    for _ in range(100):
        client = run([*prefix, f"{folder}/hello_client", address])
        if client.returncode == 0 or "nobody listens" not in client.stderr:
            return client
        if server.poll() is not None:
            sys.exit(f"the server ended: {server.stderr.read()}")
    sys.exit("the server never listened")


def greet(server_prefix, client_prefix, folder):
    """The prefixes are words before the programs: `feroce run --`, or nothing."""
    address = f"127.0.0.1:{free_port()}"
    with subprocess.Popen([*server_prefix, f"{folder}/hello_server", address], text=True,
                          env=ENVIRONMENT, stderr=subprocess.PIPE) as server:
        try:
            client = try_client(client_prefix, folder, address, server)
            if client.returncode != 0 or client.stdout.strip() != GREETING:
                sys.exit(f"client: {client.returncode} {client.stdout!r} {client.stderr!r}")
            if server.wait(PATIENCE) != 0:
                sys.exit(f"server: {server.returncode} {server.stderr.read()!r}")
        finally:
            server.kill()
    print(client.stdout.strip())


if __name__ == "__main__":
    greet([], [], sys.argv[1])
