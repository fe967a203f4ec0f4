"""wireprobe in both directions: each operation once, and what each side printed compared.

What the client (or the server) sees must not depend on whether it stands on Feroce or on rxe. Where
it does, wire_differences.txt says so and why; a difference that is not there fails, and so does a
line there that no longer happens.
"""
import fnmatch
import itertools
import shutil

from lab import ADDRESS, HERE, PAIR_SECONDS, other, wait_until

PROBES = ["connect", "send", "sendimm", "sendinv", "write", "writeimm", "read", "atomic", "rnr",
          "rnrfail", "badrkey", "badread", "noaccess", "toolong", "badrecv", "stream", "reject",
          "hangup", "killed", "connect", "ud", "orphan"]
MEANING = {"hangup": "the server disconnects", "killed": "the client is killed",
           "orphan": "the server is killed", "connect": "the client disconnects"}


class Rule:
    """Where (probe and role, * for any), rxe's text, our text, the reason."""

    def __init__(self, line):
        self.line = line
        self.where, self.theirs, self.ours, self.reason = (x.strip() for x in line.split("|"))
        self.is_used = False

    def fits(self, probe, role):
        return fnmatch.fnmatch(f"{probe} {role}", self.where)


def read_rules():
    lines = (HERE / "wire_differences.txt").read_text().splitlines()
    return [Rule(line) for line in lines if line and not line.startswith("#")]


def explain(rules, theirs, ours):
    """Whether the rules turn rxe's line into ours; None is a line that is not there."""
    text, used = theirs or "", []
    for rule in rules:
        if rule.theirs and rule.theirs in text:
            text = text.replace(rule.theirs, rule.ours)
            used.append(rule)
        elif not rule.theirs and theirs is None and rule.ours == ours:
            text = ours
            used.append(rule)
        if text == ours:
            for helpful in used:
                helpful.is_used = True
            return True
    return False


def compare(rules, probe, role, theirs, ours):
    """Problems of one probe: lines printed on rxe and on Feroce, in the same role."""
    fitting = [rule for rule in rules if rule.fits(probe, role)]
    return [f"{probe}, {role}: rxe prints '{a}', Feroce '{b}'"
            for a, b in itertools.zip_longest(theirs, ours)
            if a != b and not explain(fitting, a, b)]


class Direction:
    """All probes with the client on one side, over one address family."""

    def __init__(self, lab, client, family):
        self.lab = lab
        self.client, self.server = client, other(client)
        self.family = family
        self.program = {"feroce": str(lab.vm.build / "tests/interop/wireprobe"),
                        "rxe": "/share/wireprobe"}
        self.problems = {}
        self.printed = {"client": {}, "server": {}}
        self.job = None
        self.port = 0

    def start_server(self, role="server"):
        self.port = self.lab.next_port()
        address = ADDRESS[self.server][self.family]
        self.job = self.lab.start(
            self.server, f"{self.program[self.server]} {role} {address} {self.port}")
        space = "udp" if role == "udserver" else "tcp"
        self.lab.wait_for_listener(self.server, self.port, self.job, space)

    def stop_server(self):
        self.job.kill()
        sections = self.job.output().split("probe ")[1:]
        for section in sections:
            name, *lines = section.splitlines()
            self.printed["server"][name] = lines

    def run_client(self, probe):
        address = ADDRESS[self.server][self.family]
        job = self.lab.start(
            self.client, f"{self.program[self.client]} client {address} {self.port} {probe}")
        problems = []
        if probe in ("killed", "orphan"):
            victim = job if probe == "killed" else self.job
            if not wait_until(lambda: "ready" in job.output() or not job.is_running(),
                              PAIR_SECONDS):
                problems.append("the client never became ready")
            victim.kill()
        if probe != "killed":
            status, output = job.finish(PAIR_SECONDS)
            if status != 0:
                problems.append(f"client status {status}")
            self.printed["client"][probe] = output.splitlines()
        self.problems[probe] = problems

    def run(self):
        self.start_server()
        for probe in PROBES:
            if probe == "ud":
                self.stop_server()
                self.start_server("udserver")
            elif probe == "orphan":
                self.stop_server()
                self.start_server()
            self.run_client(probe)


def run(lab, client, family):
    direction = Direction(lab, client, family)
    try:
        direction.run()
    finally:
        if direction.job is not None and direction.job.is_running():
            direction.job.kill()
    return direction


def prepare(lab):
    shutil.copy(lab.vm.build / "tests/interop/wireprobe", lab.vm.share)


def judge(rules, directions):
    """Adds to the directions' problems where their transcripts differ; Feroce's and rxe's
    direction of one family."""
    for role in ("client", "server"):
        sides = {(d.client if role == "client" else d.server): d for d in directions}
        for probe in dict.fromkeys(PROBES):
            lines = {side: d.printed[role].get(probe, []) for side, d in sides.items()}
            # The server of `orphan` is the one that is killed, and says nothing that lasts.
            if role == "server" and probe == "orphan":
                continue
            found = compare(rules, probe, role, lines["rxe"], lines["feroce"])
            for text in lines.values():
                found += [line for line in text if line.startswith("FAILED")]
            sides["feroce"].problems[probe] += found


def unused(rules):
    return [f"this difference no longer happens: {rule.line}" for rule in rules if not rule.is_used]
