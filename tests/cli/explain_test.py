#!/usr/bin/env python3
"""Planted faults, and what `feroce explain` says of each end while both live and after they have
ended: explain_test.py FOLDER_OF_FEROCE PLANTED_FAULT [FAULT...]. Exit status 77: not here."""
import dataclasses
import json
import os
import re
import subprocess
import sys
import time

PATIENCE = 60
NOTHING = None  # The end cannot know; `explain` must say nothing rather than something wrong.


@dataclasses.dataclass
class Fault:
    name: str
    status: str  # Of the initiator's completion, as libibverbs numbers it.
    initiator: list  # What `explain PID` must say of it; NOTHING if it cannot know.
    target: list
    initiator_env: dict = dataclasses.field(default_factory=dict)
    target_env: dict = dataclasses.field(default_factory=dict)
    kills_target: bool = False
    exits_target: bool = False
    tells_target: str = ""  # What the target says when it has done its part, before the initiator.
    drops_address: bool = False
    # After both have ended, where that differs.
    initiator_later: list = dataclasses.field(default_factory=list)


LOSE_ALL = {"FEROCE_FAULTS": "drop=1"}
FAULTS = [
    Fault("bad-rkey", "10",
          ["IBV_WC_REM_ACCESS_ERR", "because",
           "the key is unknown, stale or not bound (an RDMA WRITE of 64 bytes at 0x"],
          ["refused its peer",
           "the key is unknown, stale or not bound (an RDMA WRITE of 64 bytes at 0x"]),
    Fault("out-of-bounds", "10",
          ["IBV_WC_REM_ACCESS_ERR", "because", "the access leaves the region",
           "; the key is for 8192 bytes at 0x"],
          ["refused its peer", "the access leaves the region",
           "; the key is for 8192 bytes at 0x"]),
    Fault("no-receive", "13",
          ["IBV_WC_RNR_RETRY_EXC_ERR", "the peer had no receive posted (1 retries)"],
          ["had no receive posted for its peer's message at PSN 1000"]),
    Fault("wrong-state", "12",
          ["the peer did not acknowledge", "because",
           "is in state INIT, where it takes no requests"],
          ["is in state INIT, where it takes no requests", "were dropped, the last with PSN 1000"]),
    Fault("posted-early", "22",
          ["ibv_post_send of QP 0x", "in state INIT was refused (EINVAL)", "bring it to RTS"],
          NOTHING),
    Fault("mtu", "9",
          ["IBV_WC_REM_INV_REQ_ERR", "because", "the two ends have different path MTUs"],
          ["the two ends have different path MTUs: here it is 512, and a packet with 1024 bytes"]),
    Fault("killed", "12",
          ["the peer did not acknowledge", "because", "the process ended without closing QP"],
          ["the process ended without closing QP"], kills_target=True),
    Fault("hole-there", "12",
          ["the peer did not acknowledge", "nothing was ever heard from it",
           "is ready and still expects PSN 1000: the packets are lost on the way from"],
          ["is ready and still expects PSN 1000: the packets are lost on the way from"],
          initiator_env=LOSE_ALL),
    Fault("hole-back", "12",
          ["the peer did not acknowledge", "because", "answers are lost on the way back"],
          ["did and answered its peer's request at PSN 1000", "answers are lost on the way back"],
          target_env=LOSE_ALL),
    Fault("cq-overrun", "12", ["did not acknowledge", "the completion queue was full"],
          ["completions of QP 0x", "were lost: its completion queue of", "entries was full"]),
    Fault("address-gone", "12",
          ["it was sent nothing, because the address 10.99.0.1 is no longer on this machine"],
          ["cannot send: the address 10.99.0.1 is no longer on this machine"], drops_address=True),
    Fault("bad-lkey", "4",
          ["IBV_WC_LOC_PROT_ERR", "64 bytes at 0x", " with key 0x"], NOTHING),
    Fault("own-gone", "4",
          ["IBV_WC_LOC_PROT_ERR", "64 bytes at 0x", "what had this key was deregistered"], NOTHING),
    Fault("deregistered", "10",
          ["an RDMA WRITE of 64 bytes at 0x", "because", "what had this key was deregistered"],
          ["refused its peer", "what had this key was deregistered"], tells_target="gone\n"),
    Fault("destroyed", "12",
          ["the peer did not acknowledge", "because", "was destroyed: ", "came later"],
          ["was destroyed: ", "came later and were dropped, the last with PSN 1000"],
          tells_target="gone\n"),
    Fault("mr-access", "10",
          ["because", "the region or window does not allow this access (an RDMA WRITE of 64 bytes",
           "it lacks IBV_ACCESS_REMOTE_WRITE"],
          ["it lacks IBV_ACCESS_REMOTE_WRITE"]),
    Fault("qp-access", "9",
          ["because", "access flags forbid the operation: they lack IBV_ACCESS_REMOTE_WRITE"],
          ["access flags forbid the operation: they lack IBV_ACCESS_REMOTE_WRITE"]),
    Fault("gid-index", "22", ["ibv_modify_qp of QP 0x", "was refused (EINVAL)", "GID"], NOTHING),
    Fault("no-grh", "22", ["ibv_modify_qp of QP 0x", "was refused (EINVAL)", "GRH"], NOTHING),
    Fault("mtu-large", "22", ["ibv_modify_qp of QP 0x", "was refused (EINVAL): unknown path_mtu"],
          NOTHING),
    Fault("queue-full", "12",
          ["ibv_post_send of QP 0x", "was refused (ENOMEM): the send queue is full"],
          ["had no receive posted", "it asked the peer to wait"]),
    Fault("inline", "12", ["ibv_post_send of QP 0x", "was refused", "inline"], NOTHING),
    Fault("reg-mr", "22", ["ibv_reg_mr was refused (EINVAL)"], NOTHING),
    Fault("psn", "12",
          ["the peer did not acknowledge", "because",
           "expects PSN 5000, its rq_psn", "begin with PSN 1000"],
          ["expects PSN 5000, its rq_psn, but the packets of its peer at 127.0.0.1 begin with "
           "PSN 1000: the peer's sq_psn must be this rq_psn"]),
    Fault("psn-behind", "12",
          ["the peer did not acknowledge", "because",
           "expects PSN 500, its rq_psn", "begin with PSN 1000"],
          ["expects PSN 500, its rq_psn"]),
    Fault("ud-no-receive", "0",
          ["dropped 1 datagrams of QP 0x", "it had no receive posted"],
          ["dropped 1 datagrams of QP 0x", "it had no receive posted"], initiator_later=NOTHING),
    Fault("ud-no-grh", "0",
          ["the receive of 64 bytes has no room for the GRH of 40 bytes and 64 bytes of payload"],
          ["the receive of 64 bytes has no room for the GRH of 40 bytes and 64 bytes of payload"],
          initiator_later=NOTHING),
    Fault("exits", "12",
          ["the peer did not acknowledge", "because",
           "ended without closing QP 0x", "(it was killed, crashed, or left by _exit or exec)"],
          ["ended without closing QP 0x"], exits_target=True),
    Fault("orderly", "5", NOTHING, NOTHING),
    Fault("wrong-qkey", "0",
          ["they have the Q_Key 0x22, its own is 0x11"],
          ["they have the Q_Key 0x22, its own is 0x11"], initiator_later=NOTHING),
]


