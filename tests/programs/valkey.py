#!/usr/bin/env python3
"""Valkey's own tests of RDMA, and libvalkey's, on Feroce: valkey.py BUILD VALKEY LIBVALKEY.

Debian has neither with RDMA, so no stage runs this: the folders are checkouts that were built, with
the server's RDMA as a module and with both tests.
In a network of its own; exit status 1 if one of them fails, and what it printed. libvalkey's client
runs at real-time priority, where that is allowed: it loses a reply if the end of the connection is
there too before it wakes.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from own_network import enter_own_network  # noqa: E402  (found by the path above)

ADDRESS, PORT, PATIENCE = "127.0.0.1", 6399, 300


def start_server(feroce, valkey, folder):
    """By RDMA and TCP at one port, and by a socket file, which is there when it serves."""
    door = folder / "door"
    command = [*feroce, valkey / "src/valkey-server", "--port", str(PORT), "--bind", ADDRESS,
               "--unixsocket", door, "--dir", folder, "--save", "", "--enable-debug-command", "yes",
               "--loadmodule", valkey / "src/valkey-rdma.so", f"bind={ADDRESS}", f"port={PORT}"]
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while not door.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            sys.exit("valkey-server does not serve:\n" + (folder / "log").read_text())
        time.sleep(0.05)
    return server


def try_client(name, command, expected):
    """Whether it ended well and printed what is expected as often; says so."""
    pattern, least = expected
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          timeout=PATIENCE, text=True, errors="replace")
    seconds = time.monotonic() - begin
    found = len(re.findall(pattern, done.stdout))
    good = done.returncode == 0 and found >= least
    if not good:
        print(done.stdout)
    print(f"{name}: {'passes' if good else 'FAILS'}, {found} of its lines, {seconds:.1f} s",
          flush=True)
    return good


def quickly():
    first = ["chrt", "-f", "1"]
    tried = subprocess.run([*first, "true"], check=False, stderr=subprocess.DEVNULL)
    return first if tried.returncode == 0 else []


def try_with_server(feroce, valkey, name, client, expected):
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        words = [str(word).format(door=folder / "door") for word in client]
        server = start_server(feroce, valkey, folder)
        try:
            good = try_client(name, [*feroce, *words], expected) and server.poll() is None
        finally:
            server.kill()
            server.wait()
        if not good:
            print((folder / "log").read_text(errors="replace"))
        return good


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    build, valkey, libvalkey = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    if not enter_own_network():
        return 77
    os.environ["FEROCE_DEVICES"] = "lo"
    # Where connecting times out, as client_test wants.
    for command in ("link add d0 type veth peer name d1", "address add 192.168.254.1/24 dev d0",
                    "link set d0 up", "link set d1 up",
                    "neighbour add 192.168.254.254 lladdr 02:00:00:00:00:01 dev d0"):
        subprocess.run(["ip", *command.split()], check=True)
    feroce = [build / "bin/feroce", "run", "--"]
    where = ["-h", ADDRESS, "-p", str(PORT)]
    good = [try_with_server(feroce, valkey, "valkey's rdma-test",
                            [valkey / "tests/rdma/rdma-test", "--thread", "4", *where],
                            (r"\[OK\]", 4)),
            try_with_server(feroce, valkey, "libvalkey's client_test",
                            [*quickly(), libvalkey / "tests/client_test", *where, "-s",
                             "{door}", "--rdma-addr", ADDRESS],
                            (r"PASSED", 150))]
    return 0 if all(good) else 1


sys.exit(main())
