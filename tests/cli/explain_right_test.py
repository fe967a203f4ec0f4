#!/usr/bin/env python3
"""`feroce explain` is right or says nothing: explain_right_test.py FOLDER_OF_FEROCE PLANTED_FAULT
CASE. Exit status 77: not here."""
import contextlib
import errno
import os
import subprocess
import sys
import time

import explain_test

SLOT_SHIFT = 15  # Of a QPN: the bits above are its process's slot.


class Case:
    """What every case uses: the command, the program that goes wrong, and what it started."""

    def __init__(self, folder, program):
        self.feroce = os.path.join(os.path.abspath(folder), "feroce")
        self.program = program
        self.stack = contextlib.ExitStack()

    def start(self, role, name, device="feroce_lo", index="0", environment=None):
        environment = environment or {}
        fault = explain_test.Fault(name, "", [], [], environment, environment)
        end = explain_test.End(self.feroce, self.program, role, fault, device, index)
        self.stack.callback(end.process.wait)
        self.stack.callback(end.process.kill)
        return end

    def connected(self, name):
        """Two ends that wait for a word; with each where it is."""
        ends = [self.start(role, name) for role in ("initiator", "target")]
        places = [end.hear() for end in ends]
        for end, place in zip(ends, reversed(places)):
            end.tell(place)
        for end in ends:
            assert end.hear() == "ready\n"
        return [*ends, *places]

    def kill(self, end):
        end.process.kill()
        end.process.wait()

    def explain(self, *words):
        return explain_test.explain(self.feroce, *words)


def contains(text, *wanted):
    for words in wanted:
        assert words in text, f"`{words}` is not in: {text}"


def slot(place):
    return int(place.split()[0], 16) >> SLOT_SHIFT


def attribution(case):
    """A server is killed. Unrelated programs that get its slot and are killed are not blamed."""
    initiator, target, _, place = case.connected("killed")
    case.kill(target)
    initiator.tell("go\n")
    assert initiator.hear() == "done 12\n"
    for _ in range(14):
        innocent = case.start("target", "killed")
        taken = slot(innocent.hear())
        case.kill(innocent)
        said = case.explain(initiator.pid)
        contains(said, f"(pid {target.pid}, ended): the process ended without closing QP 0x")
        assert f"pid {innocent.pid}" not in said, said
        assert case.explain(innocent.pid) == "", "it has nothing to do with the failure"
        if taken == slot(place):
            return
    raise AssertionError("no program got the slot of the one that was killed")


def retention(case):
    """A failure outlives processes that ended after it and have less to tell."""
    initiator, target, *_ = case.connected("bad-rkey")
    initiator.tell("go\n")
    assert initiator.hear() == "done 10\n"
    assert [end.finish() for end in (initiator, target)] == [0, 0]
    before = case.explain(initiator.pid)
    contains(before, "IBV_WC_REM_ACCESS_ERR")
    for _ in range(20):
        killed = case.start("target", "killed")
        killed.hear()
        case.kill(killed)
    assert case.explain(initiator.pid) == before
    assert len(os.listdir(f"/dev/shm/feroce-{os.geteuid()}")) < 22, "pages are not bounded"


def refused(case):
    """A refused call is known even of a program that ends at once."""
    initiator, target, *_ = case.connected("gid-index")
    initiator.tell("go\n")
    assert initiator.hear() == "done 22\n"
    case.kill(initiator)
    contains(case.explain(initiator.pid), "ibv_modify_qp of QP 0x", "was refused (EINVAL)")
    assert target.finish() == 0
    assert case.explain(target.pid) == ""


def late(case):
    """An end has destroyed its queue pair when the last packet of the other comes, which fails
    nothing: told of the one who is asked for, and else not."""
    os.environ["FEROCE_SAMEHOST"] = "off"  # Of a ring's packets nobody would be told.
    initiator, target, *_ = case.connected("late")
    target.tell("go\n")
    assert target.hear() == "gone\n"
    initiator.tell("go\n")
    assert initiator.hear() == "done 0\n"
    said = case.explain(target.pid)
    # The first is dropped before its destination address is known.
    for _ in range(50):  # The send queue takes 64.
        if "was destroyed: " in said:
            break
        initiator.tell("go\n")
        time.sleep(0.05)
        said = case.explain(target.pid)
    contains(said, "was destroyed: ", " packets from 127.0.0.1 came later")
    assert case.explain() == ""
    assert case.explain(initiator.pid) == ""
    assert [end.finish() for end in (initiator, target)] == [0, 0]
    assert case.explain() == ""


