"""What the tests of disks share: starting `feroce export` and `feroce attach`, and ending them."""
import contextlib
import os
import subprocess
import time

PATIENCE = 60


def fail(sentence):
    raise SystemExit(f"FAILED: {sentence}")


def run(*command, prefix=(), **options):
    """The output of a command that must go well."""
    done = subprocess.run([*prefix, *command], capture_output=True, text=True, check=False,
                          timeout=PATIENCE * 20, **options)
    if done.returncode != 0:
        fail(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def use_state_in(scratch):
    """Servers that this test starts remember their clients there, and not in the machine's folder:
    that is another server's, who may run beside the test."""
    folder = os.path.join(scratch, "state")
    os.makedirs(folder, exist_ok=True)
    os.environ["STATE_DIRECTORY"] = folder


class Export:
    """A running `feroce export`; `prefix` puts it elsewhere, into a network namespace say."""

    def __init__(self, feroce, *words, prefix=()):
        if not os.environ.get("STATE_DIRECTORY"):
            fail("a test's server would use the machine's state folder: call use_state_in()")
        self.process = subprocess.Popen(
            [*prefix, "setpriv", "--pdeathsig", "KILL", feroce, "export", *words],
            stdout=subprocess.PIPE, text=True)
        # It says so when it serves.
        if not self.process.stdout.readline():
            fail(f"feroce export {' '.join(words)} ended with {self.process.wait()}")

    def stop(self):
        self.process.terminate()
        status = self.process.wait(PATIENCE)
        if status != 0:
            fail(f"feroce export ended with {status} when it was asked to end")

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def exported(feroce, *words, prefix=()):
    server = Export(feroce, *words, prefix=prefix)
    try:
        yield server
        server.stop()
    finally:
        server.kill()


@contextlib.contextmanager
def attached(feroce, scratch, *words, prefix=()):
    """The URI of an attached disk."""
    socket = os.path.join(scratch, f"nbd-{time.monotonic_ns()}")
    uri = run(feroce, "attach", "--socket", socket, *words, prefix=prefix).strip()
    try:
        yield uri
    finally:
        run(feroce, "detach", uri, prefix=prefix)
    if os.path.exists(socket):
        fail(f"{socket} is left behind")
