"""Bare Debian systems to try things in: made by debootstrap, entered with a root of their own.

A Room is a fresh copy of a base system. Commands in it run in a mount namespace whose root is the
room (pivot_root and not chroot: a chrooted process may not make user namespaces) and, but for
package downloads, in a network namespace with loopback only, so that nothing outside helps or is
disturbed. Everything goes when the last process of a command ends; the folder when the Room closes.
"""
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ENTER = """set -e
[ "$2" = online ] || ip link set lo up
mount --make-rprivate /
mount --rbind "$1" "$1"
mkdir -p "$1/proc" "$1/sys" "$1/dev"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
cd "$1"
pivot_root . .
umount -l .
shift 2
exec "$@"
"""


def say(sentence):
    print(f"chroot: {sentence}", file=sys.stderr, flush=True)


def mirror():
    """Where this machine's apt gets Debian from."""
    lines = subprocess.run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)",
                            "Created-By: Packages"], check=True, text=True, capture_output=True)
    for line in lines.stdout.splitlines():
        origin, _, address = line.partition(" ")
        if origin == "Debian" and "security" not in address:
            return address
    sys.exit("chroot: apt knows no mirror of Debian; apt-get update first")


def base_system(work, suite):
    """A tar file of the bare system, made once."""
    tar = work / f"{suite}.tar"
    if tar.exists():
        return tar
    folder = work / f"{suite}.new"
    shutil.rmtree(folder, ignore_errors=True)
    say(f"making a bare {suite}")
    # Scripts of all suites since 2000 are the same file; a suite younger than debootstrap has none.
    known = pathlib.Path("/usr/share/debootstrap/scripts") / suite
    script = [] if known.exists() else [str(known.with_name("sid"))]
    with open(work / f"{suite}.log", "w", encoding="utf-8") as log:
        subprocess.run(["debootstrap", "--variant=minbase", suite, str(folder), mirror(), *script],
                       check=True, stdout=log, stderr=log)
    subprocess.run(["tar", "-C", str(folder), "-cf", f"{tar}.part", "."], check=True)
    shutil.rmtree(folder)
    os.rename(f"{tar}.part", tar)
    return tar


class Room:
    def __init__(self, work, suite):
        self.suite = suite
        self.folder = work / f"{suite}.room"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        subprocess.run(["tar", "-C", str(self.folder), "-xf", str(base_system(work, suite))],
                       check=True)
        shutil.copy("/etc/resolv.conf", self.folder / "etc/resolv.conf")
        shutil.copy("/etc/hosts", self.folder / "etc/hosts")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, line, user=None, online=False):
        """The words that run a shell line in the room."""
        inside = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/tmp",
                  "DEBIAN_FRONTEND=noninteractive"]
        if user:
            inside = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups",
                      "--no-new-privs", *inside]
        spaces = ["--mount", "--pid", "--fork", "--kill-child", *([] if online else ["--net"])]
        return ["unshare", *spaces, "sh", "-c", ENTER, "sh", str(self.folder),
                "online" if online else "alone", *inside, "sh", "-ec", line]

    def run(self, line, user=None, online=False, patience=1800):
        """What the line printed; the end of everything if it failed."""
        say(f"{self.suite}{' as ' + user if user else ''}: {line.splitlines()[0][:90]}")
        done = subprocess.run(self.command(line, user, online), text=True, check=False,
                              timeout=patience, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-6000:]}\nchroot: {self.suite}: {shlex.quote(line)} ended with "
                     f"{done.returncode}")
        return done.stdout

    def install(self, words):
        self.run("apt-get -qq update", online=True)
        return self.run(f"apt-get -qq -y --no-install-recommends install {words}", online=True)

    def files(self):
        """All of the room's files, but for logs, caches and apt's and dpkg's own books."""
        books = ("var/cache", "var/log", "var/lib/apt", "var/lib/dpkg", "tmp", "run", "proc", "sys",
                 "dev", "root")
        found = set()
        for folder, folders, names in os.walk(self.folder):
            here = os.path.relpath(folder, self.folder)
            folders[:] = [name for name in folders
                          if os.path.normpath(os.path.join(here, name)) not in books]
            found.update(os.path.normpath(os.path.join(here, name)) for name in names + folders)
        return found
