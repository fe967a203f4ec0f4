#!/usr/bin/env python3
"""The action in a bare Debian, as a runner would run it: bare.py --work FOLDER ARCHIVE SUITE.

As root; steps run as an ordinary user: the action with an archive of ./feroce dist, ib_write_bw
under faults, a program that fails, and the report on it. Without zstd the action says what is
missing.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from runner import Runner

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / name) for name in ("dist", "chroot")]
import rooms  # noqa: E402  (found by the path above)
from run import PAIR, USER, expect_bandwidth  # noqa: E402

ACTION = "/action"
# The server is killed when the client has sent to it, as its capture says; what the client sends
# then is not answered.
FAILING = """feroce run -- ib_write_bw -d feroce_lo -s 8 -n 100000000 >/tmp/server 2>&1 &
server=$!
for i in $(seq 100); do
    feroce run -- ib_write_bw -d feroce_lo -s 8 -n 100000000 127.0.0.1 >/tmp/client 2>&1 &
    client=$!
    while kill -0 $client 2>/dev/null; do
        sent=$(stat -c %s "$FEROCE_CAPTURES/$client.pcapng" 2>/dev/null || echo 0)
        if [ "$sent" -gt 100000 ]; then kill -9 $server; break 2; fi
        sleep 0.1
    done
done
wait $client
"""


def fail(sentence):
    sys.exit(f"action: {sentence}")


class Machine:
    """Namespaces of a room in which all steps of a job run: one machine, with loopback only."""

    def __init__(self, room):
        self.room = room
        line = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm; echo ready; exec cat"
        self.holder = subprocess.Popen(room.command(line), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            fail("the room cannot be entered")
        pid = self.holder.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        self.enter = ["nsenter", "--target", children.split()[0], "--mount", "--pid", "--net",
                      "setpriv", "--reuid", USER, "--regid", USER, "--clear-groups",
                      "--no-new-privs", "env", "-i"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.stdin.close()
        self.holder.wait(timeout=30)

    def execute(self, line, environment):
        words = [f"{name}={value}" for name, value in environment.items()]
        done = subprocess.run([*self.enter, *words, "sh", "-c", line], text=True, check=False,
                              timeout=180, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def runner(self):
        temporary = self.room.folder / "tmp/runner"
        temporary.mkdir()
        temporary.chmod(0o777)
        return Runner("/tmp/runner", self.execute, str(self.room.folder))


def bring_action(room):
    """What a checkout of the action has."""
    for name in ("action.yml", "CMakeLists.txt", "tools/action"):
        target = room.folder / ACTION.lstrip("/") / name
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, target)


def try_action(room, runner, archive):
    inputs = {"archive": f"/tmp/{archive.name}", "devices": "lo", "seed": "7", "capture": "true",
              "faults": "drop=0.001,dup=0.001,reorder=0.001"}
    status, said, _ = runner.action(ROOT, ACTION, **inputs)
    if status != 1 or "the program zstd is missing" not in said:
        fail(f"without zstd the action ended with {status}: {said}")
    room.install("zstd perftest ibverbs-utils")
    begin = time.monotonic()
    status, said, outputs = runner.action(ROOT, ACTION, **inputs)
    seconds = time.monotonic() - begin
    if status != 0 or outputs["devices"] != "feroce_lo" or outputs["version"] not in archive.name:
        fail(f"the action ended with {status}, {outputs}: {said}")
    status, said, _ = runner.step(PAIR.format(feroce="feroce"))
    if status != 0:
        fail(f"ib_write_bw ended with {status}: {said}")
    expect_bandwidth(said)
    if not list(pathlib.Path(f"{room.folder}{outputs['captures']}").glob("*.pcapng")):
        fail("nothing was captured")
    return seconds


def try_report(room, runner):
    status, said, _ = runner.step(FAILING)
    if status == 0:
        fail(f"a program whose peer was killed ended well: {said}")
    name = "tools/action/report"
    status, said, outputs = runner.action(ROOT / name, f"{ACTION}/{name}")
    report = pathlib.Path(f"{room.folder}{outputs['path']}")
    reasons = (report / "explain.txt").read_text(encoding="utf-8")
    if status != 0 or not re.search(r"0x[0-9a-f]+", reasons):
        fail(f"the report ended with {status} and explains {reasons}: {said}")
    if reasons not in runner.file("step_summary").read_text(encoding="utf-8"):
        fail("the summary has no reasons")
    if not list((report / "captures").glob("*.pcapng")):
        fail("the report has no capture")
    print(reasons, end="")


def try_bad_inputs(runner, archive):
    status, said, _ = runner.action(ROOT, ACTION, archive=f"/tmp/{archive.name}", faults="drop=2")
    if status != 1 or len(said.splitlines()) != 1 or "FEROCE_FAULTS" not in said:
        fail(f"faults=drop=2 ended with {status}: {said}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("suite")
    options = parser.parse_args()
    if os.geteuid() != 0:
        fail("only root can make Debian systems; use sudo")
    options.work.mkdir(parents=True, exist_ok=True)
    with rooms.Room(options.work, options.suite) as room:
        bring_action(room)
        for file in (options.archive, options.archive.with_name(options.archive.name + ".sha256")):
            shutil.copy(file, room.folder / "tmp")
        with Machine(room) as machine:
            runner = machine.runner()
            seconds = try_action(room, runner, options.archive)
            try_report(room, runner)
            try_bad_inputs(runner, options.archive)
    print(f"{options.suite}: the action took {seconds:.1f} s")


if __name__ == "__main__":
    main()
