"""Two network namespaces joined by a veth pair, and how to be an ordinary user in them.

The namespaces live as long as two processes that end with this one, so nothing is left behind even
if this one is killed.
"""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

DEVICE = "net0"
NOBODY = "65534"
# Server's and client's address, length of the prefix, and the addresses' place in the GID table.
FAMILIES = {
    "ipv4": ("10.47.91.1", "10.47.91.2", 24, 0),
    "ipv6": ("fd47:91::1", "fd47:91::2", 64, 1),
}


def command(*words):
    subprocess.run(words, check=True)


class Namespace:
    """A network namespace held by a process that ends when our end of its stdin closes."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "--", "cat"], stdin=subprocess.PIPE)
        self.path = f"/proc/{self.holder.pid}/ns/net"
        deadline = time.monotonic() + 10
        while os.readlink(self.path) == os.readlink("/proc/self/ns/net"):
            if time.monotonic() > deadline or self.holder.poll() is not None:
                sys.exit("unshare made no network namespace")
            time.sleep(0.01)

    def place(self, *words):
        """The words that run a program in here."""
        return ["nsenter", f"--net={self.path}", "--", *words]

    def configure(self, side):
        ip = self.place("ip")
        command(*ip, "link", "set", "lo", "up")
        for addresses in FAMILIES.values():
            address = f"{addresses[side]}/{addresses[2]}"
            nodad = ["nodad"] if ":" in address else []
            command(*ip, "address", "add", address, "dev", DEVICE, *nodad)
        command(*ip, "link", "set", DEVICE, "up")
        command(*ip, "route", "add", "224.0.0.0/4", "dev", DEVICE)

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()


@contextlib.contextmanager
def two_namespaces():
    sides = [Namespace(), Namespace()]
    try:
        pids = [str(side.holder.pid) for side in sides]
        command("ip", "link", "add", DEVICE, "netns", pids[0], "type", "veth",
                "peer", "name", DEVICE, "netns", pids[1])
        for i, side in enumerate(sides):
            side.configure(i)
        yield sides
    finally:
        for side in sides:
            side.close()


@contextlib.contextmanager
def readable_copy(library):
    """A checkout may lie where an ordinary user cannot read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("libibverbs.so.1", "librdmacm.so.1"):
            shutil.copy(os.path.join(library, name), folder)
            os.chmod(os.path.join(folder, name), 0o755)
        yield folder


def as_ordinary_user():
    if os.environ.get("FEROCE_NETNS_INSIDE"):
        return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    return ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]


def enter_user_namespace():
    """Whoever is not root starts this program anew as root of a user namespace, and of a network
    namespace there: links are made from where one is root."""
    if os.geteuid() != 0:
        os.environ["FEROCE_NETNS_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--net", "--",
                              sys.executable, *sys.argv])
