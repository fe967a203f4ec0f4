#!/usr/bin/env python3
"""The tour of `./feroce demo` ends well and leaves nothing behind, however it ends: run.py BUILD.

Runs it as root, as an ordinary user, in a user namespace and without any privilege, and interrupts
it at many points. Afterwards no process of it may be left (each inherits a mark in its environment,
and a network namespace lives only as long as a process in it), no file in TMPDIR, nothing in
/dev/shm. For that it gives itself a network and a /dev/shm of its own, and so needs root.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = f"FEROCE_DEMO_MARK={os.getpid()}"
PATIENCE = 180
ENDS_WITHIN = 20
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
USERS = {
    "root": [],
    "an ordinary user": NOBODY,
    "root of a user namespace": [*NOBODY, "unshare", "--user", "--map-root-user", "--net", "--",
                                 "sh", "-c", 'ip link set lo up && exec "$@"', "sh"],
    "root without capabilities": ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "--"],
}
# Who, which steps, and after which words of theirs they are interrupted.
INTERRUPTED = [
    ("an ordinary user", "program", "iters in"),
    ("an ordinary user", "lossy", "1. "),
    ("root", "disk", "feroce export data"),
    ("an ordinary user", "disk", " 1.0 s"),
    ("root of a user namespace", "disk", "is cut off"),
    ("root without capabilities", "disk", "is cut off"),
    ("root", "disk", "feroce attach"),
    ("an ordinary user", "lock", "feroce launch"),
    ("root", "simulate", "seed"),
]
WHOLE = [("root", []), ("an ordinary user", ["devices", "disk", "explain"]),
         ("root without capabilities", ["disk"])]


def fail(sentence):
    sys.exit(f"FAILED: {sentence}")


def own_place():
    """Starts this program again where network and /dev/shm are its own."""
    if os.environ.get("FEROCE_DEMO_PLACE"):
        return
    os.environ["FEROCE_DEMO_PLACE"] = "1"
    script = 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && ip link set lo up && exec "$@"'
    os.execvp("unshare", ["unshare", "--net", "--mount", "--", "sh", "-c", script, "sh",
                          sys.executable, *sys.argv])


def copy(build, folder):
    """A checkout may lie where an ordinary user cannot read."""
    os.chmod(folder, 0o755)
    shutil.copy(ROOT / "tools/demo.sh", folder)
    shutil.copytree(ROOT / "tools/demo", f"{folder}/demo")
    for part in ("bin", "lib", "tools", "examples"):
        skip = shutil.ignore_patterns("CMakeFiles", "*.cmake", "*.a")
        shutil.copytree(f"{build}/{part}", f"{folder}/{part}", ignore=skip, symlinks=True)
    return {"FEROCE": f"{folder}/bin/feroce", "SIMRUN": f"{folder}/tools/simrun",
            "TOOLS": f"{folder}/tools", "EXAMPLES": f"{folder}/examples"}


def survivors():
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if MARK.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            pass  # It has just ended.
    return found


class Tour:
    def __init__(self, folder, programs, user, steps):
        self.scratch = f"{folder}/tmp"
        os.mkdir(self.scratch)
        os.chmod(self.scratch, 0o1777)
        name, value = MARK.split("=")
        environment = {**os.environ, **programs, name: value, "TMPDIR": self.scratch,
                       "STATE_DIRECTORY": self.scratch}
        self.process = subprocess.Popen(
            [*USERS[user], "bash", f"{folder}/demo.sh", *steps], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/",
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.output = ""
        self.guard = threading.Timer(PATIENCE, self.process.kill)
        self.guard.start()

    def read_until(self, words):
        for line in self.process.stdout:
            self.output += line
            if words in line:
                return
        fail(f"it ended without saying '{words}':\n{self.output}")

    def end(self, wanted):
        self.output += self.process.stdout.read()
        status = self.process.wait(ENDS_WITHIN)
        self.guard.cancel()
        if status != wanted:
            fail(f"status {status}, not {wanted}:\n{self.output}")
        if "\033" in self.output:
            fail("there are colours in what is no terminal")
        if survivors():
            fail(f"processes are left: {survivors()}\n{self.output}")
        for folder in (self.scratch, "/dev/shm"):
            left = [str(path) for path in pathlib.Path(folder).rglob("*")]
            if left:
                fail(f"files are left: {left}\n{self.output}")
        os.rmdir(self.scratch)


def main():
    own_place()
    with tempfile.TemporaryDirectory() as folder:
        programs = copy(os.path.abspath(sys.argv[1]), folder)
        for user, step, words in INTERRUPTED:
            tour = Tour(folder, programs, user, [step])
            tour.read_until(words)
            tour.process.send_signal(signal.SIGINT)
            tour.end(130)
            print(f"{user}, {step}, interrupted after '{words}': nothing is left", flush=True)
        for user, steps in WHOLE:
            tour = Tour(folder, programs, user, steps)
            tour.end(0)
            print(f"{user}, {' '.join(steps) or 'all'}: ended well, nothing is left", flush=True)


if __name__ == "__main__":
    main()
