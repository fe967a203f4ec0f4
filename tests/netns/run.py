#!/usr/bin/env python3
"""Unmodified Debian programs in pairs across two network namespaces joined by a veth pair.

run.py --library DIR [--all] [--only PATTERN] [--list]
Without --all the everyday choice runs. The programs run as an ordinary user: nobody when started by
root, else the caller, in a user namespace of his own. The namespaces live as long as two processes
that end with this one, so nothing is left behind even if this one is killed.
"""
import argparse
import contextlib
import fnmatch
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "abi"), str(HERE.parent / "rdmacm")]
import run_cm  # noqa: E402  (found by the path above)
import run_pair  # noqa: E402
from attempts import run_pairs  # noqa: E402
from cases import CASES  # noqa: E402

DEVICE = "net0"
NOBODY = "65534"
# Server's and client's address, length of the prefix, and the addresses' place in the GID table.
FAMILIES = {
    "ipv4": ("10.47.91.1", "10.47.91.2", 24, 0),
    "ipv6": ("fd47:91::1", "fd47:91::2", 64, 1),
}


def command(*words):
    subprocess.run(words, check=True)


class Namespace:
    """A network namespace held by a process that ends when our end of its stdin closes."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "--", "cat"], stdin=subprocess.PIPE)
        self.path = f"/proc/{self.holder.pid}/ns/net"
        deadline = time.monotonic() + 10
        while os.readlink(self.path) == os.readlink("/proc/self/ns/net"):
            if time.monotonic() > deadline or self.holder.poll() is not None:
                sys.exit("unshare made no network namespace")
            time.sleep(0.01)

    def place(self, *words):
        """The words that run a program in here."""
        return ["nsenter", f"--net={self.path}", "--", *words]

    def configure(self, side):
        ip = self.place("ip")
        command(*ip, "link", "set", "lo", "up")
        for addresses in FAMILIES.values():
            address = f"{addresses[side]}/{addresses[2]}"
            nodad = ["nodad"] if ":" in address else []
            command(*ip, "address", "add", address, "dev", DEVICE, *nodad)
        command(*ip, "link", "set", DEVICE, "up")
        command(*ip, "route", "add", "224.0.0.0/4", "dev", DEVICE)

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()


@contextlib.contextmanager
def two_namespaces():
    sides = [Namespace(), Namespace()]
    try:
        pids = [str(side.holder.pid) for side in sides]
        command("ip", "link", "add", DEVICE, "netns", pids[0], "type", "veth",
                "peer", "name", DEVICE, "netns", pids[1])
        for i, side in enumerate(sides):
            side.configure(i)
        yield sides
    finally:
        for side in sides:
            side.close()


@contextlib.contextmanager
def readable_copy(library):
    """A checkout may lie where an ordinary user cannot read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("libibverbs.so.1", "librdmacm.so.1"):
            shutil.copy(os.path.join(library, name), folder)
            os.chmod(os.path.join(folder, name), 0o755)
        yield folder


def as_ordinary_user():
    if os.environ.get("FEROCE_NETNS_INSIDE"):
        return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    return ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]


def run_alone(case, values, environment, places):
    """A program that needs no partner must succeed on either side."""
    good = True
    for place in places:
        words = [word.format(**values) for word in case.command]
        done = subprocess.run(place + words, env=environment, text=True, capture_output=True,
                              timeout=case.timeout, check=False)
        good = good and done.returncode == 0 and case.expect in done.stdout
        print(f"--- exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return good


def run_verbs(case, values, environment, places):
    words = [word.format(**values) for word in case.command]
    # The programs' own handshake is over IPv4 only; the GID index chooses the traffic's family.
    address = FAMILIES["ipv4"][0]
    return run_pairs(lambda: run_pair.Pair(words, address, environment, *places), case.pairs,
                     case.timeout)


def run_connected(case, values, environment, places):
    fill = {**values, "port": "{port}"}
    options = run_cm.parse(["--address", values["server"], *case.options,
                            "--server", case.server.format(**fill),
                            "--client", case.client.format(**fill)])
    return run_pairs(lambda: run_cm.Pair(options, environment, *places), case.pairs, case.timeout)


def run_case(case, family, environment, places):
    server, client, _, gid = FAMILIES[family]
    values = {"server": server, "client": client, "gid": gid, "address": server}
    run = {"alone": run_alone, "verbs": run_verbs, "connected": run_connected}[case.kind]
    return run(case, values, environment, places)


def run_all(chosen, library):
    failed = []
    with two_namespaces() as sides, readable_copy(library) as libraries:
        environment = dict(os.environ, LD_LIBRARY_PATH=libraries, FEROCE_DEVICES=DEVICE, HOME="/")
        places = [side.place(*as_ordinary_user()) for side in sides]
        for case, family in chosen:
            name = f"{case.name} {family}"
            print(f"=== {name}", flush=True)
            start = time.monotonic()
            good = run_case(case, family, environment, places)
            print(f"=== {name}: {'ok' if good else 'FAILED'}, {time.monotonic() - start:.1f} s",
                  flush=True)
            if not good:
                failed.append(name)
    print(f"{len(chosen)} runs, {len(failed)} failed")
    for name in failed:
        print(f"failed: {name}")
    return not failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="*", help="names to run, with * and ?")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [(case, family) for case in CASES if fnmatch.fnmatch(case.name, options.only)
              for family in (case.families if options.all else case.everyday)]
    if options.list:
        for case, family in chosen:
            print(case.name, family)
        return
    if os.geteuid() != 0:
        os.environ["FEROCE_NETNS_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--", sys.executable,
                              *sys.argv])
    sys.exit(0 if chosen and run_all(chosen, options.library) else 1)


if __name__ == "__main__":
    main()
