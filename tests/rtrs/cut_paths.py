#!/usr/bin/env python3
"""Cuts the networks under a verifying load, one after the other, and kills the server.

cut_paths.py FOLDER_OF_THE_PROGRAMS [--overloaded]. Makes three network namespaces: a client and a
server with two interfaces each, and between them two bridges, which are taken down to cut a network
without either end's interface noticing. No request may fail and no byte be wrong; stalls are
reported. Overloaded, twice as many programs as there are processors do nothing but compute, and
before the first cut no path may be given up for that. Whoever is not root becomes it in namespaces
of his own.
"""
import os
import subprocess
import sys
import tempfile
import time

PORT = "7490"
RAILS = (0, 1)
PATIENCE = 60
NAMES = {place: f"feroce-{os.getpid()}-{place}" for place in ("client", "server", "wire")}


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def connect(place, host, rail):
    """An interface of a place, on the bridge of its rail."""
    near, far = f"{place[0]}{rail}", f"w{place[0]}{rail}"
    ip("-n", NAMES[place], "link", "add", near, "type", "veth", "peer", "name", far, "netns",
       NAMES["wire"])
    ip("-n", NAMES["wire"], "link", "set", far, "master", f"b{rail}", "up")
    ip("-n", NAMES[place], "addr", "add", f"10.77.{rail}.{host}/24", "dev", near)
    ip("-n", NAMES[place], "link", "set", near, "up")


def become_root():
    """Where `ip netns` keeps its names is a folder of the real root's: ours lies over it."""
    if os.geteuid() != 0:
        script = 'mount -t tmpfs tmpfs /run && exec "$@"'
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--net", "--mount", "--",
                              "sh", "-c", script, "sh", sys.executable, *sys.argv])


def make_network():
    for name in NAMES.values():
        ip("netns", "add", name)
    for rail in RAILS:
        ip("-n", NAMES["wire"], "link", "add", f"b{rail}", "type", "bridge")
        ip("-n", NAMES["wire"], "link", "set", f"b{rail}", "up")
        connect("client", 1, rail)
        connect("server", 2, rail)


def remove_network():
    for name in NAMES.values():
        subprocess.run(["ip", "netns", "del", name], check=False)


def cut(rail, yes):
    ip("-n", NAMES["wire"], "link", "set", f"b{rail}", "down" if yes else "up")


def start(place, *command, **options):
    return subprocess.Popen(["ip", "netns", "exec", NAMES[place], *command], text=True, **options)


class Load:
    def __init__(self, folder):
        addresses = [f"10.77.{rail}.2" for rail in RAILS]
        self.process = start("client", f"{folder}/session_load", PORT, *addresses,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.line = (0, 0, 0, 0, 0, 0)

    def read(self):
        text = self.process.stdout.readline()
        if not text:
            sys.exit(f"the load ended early with {self.process.wait()}")
        self.line = tuple(int(word) for word in text.split())
        return self.line[0]

    def go_on(self, what, least=10):
        """Until the load has done something after `what` was done to it, for ten lines a second."""
        begin, end = self.read(), time.monotonic() + PATIENCE
        lines = 0
        while lines < least or self.line[0] < begin + 50:
            self.read()
            lines += 1
            if time.monotonic() > end:
                sys.exit(f"after {what} nothing went on: {self.line}")
        operations, errors, wrong, failovers, slowest, pause = self.line
        print(f"{what}: {operations} operations, {errors} errors, {wrong} wrong, {failovers} "
              f"failovers; slowest request {slowest} ms, longest pause {pause} ms", flush=True)
        if errors or wrong:
            sys.exit(1)

    def finish(self):
        self.process.stdin.close()
        while self.process.stdout.readline():
            pass
        return self.process.wait(PATIENCE)


def keep_busy():
    """Processes that take whatever processor time they get."""
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(2 * os.cpu_count())]


def start_server(folder, disk):
    return start("server", "setpriv", "--pdeathsig", "KILL", f"{folder}/session_disk", PORT, disk)


def run(folder, disk, overloaded):
    server = start_server(folder, disk)
    load, busy = None, []
    try:
        for _ in range(50):  # The load may come before the server listens.
            load = Load(folder)
            if load.process.stdout.readline():
                break
            load.process.wait()
        load.go_on("start")
        if overloaded:
            busy = keep_busy()
            load.go_on("overloaded", least=100)
            if load.line[3] > 0:
                sys.exit("a path was given up although its network worked")
        for rail in RAILS:
            cut(rail, True)
            load.go_on(f"network {rail} cut")
            cut(rail, False)
            load.go_on(f"network {rail} restored")
        server.kill()
        server.wait()
        server = start_server(folder, disk)
        load.go_on("server killed and started again")
        return load.finish()
    finally:
        server.kill()
        server.wait()
        if load is not None:
            load.process.kill()
        for process in busy:
            process.kill()
            process.wait()


def main():
    become_root()
    make_network()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            sys.exit(run(os.path.abspath(sys.argv[1]), f"{scratch}/disk",
                         "--overloaded" in sys.argv))
    finally:
        remove_network()


if __name__ == "__main__":
    main()
