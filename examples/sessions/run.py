#!/usr/bin/env python3
"""Runs the key-value server, on two threads, and its clients: run.py FOLDER_OF_THE_PROGRAMS."""
import os
import subprocess
import sys

PATIENCE = 60
PORT = "7480"
ENVIRONMENT = {**os.environ, "FEROCE_DEVICES": "lo"}
EXPECTED = {
    "key_value_ping": "Hello over 1 path(s)\n"
                      "the server refused or failed the request (No such file or directory)\n",
    # 1024 pieces of 65,536 equal bytes, 0 to 255 four times over.
    "bulk_fetch": f"fetched 64 MiB, sum {4 * 65536 * (255 * 256 // 2)}\n",
    "many_threads": "4 threads counted to 1000\n",
}


def try_client(folder, name, server):
    """The client may come before the server listens, and is then refused."""
    for _ in range(100):
        client = subprocess.run([f"{folder}/{name}", PORT, "127.0.0.1"], text=True, check=False,
                                timeout=PATIENCE, env=ENVIRONMENT, capture_output=True)
        if client.returncode == 0 or "nobody listens" not in client.stderr:
            return client
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}")
    sys.exit("the server never listened")


def main():
    folder = sys.argv[1]
    with subprocess.Popen([f"{folder}/key_value_server", "127.0.0.1", PORT, "2"],
                          env=ENVIRONMENT) as server:
        try:
            for name, expected in EXPECTED.items():
                client = try_client(folder, name, server)
                if client.returncode != 0 or client.stdout != expected:
                    sys.exit(f"{name}: {client.returncode} {client.stdout!r} {client.stderr!r}")
                print(name, client.stdout.strip(), client.stderr.strip())
        finally:
            server.kill()


if __name__ == "__main__":
    main()
