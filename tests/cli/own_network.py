"""A network and a /dev/shm of a test's own, so that nothing of the machine is seen or disturbed."""
import os
import subprocess
import sys

MARK = "FEROCE_TEST_HAS_OWN_NETWORK"


def run_named_test(tests):
    """Of the module's globals, the one that the command names (NAME FOLDER ...), inside."""
    name, folder, *rest = sys.argv[1:]
    if not enter_own_network():
        return 77
    tests[f"test_{name}"](os.path.join(os.path.abspath(folder), "feroce"), *rest)
    return 0


def enter_own_network():
    """Runs the test again inside. False, with a sentence: none can be made here."""
    if MARK in os.environ:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
        os.chmod("/dev/shm", 0o1777)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return True
    options = ["-nm"] if os.geteuid() == 0 else ["-rnm"]
    if subprocess.run(["unshare", *options, "true"], check=False).returncode != 0:
        print("no namespaces can be made here")
        return False
    os.environ[MARK] = "yes"
    os.execvp("unshare", ["unshare", *options, sys.executable, *sys.argv])
