#!/usr/bin/env python3
"""`feroce doctor` beside a program that opens a device: both must come to the same answer, for root
and an ordinary user, whoever has UDP port 4791: doctor_test.py FOLDER_OF_FEROCE. Exit status 77:
not here."""
import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from own_network import enter_own_network

PATIENCE = 60
ROOT, USER, OTHER = 0, 65534, 65533
NONE, ALONE, ANY = {}, {"FEROCE_SHARE": "user"}, {"FEROCE_SHARE": "any"}


def run_as(user, words, **options):
    """Popen of a program of that user."""
    return subprocess.Popen(words, user=user, group=user, extra_groups=[], text=True, **options)


class Place:
    """Feroce where every user may run it, and environments without settings of ours."""

    def __init__(self, folder, scratch):
        for part in "bin", "lib":
            shutil.copytree(os.path.join(folder, "..", part), os.path.join(scratch, part),
                            symlinks=True)
        self.scratch = scratch
        self.feroce = os.path.join(scratch, "bin", "feroce")
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("FEROCE_")}
        self.environment["FEROCE_DEVICES"] = "lo"

    def call(self, user, words, settings):
        child = run_as(user, words, env=self.environment | settings, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, cwd="/")
        out, err = child.communicate(timeout=PATIENCE)
        return child.returncode, out, err

    def program_opens(self, user, settings):
        status, out, err = self.call(
            user, [self.feroce, "run", "--", "ibv_devinfo", "-d", "feroce_lo"], settings)
        assert (status == 0) == ("PORT_ACTIVE" in out), (status, out, err)
        return status == 0, err

    def doctor_says(self, user, settings):
        """Whether it says that devices open, and the sentences that say why not."""
        status, out, err = self.call(user, [self.feroce, "-j", "doctor"], settings)
        assert status in (0, 1), (status, out, err)
        findings = json.loads(out)
        stops = [f for f in findings if f["verdict"] == "stop"]
        others = [f for f in stops if f["topic"] not in ("open", "port")]
        assert not others, f"this machine is not fit for the test: {others}"
        assert (status == 1) == bool(stops), (status, findings)
        return not stops, stops, findings


@contextlib.contextmanager
def ended(child):
    try:
        assert child.stdout.readline(), "the holder of the port has begun"
        yield child
    finally:
        child.kill()
        child.wait()


def feroce_of(place, user, settings=NONE):
    """A process on Feroce of that user, which holds the port."""
    words = [place.feroce, "run", "--", os.path.join(place.scratch, "bin", "bad_access"), "--wait"]
    return ended(run_as(user, words, env=place.environment | settings, cwd="/",
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL))


def stranger_of(user):
    """A program that is not Feroce, with the port."""
    # The kernel remembers the user that makes a socket.
    os.seteuid(user)
    mine = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    os.seteuid(ROOT)
    mine.bind(("0.0.0.0", 4791))
    holder = run_as(user, ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    pass_fds=[mine.fileno()], cwd="/")
    mine.close()
    holder.stdin.write("holds\n")
    holder.stdin.flush()
    return ended(holder)


# Who has the port, and with which settings it is tried then.
HOLDERS = {
    "nobody": (lambda _: contextlib.nullcontext(), [NONE]),
    "root on Feroce": (lambda place: feroce_of(place, ROOT), [NONE, ALONE, ANY]),
    "user on Feroce": (lambda place: feroce_of(place, USER), [NONE, ALONE, ANY]),
    "another user on Feroce": (lambda place: feroce_of(place, OTHER), [NONE, ANY]),
    "root alone on Feroce": (lambda place: feroce_of(place, ROOT, ALONE), [NONE]),
    "user alone on Feroce": (lambda place: feroce_of(place, USER, ALONE), [ANY]),
    "a stranger of root": (lambda _: stranger_of(ROOT), [NONE]),
    "a stranger of user": (lambda _: stranger_of(USER), [NONE]),
}


def await_free_port():
    give_up = time.monotonic() + PATIENCE
    while True:
        with open("/proc/net/udp", encoding="ascii") as table:
            if ":12B7 " not in table.read():
                return
        assert time.monotonic() < give_up, "the port is not given back"
        time.sleep(0.02)


def compare(place, who, user, settings):
    opens, told = place.program_opens(user, settings)
    says, stops, findings = place.doctor_says(user, settings)
    case = f"user {user}, {who} has the port, {settings or 'no settings'}"
    assert opens == says, f"{case}: a program {'opens' if opens else 'does not open'} the device " \
                          f"({told}), and doctor says {findings}"
    if opens:
        return True
    # In the words that the program is told.
    sentence = told.split("error: feroce_lo: ")[1].split("\n")[0]
    assert any(sentence in f["sentence"] for f in stops), f"{case}: {sentence}: {stops}"
    return False


def check_sentences(place):
    """What newcomers read: who it is, and what to do."""
    with feroce_of(place, USER):
        _, stops, _ = place.doctor_says(ROOT, {})
        assert any("FEROCE_SHARE=any" in f["mend"] for f in stops), stops
    await_free_port()
    with feroce_of(place, ROOT):
        _, _, findings = place.doctor_says(USER, {})
        assert any("user 0 on Feroce, whose guests programs are" in f["sentence"]
                   for f in findings), findings
    await_free_port()
    with stranger_of(USER) as holder:
        _, stops, _ = place.doctor_says(ROOT, {})
        assert any(f["mend"] == f"kill {holder.pid}" for f in stops), stops
    await_free_port()


def check_settings(place):
    """What a program refuses, doctor refuses; and it touches no capture."""
    for settings in ({"FEROCE_FAULTS": "lose=1"}, {"FEROCE_SHARE": "all"}, {"FEROCE_LOG": "loud"},
                     {"FEROCE_PCAP": os.path.join(place.scratch, "none", "x")}):
        opens, _ = place.program_opens(ROOT, settings)
        says, stops, _ = place.doctor_says(ROOT, settings)
        name = next(iter(settings))
        assert not opens and not says, (settings, opens, says)
        assert any(f["mend"] == f"unset {name}" for f in stops), stops
    capture = os.path.join(place.scratch, "capture")
    with open(capture, "w", encoding="ascii") as file:
        file.write("of a program that has ended")
    assert place.doctor_says(ROOT, {"FEROCE_PCAP": capture})[0]
    for words in ["dev"], ["stat"]:
        status, _, err = place.call(ROOT, [place.feroce, *words], {"FEROCE_PCAP": capture})
        assert status == 0, err
    with open(capture, encoding="ascii") as file:
        assert file.read() == "of a program that has ended", "a look has emptied the capture"


def main():
    if os.geteuid() != 0:
        print("only root can be several users")
        return 77
    if not enter_own_network():
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        place = Place(os.path.abspath(sys.argv[1]), scratch)
        answers = []
        for who, (hold, tried) in HOLDERS.items():
            with hold(place):
                for user, settings in itertools.product((ROOT, USER), tried):
                    answers.append(compare(place, who, user, settings))
            await_free_port()
        assert True in answers and False in answers, "both happen"
        print(f"{len(answers)} cases, {answers.count(True)} of them open")
        check_sentences(place)
        check_settings(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
