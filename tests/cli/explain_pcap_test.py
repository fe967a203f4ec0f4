#!/usr/bin/env python3
"""`feroce explain --pcap`: explain_pcap_test.py CASE FOLDER_OF_FEROCE [PLANTED_FAULT]. Exit status
77: not here."""
import dataclasses
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile

import explain_test

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/data")
HEALTHY, FAILED, UNSURE = 1, 0, 2  # Exit status: what live `explain` says of the same.


def call(feroce, path, *options, command="explain"):
    words = [feroce, command, *(["--pcap"] if command == "explain" else []), path, *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def explained(feroce, path, status, *wanted):
    done = call(feroce, path)
    assert done.returncode == status, f"{path}: {done}"
    for words in wanted:
        assert words in done.stdout, f"{path}: `{words}` is not in: {done.stdout}"
    assert done.returncode != HEALTHY or "no failure seen: " in done.stdout, done
    return done.stdout


def golden(name):
    return os.path.join(GOLDEN, name + ".pcapng")


def test_golden(feroce, *_):
    """What the kernel's rxe did, from its captures."""
    for version, peer in (("v4", "198.51.100.12"), ("v6", "2001:db8::12")):
        for name, *wanted in (
                ("rc-badrkey", "(IBV_WC_REM_ACCESS_ERR): the peer refused the request (an RDMA "
                 "WRITE of 64 bytes at 0xaaaa", "with key 0x0000", f" at {peer}",
                 "the region lacks IBV_ACCESS_REMOTE_WRITE", "1 failure seen: 1 connection"),
                ("rc-badread", "an RDMA READ of 64 bytes", "lacks IBV_ACCESS_REMOTE_READ"),
                ("rc-noaccess", "IBV_WC_REM_INV_REQ_ERR", "access flags forbid the operation"),
                ("rc-badrecv", "IBV_WC_REM_OP_ERR", "NAK remote operational error"),
                ("rc-toolong", "IBV_WC_REM_OP_ERR", "too short for the message"),
                ("rc-sendinv", "was invalidated before, by a SEND of this connection"),
                ("rc-rnrfail", "IBV_WC_RNR_RETRY_EXC_ERR", "no receive posted (1 retries)"),
                ("rc-reject", "port 18600 (rdma_cm) was refused", "reason 28 (rejected by the"),
                ("cm-nolisten", "reason 8 (invalid service id: nobody listens)")):
            explained(feroce, golden(f"{name}-{version}"), FAILED, *wanted)
    explained(feroce, golden("rc-rnr-v4"), HEALTHY, "had no receive posted 1 time", "sent again")
    explained(feroce, golden("loss-requests-v4"), HEALTHY, "sent 59 packets again")
    assert explained(feroce, golden("rping-v4"), HEALTHY) == \
        "no failure seen: 1 connection, 41 packets\n"
    assert explained(feroce, golden("nvme-rdma-v4"), HEALTHY) == \
        "no failure seen: 2 connections, 199 packets\n"
    explained(feroce, golden("ud-v4"), HEALTHY, "1 queue pair of datagrams")
    known = {"rc-badrkey", "rc-badread", "rc-noaccess", "rc-badrecv", "rc-toolong", "rc-sendinv",
             "rc-rnrfail", "rc-reject", "cm-nolisten"}
    for file in sorted(os.listdir(GOLDEN)):
        if file.endswith(".pcapng") and file.rsplit("-", 1)[0] not in known:
            explained(feroce, os.path.join(GOLDEN, file), HEALTHY)
    records = json.loads(call(feroce, golden("rc-badread-v4"), "-j").stdout)
    assert [(r["kind"], r["rqpn"], r["source"]) for r in records] == \
        [("failure", 0x1d, "198.51.100.11")], records
    only = call(feroce, golden("rc-badread-v4"), "0x7")
    assert only.returncode == HEALTHY and "no failure seen" in only.stdout, only


def frames_of(path):
    """Of a pcapng file with one interface, little-endian."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            size = struct.unpack_from("<I", data, at + 20)[0]
            yield data[at + 28:at + 28 + size]
        at += length


@dataclasses.dataclass
class Form:
    order: str = "<"
    magic: int = 0xa1b2c3d4
    link: int = 1
    head: object = staticmethod(lambda frame: frame)  # From an Ethernet frame.
    keep: int = 65535


def classic(path, frames, form):
    with open(path, "wb") as file:
        file.write(struct.pack(form.order + "IHHIIII", form.magic, 2, 4, 0, 0, form.keep,
                               form.link))
        for number, frame in enumerate(frames):
            frame = form.head(frame)
            kept = frame[:form.keep]
            file.write(struct.pack(form.order + "IIII", 1700000000 + number, 0, len(kept),
                                   len(frame)) + kept)


def test_forms(feroce, *_):
    """Every form of file and link that tcpdump makes; the words are the same."""
    source = golden("rc-badrkey-v4")
    wanted = call(feroce, source).stdout
    frames = list(frames_of(source))
    cooked = b"\0\0\0\1\0\6\x52\x54\0\0\0\x11\0\0"
    cooked2 = b"\x08\0\0\0\0\0\0\2\0\1\0\6\x52\x54\0\0\0\x11\0\0"
    forms = [Form(order=order, magic=magic) for order in "<>" for magic in (0xa1b2c3d4, 0xa1b23c4d)]
    forms += [Form(link=101, head=lambda f: f[14:]), Form(link=12, head=lambda f: f[14:]),
              Form(link=228, head=lambda f: f[14:]),
              Form(link=0, head=lambda f: b"\2\0\0\0" + f[14:]),
              Form(link=113, head=lambda f: cooked + f[12:]),
              Form(link=276, head=lambda f: cooked2 + f[14:]),
              Form(head=lambda f: f[:12] + b"\x81\0\0\5" + f[12:]),
              Form(head=lambda f: f[:12] + b"\x88\xa8\0\5\x81\0\0\6" + f[12:])]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file.pcap")
        for form in forms:
            classic(path, frames, form)
            done = call(feroce, path)
            assert done.stdout == wanted and done.stderr == "", (form, done)
            assert "NAK remote access error" in call(feroce, path, command="trace").stdout
        # tcpdump -s 100: management datagrams are cut too, so the ends are learnt from answers.
        classic(path, frames, Form(keep=100))
        done = call(feroce, path)
        assert "with key 0x00002029" in done.stdout, done
        assert "the capture has only the beginning, so their ICRC is not checked" in done.stderr
        # Damage behind the failure.
        classic(path, frames, Form())
        with open(path, "ab") as file:
            file.write(b"\0" * 7)
        done = call(feroce, path)
        assert done.stdout == wanted and "the file is damaged" in done.stderr, done


def test_refusals(feroce, *_):
    """What is no capture is refused with one sentence, by each command that reads one."""
    with tempfile.TemporaryDirectory() as folder:
        empty, packed, other = (os.path.join(folder, n) for n in ("empty", "packed", "other"))
        with open(empty, "wb"):
            pass
        with gzip.open(packed, "wb") as file:
            file.write(b"capture")
        classic(other, [b"\0" * 60], Form(link=247))
        for path, sentence in (
                (empty, "is empty, not a capture"), (folder, "is a folder, not a capture"),
                (packed, "is compressed; gunzip makes a capture of it"),
                ("/etc/passwd", "is neither a pcapng nor a pcap file"),
                (other, "has frames of link type 247 (InfiniBand, not RoCE); Ethernet, Linux "
                 "cooked and raw IP can be read")):
            said = (2, "", f"feroce: {path} {sentence}\n")
            for command in ("explain", "trace"):
                done = call(feroce, path, command=command)
                assert (done.returncode, done.stdout, done.stderr) == said, done
            web = subprocess.run([feroce, "web", "--listen", "0", "--pcap", path], text=True,
                                 capture_output=True, timeout=60, check=False)
            assert (web.returncode, web.stdout, web.stderr) == said, web
        classic(other, [b"\0" * 60], Form())
        done = call(feroce, other)
        assert done.returncode == UNSURE and "there is no RoCEv2 packet" in done.stderr, done


# What the wire shows of a planted fault, of the words that live `explain` says of the initiator.
REFUSED = ["the peer refused the request (an RDMA WRITE of", "; the peer answered with NAK "]
SILENT = ["the peer did not acknowledge", "; nothing was ever heard from it"]
SHOWN = {
    "bad-rkey": [*REFUSED, "IBV_WC_REM_ACCESS_ERR", "the key is unknown, stale or not bound"],
    "out-of-bounds": [*REFUSED, "IBV_WC_REM_ACCESS_ERR", "the access leaves"],
    "deregistered": [*REFUSED, "IBV_WC_REM_ACCESS_ERR"],
    "mr-access": [*REFUSED, "IBV_WC_REM_ACCESS_ERR", "lacks IBV_ACCESS_REMOTE_WRITE"],
    "qp-access": [*REFUSED, "IBV_WC_REM_INV_REQ_ERR", "access flags forbid the operation",
                  "they lack IBV_ACCESS_REMOTE_WRITE"],
    "mtu": [*REFUSED, "IBV_WC_REM_INV_REQ_ERR", "the two ends have different path MTUs"],
    "no-receive": ["the peer had no receive posted (1 retries)"],
    "wrong-state": SILENT, "killed": SILENT, "exits": SILENT, "destroyed": SILENT,
    "hole-back": SILENT,
    "cq-overrun": ["the peer did not acknowledge", "; it was heard before"],
    "psn": ["expects PSN 5000, its rq_psn", "begin with PSN 1000: the peer's sq_psn must be"],
    "psn-behind": ["expects PSN 500, its rq_psn", "begin with PSN 1000"],
}


def check_capture(feroce, fault, path, live):
    done = call(feroce, path)
    wanted = SHOWN.get(fault.name)
    if wanted is None:  # The wire shows nothing, or no more than that something was sent.
        assert done.returncode in (HEALTHY, UNSURE) or fault.name == "queue-full", done
        return
    assert done.returncode == FAILED, f"{fault.name}: {done}"
    for words in wanted:
        assert words in done.stdout, f"{fault.name}: `{words}` is not in: {done.stdout}"
    assert all(words in live for words in wanted), f"{fault.name}, live: {live}"
    assert "no failure seen" not in done.stdout and "wrong ICRC" not in done.stdout, done


def test_faults(feroce, program):
    """The same faults as of live programs, from the captures of both ends."""
    with tempfile.TemporaryDirectory() as folder:
        for fault in explain_test.FAULTS:
            paths = [os.path.join(folder, f"{fault.name}-{role}.pcapng") for role in "it"]
            own = dataclasses.replace(
                fault, initiator_env={**fault.initiator_env, "FEROCE_PCAP": paths[0]},
                target_env={**fault.target_env, "FEROCE_PCAP": paths[1]})
            live, _ = explain_test.run(feroce, program, own)
            check_capture(feroce, fault, paths[0], live)
            print(f"== {fault.name}:\n{call(feroce, paths[0]).stdout}", end="", flush=True)
            if not (fault.kills_target or fault.exits_target):
                check_capture(feroce, fault, paths[1], live)


def test_self(feroce, *_):
    """A process that talks to itself has each packet twice in its capture: none was sent again."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "self.pcapng")
        subprocess.run([feroce, "run", "--", os.path.join(os.path.dirname(feroce), "bad_access")],
                       env={**os.environ, "FEROCE_PCAP": path}, stdout=subprocess.DEVNULL,
                       timeout=60, check=False)
        lines = call(feroce, path, command="trace").stdout.splitlines()
        seen = {}
        for line in lines:
            seen.setdefault(line.split(" # ")[0].split(" ", 1)[1].strip(), []).append(line)
        twice = [group for group in seen.values() if len(group) == 2]
        assert twice, lines
        for group in twice:
            assert "the same packet, as it is received" in group[1], group
            assert "sent again" not in "".join(group), group
        explained(feroce, path, FAILED, "1 failure seen: 1 connection", "IBV_WC_REM_ACCESS_ERR")


def test_bounded(feroce, *_):
    """A capture of many queue pairs and packets takes no more memory than one of few."""
    packet = next(f for f in frames_of(golden("rc-send-v4")) if f[42] == 4)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "many.pcap")
        many = [packet[:47] + struct.pack(">I", n % 20000)[1:] + packet[50:] + b"\0" * 900
                for n in range(60000)]
        classic(path, many, Form())
        script = f"ulimit -v 200000; exec {feroce} explain --pcap {path}"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=100,
                              check=False)
        assert "60,000 packets" in done.stdout, done
        assert "there was no room for" in done.stderr, done


def main():
    case, folder, *rest = sys.argv[1:]
    feroce = os.path.join(os.path.abspath(folder), "feroce")
    if case in ("faults", "self"):
        explain_test.enter_namespaces()
    globals()[f"test_{case}"](feroce, *rest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
