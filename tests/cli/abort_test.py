#!/usr/bin/env python3
"""A process that aborted right after its first failing completion is explained all the same:
abort_test.py FOLDER_OF_FEROCE ABORT_AFTER_FAILURE."""
import resource
import signal
import subprocess
import sys

ROUNDS = 5


def main():
    feroce, program = sys.argv[1] + "/feroce", sys.argv[2]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for way in ["old", "new"] * ROUNDS:
        child = subprocess.Popen([feroce, "run", "--", program, way])
        status = child.wait(timeout=60)
        if status not in (-signal.SIGABRT, 128 + signal.SIGABRT):
            sys.exit(f"{way}: the program ended with {status} and should have aborted")
        said = subprocess.run([feroce, "explain", str(child.pid)], capture_output=True, text=True,
                              timeout=60, check=False).stdout
        for words in ["IBV_WC_REM_ACCESS_ERR", "the peer named memory that it may not use"]:
            if words not in said:
                sys.exit(f"{way}: explain says nothing of `{words}`:\n{said}")


main()
