#!/usr/bin/env python3
"""Runs hello_server and hello_client on loopback and looks at what the client prints.

run_hello.py FOLDER             the programs of a build, which docs/rdma.md must show as they are
run_hello.py --install BUILD --compiler CXX
                                installs the library into a scratch folder, compiles the programs
                                against it as an outside program would be, and runs them by
                                `feroce run`
"""
import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

GREETING = "Hello from another process's memory"
HERE = pathlib.Path(__file__).resolve().parent
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


def greet(prefix, folder):
    address = f"127.0.0.1:{free_port()}"
    with subprocess.Popen([*prefix, f"{folder}/hello_server", address], text=True, env=ENVIRONMENT,
                          stderr=subprocess.PIPE) as server:
        try:
            client = try_client(prefix, folder, address, server)
            if client.returncode != 0 or client.stdout.strip() != GREETING:
                sys.exit(f"client: {client.returncode} {client.stdout!r} {client.stderr!r}")
            if server.wait(PATIENCE) != 0:
                sys.exit(f"server: {server.returncode} {server.stderr.read()!r}")
        finally:
            server.kill()
    print(client.stdout.strip())


def build_outside(build, compiler, scratch):
    installed = run(["cmake", "--install", build, "--component", "library", "--prefix", scratch])
    if installed.returncode != 0:
        sys.exit(installed.stderr)
    for name in ("hello_server", "hello_client"):
        # No path to the build's own libraries: at run time `feroce run` chooses.
        made = run([compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror",
                    f"-I{scratch}/include", f"{HERE}/{name}.cpp", "-o", f"{scratch}/{name}",
                    f"-L{scratch}/lib", "-lferoce", "-lrdmacm", "-libverbs"])
        if made.returncode != 0:
            sys.exit(made.stderr)


def check_page():
    page = (HERE.parent / "docs" / "rdma.md").read_text(encoding="utf-8")
    for name in ("hello_server", "hello_client"):
        if (HERE / f"{name}.cpp").read_text(encoding="utf-8") not in page:
            sys.exit(f"docs/rdma.md shows another {name}.cpp than examples/ has")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--install")
    parser.add_argument("--compiler")
    options = parser.parse_args()
    if options.folder:
        check_page()
        greet([], options.folder)
        return
    with tempfile.TemporaryDirectory() as scratch:
        build_outside(options.install, options.compiler, scratch)
        greet([f"{options.install}/bin/feroce", "run", "--"], scratch)


if __name__ == "__main__":
    main()