def elsewhere(case):
    """The peer is on another machine: its address is named, and where to ask."""
    subprocess.run(["ip", "addr", "add", "10.98.0.1/24", "dev", "d0"], check=True)
    script = """mount -t tmpfs tmpfs /dev/shm && echo up && read go && ip link set lo up &&
                ip link set d1 up && ip addr add 10.98.0.2/24 dev d1 && exec "$@" """
    target = subprocess.Popen(
        ["unshare", "-nm", "sh", "-c", script, "sh", case.feroce, "run", "--", case.program,
         "target", "bad-rkey", "feroce_d1", "0"],
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    case.stack.callback(target.wait)
    case.stack.callback(target.kill)
    assert target.stdout.readline() == "up\n"
    subprocess.run(["ip", "link", "set", "d1", "netns", str(target.pid)], check=True)
    target.stdin.write("go\n")
    target.stdin.flush()
    # The addresses of d0: two of the whole test's, and the one in the peer's network.
    initiator = case.start("initiator", "bad-rkey", "feroce_d0", "2")
    there, here = target.stdout.readline(), initiator.hear()
    target.stdin.write(here)
    target.stdin.flush()
    initiator.tell(there)
    assert target.stdout.readline() == initiator.hear() == "ready\n"
    initiator.tell("go\n")
    assert initiator.hear() == "done 10\n"
    peer = f"0x{int(there.split()[0], 16):06x}"
    contains(case.explain(initiator.pid), "an RDMA WRITE of 64 bytes at 0x",
             f"the peer is QP {peer} at 10.98.0.2",
             f"the other end may know more: feroce explain {peer} on the machine of 10.98.0.2")
    said = subprocess.run(["nsenter", "-m", "-n", "-t", str(target.pid), case.feroce, "explain",
                           peer], capture_output=True, text=True, check=True).stdout
    contains(said, "refused its peer", "the peer is QP 0x", "at 10.98.0.1")


def unknown(case):
    """Where no page could be kept, explain says that it cannot know."""
    def ask(*words):
        return subprocess.run([case.feroce, "explain", *words], capture_output=True, text=True,
                              timeout=explain_test.PATIENCE, check=False)
    assert ask().returncode == 1 and "nothing to explain" in ask().stderr
    with open("/dev/shm/filler", "wb") as filler:
        try:
            while True:
                os.write(filler.fileno(), bytes(1 << 16))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
    initiator, target, *_ = case.connected("bad-rkey")
    initiator.tell("go\n")
    assert initiator.hear() == "done 10\n"
    os.unlink("/dev/shm/filler")
    for words in ((), (str(initiator.pid),)):
        said = ask(*words)
        assert said.returncode == 2 and said.stdout == "", said
        contains(said.stderr, "not everything can be known", str(initiator.pid))
        assert "nothing to explain" not in said.stderr, said
    assert [end.finish() for end in (initiator, target)] == [0, 0]
    assert ask(str(os.getpid())).returncode == 1, "of others everything is known"
    subprocess.run(["mount", "-o", "remount,ro", "/dev/shm"], check=True)
    said = ask(str(os.getpid()))
    assert said.returncode == 2 and "/dev/shm is read-only" in said.stderr, said
    doctor = subprocess.run([case.feroce, "doctor"], capture_output=True, text=True, check=False)
    contains(doctor.stdout, "/dev/shm is read-only")


def foreign(case):
    """The directory of this number is another user's, as in a user namespace: a second is used."""
    directory = f"/dev/shm/feroce-{os.geteuid()}"
    os.mkdir(directory)
    os.chmod(directory, 0o777)
    initiator, target, *_ = case.connected("bad-rkey")
    initiator.tell("go\n")
    assert initiator.hear() == "done 10\n"
    contains(case.explain(initiator.pid), "IBV_WC_REM_ACCESS_ERR", "because")
    assert [end.finish() for end in (initiator, target)] == [0, 0]
    contains(case.explain(initiator.pid), "IBV_WC_REM_ACCESS_ERR", "because")
    assert os.listdir(directory) == []


CASES = {case.__name__: case
         for case in (attribution, retention, refused, late, elsewhere, unknown,
                      foreign)}


def main():
    folder, program, name = sys.argv[1:]
    explain_test.enter_namespaces()
    case = Case(folder, program)
    with case.stack:
        CASES[name](case)


if __name__ == "__main__":
    main()
