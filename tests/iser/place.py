"""Where programs run: in front of each the words that put it there and on Feroce."""
import dataclasses
import subprocess
import time


class Failure(Exception):
    pass


@dataclasses.dataclass
class Place:
    """`words` lead into a namespace or to another user; `feroce` are the words of `feroce run`,
    empty where the environment alone does it."""

    environment: dict
    words: list = dataclasses.field(default_factory=list)
    feroce: list = dataclasses.field(default_factory=list)

    def start(self, *command, **options):
        """A process on Feroce."""
        return subprocess.Popen([*self.words, *self.feroce, *command], env=self.environment,
                                text=True, stdin=subprocess.DEVNULL, **options)

    def run(self, *command, timeout=60):
        """Runs to the end: exit status (None if it had to be killed) and all that was printed."""
        process = self.start(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            return None, output
        return process.returncode, output

    def check(self, *command, timeout=60):
        """What it printed; it must end well."""
        status, output = self.run(*command, timeout=timeout)
        if status != 0:
            how = "did not end in time" if status is None else f"ended with status {status}"
            raise Failure(f"{' '.join(command)} {how}:\n{output}")
        return output


def wait_until(test, seconds):
    """Whether the test came true in time."""
    deadline = time.monotonic() + seconds
    while not test():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
