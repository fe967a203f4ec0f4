"""Sessions between rtrs/ and the kernel's RTRS, in both roles, over two paths.

What the kernel says about its end is read from its sysfs, what ours says from session_peer, and
what passed between them from captures of both rails, which are compared with the golden capture of
two kernels: the same messages, of the same sizes, with the same immediates, in the same order.
"""
import collections
import contextlib
import subprocess

import wire
from lab import ADDRESS, HERE, PAIR_SECONDS, SECOND, TAPS, Failure, wait_until

GOLDEN = HERE.parent / "golden/data"
PORT = 1234  # RNBD's; its server takes no other without being told.
KERNEL_SESSION, OUR_SESSION = "from-kernel", "from-feroce"
RAILS = [{side: families["IPv4"] for side, families in ADDRESS.items()}, SECOND]
CLIENT_PATHS = f"/sys/class/rtrs-client/{KERNEL_SESSION}/paths"
SERVER_PATHS = f"/sys/class/rtrs-server/{OUR_SESSION}/paths"
# A beat every 5 s, and a path that was cut is held for dead, by the kernel, after 30 to 35 s.
PATIENCE = 90


class Peer:
    """session_peer on the host: lines in, lines out."""

    def __init__(self, lab, *words):
        self.path = lab.work / f"session-{words[0]}.out"
        program = str(lab.vm.build / "tests/interop/session_peer")
        environment = dict(lab.vm.environment, FEROCE_DEVICES="br0,br1")
        with open(self.path, "w") as output:
            self.process = subprocess.Popen(
                [*lab.vm.base, "ns", program, *words], env=environment, text=True,
                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(PAIR_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def output(self):
        return self.path.read_text()

    def expect(self, text, times=1):
        if not wait_until(lambda: self.output().count(text) >= times
                          or self.process.poll() is not None, PATIENCE):
            raise Failure(f"session_peer never printed '{text}':\n{self.output()}")
        if self.output().count(text) < times:
            raise Failure(f"session_peer ended:\n{self.output()}")

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def ask(self, command, last):
        """The lines that the command makes it print, the last of which has this text."""
        before = len(self.output())
        self.tell(command)
        if not wait_until(lambda: last in self.output()[before:], PAIR_SECONDS):
            raise Failure(f"session_peer does not answer '{command}':\n{self.output()}")
        return self.output()[before:]

    def wait_for(self, command, last, test, what):
        if not wait_until(lambda: test(self.ask(command, last)), PATIENCE, 0.5):
            raise Failure(f"{what}:\n{self.output()[-1000:]}")


# ---- the wire -------------------------------------------------------------------------------

FIELDS = ["ip.src", "udp.length", "infiniband.bth.opcode", "infiniband.bth.padcnt",
          "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.immdt",
          "infiniband.mad.attributeid", "infiniband.mad.transactionid"]
MESSAGES = {0x0010: "REQ", 0x0012: "REJ", 0x0013: "REP", 0x0014: "RTU", 0x0015: "DREQ",
            0x0016: "DREP"}
# By opcode: name, bytes of headers behind the BTH, whether the message ends.
OPERATIONS = {0: ("SEND", 0, False), 1: ("SEND", 0, False), 2: ("SEND", 0, True),
              4: ("SEND", 0, True), 5: ("SEND WITH IMM", 4, True), 6: ("WRITE", 16, False),
              7: ("WRITE", 0, False), 8: ("WRITE", 0, True), 9: ("WRITE WITH IMM", 4, True),
              10: ("WRITE", 16, True), 11: ("WRITE WITH IMM", 20, True),
              23: ("SEND WITH INV", 4, True)}
FRAME = 8 + 12 + 4  # UDP, BTH, ICRC.


def meaning(immediate):
    """An immediate in words, without the chunk's number, which is the client's choice."""
    kind, payload = immediate >> 28, immediate & 0xfffffff
    names = {0: f"request at {payload & 0x7ffff}", 8: "heartbeat", 9: "heartbeat answer"}
    return names.get(kind, f"response {kind} errno {payload >> 19}")


def exchange(path, client):
    """Who sent what, each message once and without acknowledgements: C or S and words."""
    command = ["tshark", "-r", str(path), "-T", "fields", "-E", "separator=,", "-E", "occurrence=f"]
    for name in wire.HEURISTICS:
        command += ["--disable-protocol", name]
    for field in FIELDS:
        command += ["-e", field]
    # A capture that is still being written ends in the middle of a block.
    rows = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    sizes, seen, events = collections.Counter(), set(), []
    for source, length, opcode, pad, pair, psn, immediate, attribute, transaction in (
            row.split(",") for row in rows.splitlines()):
        who = "C" if source == client else "S"
        key = (who, attribute, transaction) if attribute else (who, pair, psn)
        if not opcode or key in seen or (not attribute and int(opcode) not in OPERATIONS):
            continue
        seen.add(key)
        if attribute:
            events.append(f"{who} {MESSAGES.get(int(attribute, 0), attribute)}")
            continue
        name, header, ends = OPERATIONS[int(opcode)]
        sizes[who, pair] += int(length) - FRAME - header - int(pad)
        if ends:
            words = f" {meaning(int(immediate, 16))}" if immediate else ""
            events.append(f"{who} {name} of {sizes.pop((who, pair))}{words}")
    return events


def connections(events):
    """How many connections the events begin with, and the rest."""
    count = 0
    while events[3 * count:3 * count + 3] == ["C REQ", "S REP", "C RTU"]:
        count += 1
    return count, events[3 * count:]


BEATS = [f"{who} WRITE WITH IMM of 0 {beat}" for who in "CS"
         for beat in ("heartbeat", "heartbeat answer")]


def missing_beats(captures, client_side):
    return [f"{capture.name}: no {beat}" for capture, rail in zip(captures, RAILS)
            for beat in set(BEATS).difference(exchange(capture, rail[client_side]))]


def compare(captures, client_side, our_habits):
    """Problems: where the rails differ from the golden capture, changed by our habits."""
    _, golden = connections(exchange(GOLDEN / "rtrs-connect-v4.pcapng", "198.51.100.11"))
    setup, info = golden[:2], golden[2:6]
    setup, info = ([our_habits.get(event, event) for event in part] for part in (setup, info))
    info = [event for event in info if event]
    problems, answered = [], 0
    for capture, rail in zip(captures, RAILS):
        count, rest = connections(exchange(capture, rail[client_side]))
        if count < 2 or rest[:2] != setup:
            problems.append(f"{capture.name}: {count} connections, then {rest[:2]}, not {setup}")
        told = [event for event in rest[2:] if event not in BEATS]
        answered += told[:len(info)] == info
    if answered == 0:
        problems.append(f"no rail shows the golden exchange of session info: {info}")
    return problems + missing_beats(captures, client_side)


@contextlib.contextmanager
def both_captured(lab, name):
    paths = [lab.work / "capture" / f"{name}-{rail}.pcapng" for rail in range(len(RAILS))]
    with contextlib.ExitStack() as stack:
        for tap, path in zip(TAPS, paths):
            stack.enter_context(wire.Capture(lab.vm.base, tap, path))
        yield paths


# ---- the kernel as client -------------------------------------------------------------------

def on_guest_until(lab, test, what):
    if not wait_until(lambda: lab.vm.on_guest(f"{test} && echo yes || echo no").endswith("yes"),
                      PATIENCE, 0.3):
        raise Failure(f"{what}: {test}\n" + lab.vm.on_guest("dmesg | tail -20"))


def wait_for_beats(captures, client_side):
    wait_until(lambda: not missing_beats(captures, client_side), PATIENCE, 1)


def kernel_client(lab, captures, keys=()):
    """The guest's rnbd-client maps a disk of ours, which we refuse in the end."""
    paths = " ".join(f"path=ip:{rail['rxe']}@ip:{rail['feroce']}" for rail in RAILS)
    first = f"{CLIENT_PATHS}/*{RAILS[0]['rxe']}*"
    up = f"test $(cat {CLIENT_PATHS}/*/state | grep -c '^connected') = {len(RAILS)}"
    beaten = f"! cat {CLIENT_PATHS}/*/cur_latency | grep -q '^0 ns'"
    with Peer(lab, "server", str(PORT), *keys) as peer:
        peer.expect("listens")
        job = lab.start("rxe", "modprobe rnbd-client && echo 'sessname=" + KERNEL_SESSION
                        + f" {paths} device_path=/none' >/sys/class/rnbd-client/ctl/map_device")
        peer.expect(f"info of {KERNEL_SESSION}: version 2")
        peer.expect("open\n")
        on_guest_until(lab, up, "not all paths of the kernel are up")
        on_guest_until(lab, beaten, "the kernel's heartbeats are not answered")
        lab.vm.on_guest(f"echo 1 >$(echo {first}/disconnect)")
        peer.wait_for("paths", "sessions", lambda text: text.startswith("1 paths"),
                      "a path that the kernel disconnects is not closed here")
        lab.vm.on_guest(f"echo 1 >$(echo {first}/reconnect)")
        on_guest_until(lab, up, "the kernel's path does not come back")
        on_guest_until(lab, beaten, "the kernel's heartbeats are not answered")
        wait_for_beats(captures, "rxe")
        # What was under way on the path was sent again, and is refused again.
        if not wait_until(lambda: not job.is_running() or peer.tell("refuse"), PATIENCE, 0.5):
            raise Failure("the kernel waits for ever:\n" + lab.vm.on_guest("dmesg | tail -20"))
        status, output = job.finish(1)
        if status == 0:
            raise Failure(f"the kernel mapped a disk that was refused: {output}")
        peer.wait_for("paths", "sessions", lambda text: text.startswith("0 paths, 0 sessions"),
                      "the kernel's session does not end here")


# ---- the kernel as server -------------------------------------------------------------------

def all_up(text, connects=1):
    lines = text.splitlines()[:-1]
    return len(lines) == len(RAILS) and all(
        " up after" in line and int(line.split(" after ")[1].split()[0]) >= connects
        and " 0 us" not in line for line in lines)


def kernel_server(lab, captures):
    """Our client at the guest's rnbd-server: info, heartbeats, and a path lost in three ways."""
    addresses = [rail["rxe"] for rail in RAILS]
    first = f"{SERVER_PATHS}/*{RAILS[0]['rxe']}*"
    lab.vm.on_guest("modprobe rnbd-server")
    with Peer(lab, "client", str(PORT), OUR_SESSION, *addresses) as peer:
        peer.expect("open\n")
        peer.wait_for("paths", "end\n", all_up, "not all paths are up and alive")
        peer.ask("info", "info: type 1, version 2")
        on_guest_until(lab, f"test $(ls {SERVER_PATHS} | wc -l) = {len(RAILS)}",
                       "the kernel does not show our paths")
        lab.vm.on_guest(f"echo 1 >$(echo {first}/disconnect)")
        peer.wait_for("paths", "end\n", lambda text: "up after 2 connects" in text,
                      "a path that the kernel closed does not come back")
        peer.tell("disconnect 1")
        peer.wait_for("paths", "end\n", lambda text: f"{addresses[1]} down" in text,
                      "a path does not go down")
        peer.ask("info", "info: type 1, version 2")
        peer.tell("reconnect 1")
        peer.wait_for("paths", "end\n", lambda text: all_up(text, 2),
                      "a path that we disconnected does not come back")
        lab.vm.call("ns", "ip", "link", "set", TAPS[1], "down")
        peer.wait_for("paths", "end\n", lambda text: f"{addresses[1]} down" in text,
                      "a cut path is not noticed")
        peer.ask("info", "info: type 1, version 2")
        lab.vm.call("ns", "ip", "link", "set", TAPS[1], "up")
        peer.wait_for("paths", "end\n", all_up, "a cut path does not come back")
        wait_for_beats(captures, "feroce")
        peer.ask("info", "info: type 1, version 2")
    on_guest_until(lab, f"test ! -e {SERVER_PATHS}", "our session does not end at the kernel")
    lab.vm.on_guest("modprobe -r rnbd-server rtrs-server")


# What a side of ours does otherwise than the kernel, by the golden event; empty: not at all.
INFO_OF_ONE_REGION = {"S SEND of 8200": "S SEND of 24",
                      "S SEND WITH IMM of 8 response 2 errno 0":
                          "S WRITE WITH IMM of 0 response 2 errno 0"}
NO_INVALIDATION = {"S SEND WITH INV of 0": "",
                   "S SEND WITH IMM of 8 response 2 errno 0":
                       "S SEND WITH IMM of 8 response 1 errno 0"}
CASES = {
    "sessions: the kernel's rnbd-client": ("rxe", kernel_client, INFO_OF_ONE_REGION),
    "sessions: the kernel's rnbd-client, fresh keys": (
        "rxe", lambda lab, captures: kernel_client(lab, captures, ("keys",)), {}),
    "sessions: the kernel's rnbd-server": ("feroce", kernel_server, NO_INVALIDATION),
}


def run(lab, table):
    for number, (what, (client, case, habits)) in enumerate(CASES.items()):
        problems = []
        with both_captured(lab, f"sessions{number}") as captures:
            try:
                case(lab, captures)
            except Failure as failure:
                problems.append(str(failure))
        problems += compare(captures, client, habits)
        report = wire.read(captures[0])
        print("FAIL" if problems else "ok  ", what, report, *problems, flush=True)
        table.add(what, client, "IPv4", report, problems)
