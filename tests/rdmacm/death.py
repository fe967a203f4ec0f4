#!/usr/bin/env python3
"""A process with an idle rdma_cm connection ends, in every way there is: its peer is told.

death.py --program MORTAL --library DIR
On one host the peer itself is what has survived. Between two hosts it is a process that only has
a device open, beside the one that dies; where there is none, the peer notices by itself: it
asks, and sooner if what it sends is refused (ICMP).
FEROCE_TEST_ROUNDS asks for more than one round; the last line says how long the slowest took.
"""
import argparse
import contextlib
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "netns"))
import namespaces  # noqa: E402  (found by the path above)

PATIENCE = 30  # Generous: the machine may be busy. What counts is that the event comes.
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL}
WAYS = ("exit", "exec", "segv", *SIGNALS)
# A peer that is asked has about 5 s to answer. A thread that had no core for a fifth of that may be
# why it did not.
STARVED_SECONDS = 1
STARVED_ROUNDS = 5
ROUNDS = int(os.environ.get("FEROCE_TEST_ROUNDS", "1"))


class Mortal:
    """One of the processes, whose words are read as they come."""

    def __init__(self, place, environment, program, *words):
        self.name = words[0]
        self.process = subprocess.Popen([*place, program, *words], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.words = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.words.put(line.strip())

    def expect(self, word):
        deadline = time.monotonic() + PATIENCE
        heard = []
        while word not in heard:
            try:
                heard.append(self.words.get(timeout=max(0.01, deadline - time.monotonic())))
            except queue.Empty:
                sys.exit(f"{self.name}: waited {PATIENCE} s for {word}, heard {heard}")

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def die(self, way):
        if way in SIGNALS:
            self.process.send_signal(SIGNALS[way])
        else:
            self.tell(way)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()


def one_death(start, way, victim, bystander, then=None):
    """What the peer does then may be refused by the machine of the dead: it waits for its end."""
    mortals = []
    try:
        if bystander:
            mortals.append(start(0 if victim == "server" else 1, "bystander"))
            mortals[-1].expect("open")
        server = start(0, "server")
        mortals.append(server)
        server.expect("listening")
        client = start(1, "client")
        mortals.append(client)
        client.expect("connected")
        server.expect("accepted")
        dying, peer = (server, client) if victim == "server" else (client, server)
        dying.die(way)
        if then:
            dying.process.wait(PATIENCE)
            peer.tell(then)
        began = time.monotonic()
        peer.expect("RDMA_CM_EVENT_DISCONNECTED")
        seconds = time.monotonic() - began
        what = f"{way} of the {victim}" + (f", {then}" if then else "")
        print(f"{what}, told after {seconds:.2f} s", flush=True)
        return seconds
    finally:
        for mortal in reversed(mortals):
            mortal.close()


def source_ports(side):
    """From which UDP sockets the client's packets leave, in its namespace."""
    octets = namespaces.FAMILIES["ipv4"][1].split(".")
    ours = "".join(f"{int(octet):02X}" for octet in reversed(octets))
    table = subprocess.run([*side.place(), "cat", "/proc/net/udp"], check=True, text=True,
                           capture_output=True).stdout
    locals_ = [line.split()[1].split(":") for line in table.splitlines()[1:]]
    return [int(port, 16) for address, port in locals_ if address == ours]


def waited_for_core(mortals):
    """The most seconds that a thread of theirs was ready to run and had no core."""
    waits = [0.0]
    for mortal in mortals:
        for path in pathlib.Path(f"/proc/{mortal.process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # A thread that has just ended.
                waits.append(int(path.read_text(encoding="ascii").split()[1]) / 1e9)
    return max(waits)


def forgeries(start, sides):
    """A peer that had no core cannot answer: that it is held for dead then shows nothing."""
    for _ in range(STARVED_ROUNDS):
        if one_forgery(start, sides, answers=True):
            break
    else:
        sys.exit(f"forged: in {STARVED_ROUNDS} rounds there was no core for those that answer")
    one_forgery(start, sides, answers=False)


def one_forgery(start, sides, answers):
    """A peer that answers is kept, whatever is said in its name for longer than a dead one has. One
    that is stopped is not, which shows that the forger is heard. False: it could not answer."""
    server = start(0, "server")
    mortals = [server]
    try:
        server.expect("listening")
        client = start(1, "client")
        mortals.append(client)
        client.expect("connected")
        ports = source_ports(sides[1])
        if not ports:
            sys.exit("the client sends from no socket of its own")
        forger = [sys.executable, pathlib.Path(__file__).with_name("forge_unreachable.py")]
        machine, victim = namespaces.FAMILIES["ipv4"][:2]
        if not answers:
            server.process.send_signal(signal.SIGSTOP)
        said = subprocess.run([*sides[0].place(), *forger, machine, victim, "7"], check=True,
                              text=True, input="\n".join(map(str, ports)), capture_output=True)
        if not answers:
            client.expect("RDMA_CM_EVENT_DISCONNECTED")
            print(f"{said.stdout.strip()} forged messages in the name of one that is stopped")
            return True
        if not client.words.empty():
            starved = waited_for_core(mortals)
            if starved < STARVED_SECONDS:
                sys.exit(f"forged: the client heard {client.words.get()}")
            print(f"for {starved:.1f} s there was no core, so once more", flush=True)
            return False
        client.tell("write")  # The connection is as good as before.
        client.expect("written")
        print(f"{said.stdout.strip()} forged messages for {len(ports)} sockets, and no end")
        server.process.stdin.close()
        client.expect("RDMA_CM_EVENT_DISCONNECTED")
        return True
    finally:
        for mortal in reversed(mortals):
            mortal.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--library", required=True)
    options = parser.parse_args()
    namespaces.enter_user_namespace()
    environment = dict(os.environ, LD_LIBRARY_PATH=options.library)
    for nonsense in ("soon", "-1", "1.5", "5s", "86401", "99999999999999999999"):
        wishes = dict(environment, FEROCE_KEEPALIVE=nonsense, FEROCE_DEVICES="lo")
        refused = subprocess.run([options.program, "bystander"], stdin=subprocess.DEVNULL,
                                 env=wishes)
        if refused.returncode != 1:
            sys.exit(f"a device was opened with FEROCE_KEEPALIVE={nonsense}")
    with namespaces.two_namespaces() as sides:
        def starter(family, together, keepalive="0"):
            address = namespaces.FAMILIES[family][0]
            device = "lo" if together else namespaces.DEVICE
            address = {"ipv4": "127.0.0.1", "ipv6": "::1"}[family] if together else address

            def start(side, role):
                words = [role] if role == "bystander" else [role, address, "7471"]
                place = sides[0 if together else side].place()
                wishes = dict(environment, FEROCE_DEVICES=device, FEROCE_KEEPALIVE=keepalive)
                return Mortal(place, wishes, options.program, *words)
            return start

        print("on one host:")
        slowest = 0
        for way in WAYS * ROUNDS:
            took = one_death(starter("ipv4", True), way, "server", bystander=False)
            slowest = max(slowest, took)
        one_death(starter("ipv6", True), "SIGKILL", "client", bystander=False)
        print("between two hosts:")
        for way in WAYS * ROUNDS:
            took = one_death(starter("ipv4", False), way, "server", bystander=True)
            slowest = max(slowest, took)
        one_death(starter("ipv6", False), "SIGKILL", "client", bystander=True)
        print("between two hosts, with nobody left:")
        one_death(starter("ipv4", False, keepalive="3"), "SIGKILL", "server", bystander=False)
        print("with nobody left, and an hour until the next question:")
        for family in namespaces.FAMILIES:
            for then in ("write", "knock"):
                one_death(starter(family, False, keepalive="10800"), "SIGKILL", "server",
                          bystander=False, then=then)
        forgeries(starter("ipv4", False, keepalive="10800"), sides)
        print(f"the slowest of {ROUNDS} rounds with somebody left took {slowest:.2f} s")


if __name__ == "__main__":
    main()
