#!/usr/bin/env python3
"""Runs the commands of a page as a reader would, and compares what they say with what it shows.

run_docs.py BUILD [-v] PAGE...  each page in a folder and a shell of its own, in one new network
                                namespace; -v shows what was said, to be copied into the page

The folder stands for a checkout: ./feroce, build, examples, include, docs and tests are there, and
`feroce` is found as if it were installed. The network has the pages' addresses on its loopback.

In a `console` block commands follow a prompt ($ or #, perhaps with a host before it; > goes on),
and what follows is their output; `...` stands for any lines. Figures differ from run to run:
numbers are taken as equal. An `sh` block has commands only. A command in the background is given
time until everything sleeps, as a reader's typing would.
"""
import contextlib
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from pages import COMMANDS, ROOT, Page

ADDRESSES = ["10.0.0.1", "10.0.1.1", "10.77.0.2", "10.77.1.2"]
PROMPT = re.compile(r"(?:[\w-]+)?[$#] (.*)")
PATIENCE = 120
BACKGROUND = 15  # Seconds for what a background command must say,
SETTLING = 4     # and until it sleeps, which one with much to do never does.
CHECKOUT = ("build", "docs", "examples", "include", "tests", "tools", "src")
# Commands about the checkout go to the script itself; the others to what is built, as it is.
SHIM = """#!/bin/sh
case $1 in
    build | demo | test | bench | help) exec {root}/feroce "$@" ;;
    *) exec {build}/bin/feroce "$@" ;;
esac
"""


def fail(page, line, sentence):
    sys.exit(f"{page.name}:{line}: {sentence}")


def own_network():
    """Starts this program again in a network and with a /dev/shm of its own."""
    if os.environ.get("FEROCE_DOCS_PLACE"):
        return
    os.environ["FEROCE_DOCS_PLACE"] = "1"
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    added = "".join(f"ip address add {address}/32 dev lo && " for address in ADDRESSES)
    script = ("mount -t tmpfs -o mode=1777 tmpfs /dev/shm && ip link set lo up && "
              f'{added} exec "$@"')
    os.execvp("unshare", ["unshare", *user, "--net", "--mount", "--", "sh", "-c", script, "sh",
                          sys.executable, *sys.argv])


class Step:
    """One command and what it must say; None: anything."""

    def __init__(self, line, command, expected, fails=False):
        self.line = line
        self.command = command
        self.expected = expected
        self.fails = fails
        self.background = command.rstrip().endswith("&")


def console_steps(fence):
    steps = []
    for offset, text in enumerate(fence.text.splitlines(), 1):
        prompt = PROMPT.match(text)
        if prompt:
            steps.append(Step(fence.line + offset, prompt.group(1), []))
        elif steps and steps[-1].command.endswith("\\"):
            steps[-1].command += "\n" + text
        elif text.startswith("> ") and steps and not steps[-1].expected:
            steps[-1].command += "\n" + text[2:]
        elif steps:
            steps[-1].expected.append(text)
    for step in steps:
        step.background = step.command.rstrip().endswith("&")
    if steps and fence.note == "fails":
        steps[-1].fails = True
    return steps


def normal(text):
    """Without what differs from run to run: numbers, and digests, in one space each."""
    text = re.sub(r"\b(0x[0-9a-f]+|[0-9a-f]{8,})\b", "#", text)
    text = re.sub(r"\d+([.,:]\d+)*", "#", text)
    return " ".join(text.split())


def matches(expected, got):
    pattern = ""
    for line in expected:
        pattern += r"(?:.*\n)*?" if line.strip() == "..." else re.escape(normal(line)) + r"\n"
    return re.fullmatch(pattern, "".join(normal(line) + "\n" for line in got)) is not None