class End:
    def __init__(self, feroce, program, role, fault, device, index):
        environment = dict(os.environ)
        environment.update(fault.initiator_env if role == "initiator" else fault.target_env)
        self.process = subprocess.Popen(
            [feroce, "run", "--", program, role, fault.name, device, index], text=True,
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid

    def hear(self):
        line = self.process.stdout.readline()
        assert line, f"pid {self.pid} ended with {self.process.wait(PATIENCE)}"
        return line

    def tell(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def finish(self):
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


def explain(feroce, pid=None, *options):
    words = [*options] if pid is None else [*options, str(pid)]
    done = subprocess.run([feroce, "explain", *words], capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert done.returncode == (0 if done.stdout.strip() not in ("", "[]") else 1), done
    return done.stdout


def check(feroce, pid, wanted, when):
    # A datagram's sender does not wait for anybody: it may still be on its way.
    give_up = time.monotonic() + 10
    text = explain(feroce, pid)
    while wanted and any(words not in text for words in wanted) and time.monotonic() < give_up:
        time.sleep(0.05)
        text = explain(feroce, pid)
    said = json.loads(explain(feroce, pid, "--json"))
    assert len(said) == len({record["reason"] for record in said}), f"{when}: twice: {text}"
    if wanted is NOTHING:
        assert not text and not said, f"{when}: nothing can be known, but it says: {text}"
        return text
    for words in wanted:
        assert words in text, f"{when}: '{words}' is not in: {text}"
    sentences = [r["reason"] for r in said] + [c["reason"] for r in said for c in r["because"]]
    assert any(wanted[-1] in sentence for sentence in sentences), f"{when}: {said}"
    return text


def run(feroce, program, fault):
    device = "feroce_d0" if fault.drops_address else "feroce_lo"
    indices = ("0", "1") if fault.drops_address else ("0", "0")
    ends = [End(feroce, program, role, fault, device, index)
            for role, index in zip(("initiator", "target"), indices)]
    initiator, target = ends
    try:
        places = [end.hear() for end in ends]
        initiator.tell(places[1])
        target.tell(places[0])
        for end in ends:
            assert end.hear() == "ready\n"
        if fault.kills_target:
            target.process.kill()
            target.process.wait()
        if fault.exits_target:
            target.tell("go\n")
            assert target.process.wait(PATIENCE) == 3
        if fault.tells_target:
            target.tell("go\n")
            assert target.hear() == fault.tells_target
        if fault.drops_address:
            subprocess.run(["ip", "addr", "del", "10.99.0.1/32", "dev", "d0"], check=True)
        initiator.tell("go\n")
        status = initiator.hear().split()[1]
        assert status == fault.status, f"{fault.name}: the completion has status {status}"
        said = check(feroce, initiator.pid, fault.initiator, f"{fault.name}, initiator, live")
        also = check(feroce, target.pid, fault.target, f"{fault.name}, target, live")
        disagree = fault.name.startswith("psn")
        assert disagree == ("rq_psn" in said + also), "which PSNs disagree?"
        assert not disagree or "answered" not in said + also, "nothing was ever done"
        for end in ends:
            assert end.finish() in (0, 3, -9)
        later = fault.initiator if fault.initiator_later == [] else fault.initiator_later
        check(feroce, initiator.pid, later, f"{fault.name}, initiator, ended")
        check(feroce, target.pid, fault.target, f"{fault.name}, target, ended")
        return said, also
    finally:
        for end in ends:
            end.process.kill()
            end.process.wait()
            page = f"/dev/shm/feroce-{os.geteuid()}/{end.pid}"
            if os.path.exists(page):
                os.unlink(page)


def make_network():
    """In the namespaces that this process was started in again: two addresses on one interface, and
    state pages that no other program of this user sees or removes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/dev/shm"], check=True)
    for words in ("link set lo up", "link add d0 type veth peer name d1", "link set d0 up",
                  "link set d1 up",
                  "addr add 10.99.0.1/32 dev d0", "addr add 10.99.0.2/32 dev d0"):
        subprocess.run(["ip", *words.split()], check=True)


def plain(text):
    return re.sub(r"0x[0-9a-f]+|\d+", "", text)


def enter_namespaces():
    """Starts this program again in namespaces of its own, or ends it with 77."""
    if "FEROCE_EXPLAIN_TEST" not in os.environ:
        os.environ["FEROCE_EXPLAIN_TEST"] = "inside"
        options = ["-nm"] if os.geteuid() == 0 else ["-rnm"]
        if subprocess.run(["unshare", *options, "true"], check=False).returncode != 0:
            print("no namespaces can be made here")
            sys.exit(77)
        os.execvp("unshare", ["unshare", *options, sys.executable, *sys.argv])
    make_network()


def main():
    folder, program, *names = sys.argv[1:]
    feroce = os.path.join(os.path.abspath(folder), "feroce")
    enter_namespaces()
    answers = {}
    for fault in FAULTS:
        if names and fault.name not in names:
            continue
        for side, text in zip(("initiator", "target"), run(feroce, program, fault)):
            print(f"== {fault.name}, {side}:\n{text}", end="", flush=True)
            if text and side == "initiator":
                answers.setdefault(plain(text), []).append(fault.name)
    # To a peer, all abrupt ends are one.
    doubles = [names for names in answers.values() if len(names) > 1 and
               names not in (["killed", "exits"], ["psn", "psn-behind"])]
    assert not doubles, f"the same words for different faults: {doubles}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
