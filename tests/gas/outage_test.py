#!/usr/bin/env python3
"""The network between the nodes of a cluster fails for a while: outage_test.py short|long PROGRAM.

Two nodes are on one side of a bridge and the third is on the other, in namespaces of the test. The
bridge is taken down, which no interface of a node notices. Short: nodes may be silent for longer
than that, so all go on as before. Long: the third node is lost for the others; when the network is
back, nothing of it lands. Whoever is not root becomes it in namespaces of his own.
"""
import os
import subprocess
import sys
import time

OUTAGE = 5
NODES = 3
PORT = 7490
PATIENCE = 60
PLACES = {place: f"feroce-{os.getpid()}-{place}" for place in ("left", "right", "wire")}


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def become_root():
    """Where `ip netns` keeps its names is a folder of the real root's: ours lies over it."""
    if os.geteuid() != 0:
        script = 'mount -t tmpfs tmpfs /run && exec "$@"'
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--net", "--mount", "--",
                              "sh", "-c", script, "sh", sys.executable, *sys.argv])


def make_network():
    for name in PLACES.values():
        ip("netns", "add", name)
    ip("-n", PLACES["wire"], "link", "add", "bridge", "type", "bridge")
    for host, place in ((1, "left"), (2, "right")):
        ip("-n", PLACES[place], "link", "add", "net0", "type", "veth", "peer", "name", place,
           "netns", PLACES["wire"])
        ip("-n", PLACES["wire"], "link", "set", place, "master", "bridge", "up")
        ip("-n", PLACES[place], "addr", "add", f"10.78.0.{host}/24", "dev", "net0")
        ip("-n", PLACES[place], "link", "set", "lo", "up")
        ip("-n", PLACES[place], "link", "set", "net0", "up")
    connect(True)


def remove_network():
    for name in PLACES.values():
        subprocess.run(["ip", "netns", "del", name], check=False)


def connect(yes):
    ip("-n", PLACES["wire"], "link", "set", "bridge", "up" if yes else "down")


class Member:
    """A node of the cluster: it says one line after the other."""

    def __init__(self, rank, program, silence_ms):
        env = {**os.environ, "FEROCE_GAS_RANK": str(rank), "FEROCE_GAS_SIZE": str(NODES),
               "FEROCE_GAS_SEED": f"10.78.0.1:{PORT}", "FEROCE_DEVICES": "net0"}
        self.rank = rank
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", PLACES["right" if rank + 1 == NODES else "left"],
             "setpriv", "--pdeathsig", "KILL", program, str(silence_ms)],
            env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def expect(self, word):
        line = self.process.stdout.readline()
        if line.split()[:1] != [word]:
            sys.exit(f"node {self.rank} should say '{word}', and says '{line.strip()}'")
        return line

    def stop(self):
        self.process.stdin.close()

    def end(self):
        status = self.process.wait(PATIENCE)
        if status != 0:
            sys.exit(f"node {self.rank} ends with status {status}")


def short_outage(members):
    connect(False)
    time.sleep(OUTAGE)
    connect(True)
    for member in members:
        member.stop()
    print({member.expect("counted").strip() for member in members})


def long_outage(members):
    connect(False)
    for member in members:
        print(f"[{member.rank}] {member.expect('lost').strip()}")
        member.expect("meets")
    connect(True)
    # The third one first: what it does then must not be seen by the others.
    members[-1].stop()
    members[-1].end()
    # Node 0 last: the others read what it has.
    for member in reversed(members[:-1]):
        member.stop()
        member.expect("fenced")


def main():
    become_root()
    kind, program = sys.argv[1], os.path.abspath(sys.argv[2])
    make_network()
    members = []
    try:
        silence_ms = {"short": 6 * OUTAGE * 1000, "long": 500}[kind]
        members = [Member(rank, program, silence_ms) for rank in range(NODES)]
        for member in members:
            member.expect("ready")
        {"short": short_outage, "long": long_outage}[kind](members)
        for member in members:
            member.end()
    finally:
        for member in members:
            member.process.kill()
            member.process.wait()
        remove_network()


if __name__ == "__main__":
    main()
