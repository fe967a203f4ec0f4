#!/usr/bin/env python3
"""./feroce bench block: a disk in another process's memory, by several ways, in one run.

Ours by the C++ client and through nbdkit; beside them nbdkit's own memory disk over a unix socket
and over TCP, and tgt's over iSCSI on TCP and over iSER on Feroce, where tgt and libiscsi are
installed (written in order, by qemu-img). Every round measures each row once; the table shows
medians, and the ratios of ours to the peers'.
"""
import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "block"))
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))
import iscsi  # pylint: disable=wrong-import-position
from disks import attached, exported, run  # pylint: disable=wrong-import-position
from figures import environment  # pylint: disable=wrong-import-position

SIZE = "256M"
# pattern, block, depth
LOADS = [("randread", 4096, depth) for depth in (1, 32, 128)] + \
        [("randwrite", 4096, depth) for depth in (1, 32, 128)] + \
        [("read", 131072, 8), ("write", 131072, 8)]


def name_of(load):
    return f"{load[0]} {load[1] // 1024} KiB, depth {load[2]}"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fio(uri, load, seconds):
    pattern, block, depth = load
    out = run("fio", "--name=bench", "--ioengine=nbd", f"--uri={uri}", f"--rw={pattern}",
              f"--bs={block}", f"--iodepth={depth}", f"--size={SIZE}", "--time_based",
              f"--runtime={seconds}", "--output-format=json")
    job = json.loads(out[out.index("{"):])["jobs"][0]
    return job["read"]["iops"] + job["write"]["iops"]


@contextlib.contextmanager
def nbdkit_memory(*where):
    process = subprocess.Popen(["nbdkit", "--foreground", *where, "memory", SIZE])
    time.sleep(0.5)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


class Ways:
    """One method a way; each yields (load, requests a second)."""

    def __init__(self, build, scratch, seconds):
        self.feroce = f"{build}/bin/feroce"
        self.rate = f"{build}/bench/disk_rate"
        self.scratch = scratch
        self.seconds = seconds
        self.env = environment(build)

    def direct(self):
        port = str(free_port())
        with exported(self.feroce, f"m=memory:{SIZE}", "--port", port):
            for load in LOADS:
                out = run(self.rate, "127.0.0.1", port, "m", load[0], str(load[1]), str(load[2]),
                          str(self.seconds), env=self.env)
                yield load, json.loads(out)["iops"]

    def through_nbd(self):
        port = str(free_port())
        with exported(self.feroce, f"m=memory:{SIZE}", "--port", port):
            with attached(self.feroce, self.scratch, "127.0.0.1", "m", "--port", port) as uri:
                for load in LOADS:
                    yield load, fio(uri, load, self.seconds)

    def nbdkit_unix(self):
        path = f"{self.scratch}/memory"
        with nbdkit_memory("--unix", path):
            for load in LOADS:
                yield load, fio(f"nbd+unix:///?socket={path}", load, self.seconds)
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def nbdkit_tcp(self):
        port = str(free_port())
        with nbdkit_memory("--ipaddr", "127.0.0.1", "--port", port):
            for load in LOADS:
                yield load, fio(f"nbd://127.0.0.1:{port}", load, self.seconds)

    def iscsi(self, transport):
        if not iscsi.is_installed():
            return
        with iscsi.disk(self.feroce, 256 << 20) as disk:
            for load in LOADS:
                yield load, iscsi.rate(disk, transport, load, self.seconds)

    def iscsi_tcp(self):
        return self.iscsi("iscsi")

    def iscsi_iser(self):
        return self.iscsi("iser")


def show(medians, ways):
    print(f"{'requests a second':30}" + "".join(f"{way:>14}" for way in ways))
    for load in LOADS:
        row = [medians.get((way, load)) for way in ways]
        print(f"{name_of(load):30}" + "".join(f"{x:14.0f}" if x else f"{'-':>14}" for x in row))
    print()
    for peer, depths in (("nbdkit_tcp", (32, 128)), ("iscsi_tcp", (1, 8, 32, 128))):
        for load in LOADS:
            ours, theirs = medians[("direct", load)], medians.get((peer, load))
            if theirs:
                bar = "" if load[2] not in depths else ": met" if ours > theirs else ": missed"
                print(f"direct against {peer}, {name_of(load):28} {ours / theirs:6.2f}{bar}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["FEROCE_DEVICES"] = "lo"
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        ways = Ways(os.path.abspath(arguments.build), scratch, arguments.seconds)
        sources = [ways.direct, ways.through_nbd, ways.nbdkit_unix, ways.nbdkit_tcp,
                   ways.iscsi_tcp, ways.iscsi_iser]
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            for source in sources:
                for load, rate in source():
                    found.setdefault((source.__name__, load), []).append(rate)
    medians = {key: statistics.median(rates) for key, rates in found.items()}
    if arguments.json:
        print(json.dumps({f"{way}: {name_of(load)}": rate
                          for (way, load), rate in medians.items()}, indent=2))
    else:
        show(medians, [source.__name__ for source in sources])


if __name__ == "__main__":
    main()