class Shell:
    """A bash that is told one command after another."""

    def __init__(self, folder, build):
        environment = {**os.environ, "PATH": f"{build}/bin:{os.environ['PATH']}", "TMPDIR": folder,
                       "XDG_RUNTIME_DIR": folder, "STATE_DIRECTORY": f"{folder}/.state",
                       "HOME": folder, "LC_ALL": "C"}
        self.process = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, env=environment, text=True, errors="replace",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True)
        self.folder = folder
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n").replace(self.folder, "/tmp"))
        self.lines.put(None)

    def next_line(self, until):
        with contextlib.suppress(queue.Empty):
            return self.lines.get(timeout=max(0.0, until - time.monotonic()))
        return None

    def run(self, step):
        """The command's status (None: it does not end, or the shell has) and the lines it said."""
        mark = f"--{os.urandom(8).hex()}--"
        self.process.stdin.write(f"{step.command}\nprintf '\\n%s %d\\n' {mark} $?\n")
        self.process.stdin.flush()
        said, until = [], time.monotonic() + PATIENCE
        while (line := self.next_line(until)) is not None:
            if line.startswith(mark):
                # The empty line before the mark is ours, if the output ended with a line's end.
                return int(line.split()[1]), said[:-1] if said and not said[-1] else said
            said.append(line)
        return None, said

    def settle(self, step, said):
        """Waits for what a background command must say, and until everybody sleeps."""
        until = time.monotonic() + BACKGROUND
        while step.expected and not matches(step.expected, said) and time.monotonic() < until:
            line = self.next_line(min(until, time.monotonic() + 0.1))
            if line is not None:
                said.append(line)
        asleep, until = 0, time.monotonic() + SETTLING
        while asleep < 5 and time.monotonic() < until:
            asleep = asleep + 1 if self.all_sleep() else 0
            time.sleep(0.05)

    def all_sleep(self):
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session = stat.read_text().rsplit(") ", 1)[1].split()[:4]
                if int(session) == self.process.pid and state in "RD":
                    return False
        return True

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def steps_of(page, fence):
    if fence.language == "console":
        return console_steps(fence)
    return [Step(fence.line, f"set -e\n{fence.text}set +e", None)]


def run_page(page, folder, build, verbose):
    shell = Shell(folder, build)
    commands, skipped = 0, []
    try:
        for fence in page.fences:
            if fence.language not in COMMANDS:
                continue
            if fence.note.startswith("not run: "):
                skipped.append(f"{page.name}:{fence.line}: not run: {fence.note[9:]}")
                continue
            for step in steps_of(page, fence):
                status, said = shell.run(step)
                if step.background:
                    shell.settle(step, said)
                if verbose:
                    print(f"$ {step.command}", *said, sep="\n", flush=True)
                if status is None or (status != 0) != step.fails:
                    fail(page, step.line, f"{step.command}\nended with {status}:\n"
                         + "\n".join(said))
                if step.expected is not None and not matches(step.expected, said):
                    fail(page, step.line, f"{step.command}\nsaid:\n" + "\n".join(said)
                         + "\nwhere the page shows:\n" + "\n".join(step.expected))
                commands += 1
    finally:
        shell.end()
        end_all()
    print(f"{page.name}: {commands} commands as shown", *skipped, sep="\n", flush=True)


def end_all():
    """What left the shell's process group; nobody else is in this network."""
    ours = os.readlink("/proc/self/ns/net")
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "ns/net") == ours and int(process.name) != os.getpid():
                os.kill(int(process.name), signal.SIGKILL)


def make_checkout(folder, build):
    for name in CHECKOUT:
        os.symlink(build if name == "build" else ROOT / name, f"{folder}/{name}")
    shim = pathlib.Path(folder, "feroce")
    shim.write_text(SHIM.format(root=ROOT, build=build), encoding="ascii")
    shim.chmod(0o755)


def main():
    own_network()
    build = os.path.abspath(sys.argv[1])
    verbose = "-v" in sys.argv
    for name in sys.argv[2 + verbose:]:
        with tempfile.TemporaryDirectory() as folder:
            make_checkout(folder, build)
            run_page(Page(ROOT / name), folder, build, verbose)


if __name__ == "__main__":
    main()
