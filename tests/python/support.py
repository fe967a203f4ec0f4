"""What the tests of the Python package have in common: where the programs are, servers that are
started and ended, children that run a few lines of Python. Run by ctest, which sets PYTHONPATH,
LD_LIBRARY_PATH and FEROCE_DEVICES."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PATIENCE = 60
BUILD = pathlib.Path(os.environ.get("FEROCE_BUILD", "build"))
ADDRESS = "127.0.0.1"


class Program:
    """A program that runs until the test ends, and what it prints."""

    def __init__(self, test, *words, **environment):
        self.process = subprocess.Popen([str(word) for word in words], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, **environment})
        test.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    def line(self, pattern):
        """Reads lines until one fits."""
        for line in self.process.stdout:
            found = re.search(pattern, line)
            if found:
                return found
        raise AssertionError(f"it ended: {self.process.communicate(timeout=PATIENCE)}")


def python(test, text, *, status=0, **environment):
    """Runs lines of Python in a process of their own; what they print."""
    done = subprocess.run([sys.executable, "-c", text], text=True, capture_output=True,
                          timeout=PATIENCE, check=False, env={**os.environ, **environment})
    test.assertEqual(done.returncode, status, f"{done.stdout}{done.stderr}")
    return done


def folder(test):
    """Ends with the test."""
    place = tempfile.TemporaryDirectory()
    test.addCleanup(place.cleanup)
    return pathlib.Path(place.name)


def main():
    unittest.main(verbosity=2)
