#!/usr/bin/env python3
"""An archive of ./feroce dist for another architecture, in an emulator: emulated.py --work FOLDER
ARCHIVE. No root is needed, and nothing of the machine is changed.

Debian's packages of that architecture are unpacked into FOLDER/system and never installed. Programs
run in user, mount, process and network namespaces of their own, whose root this folder is. Kernels
since 6.7 have a table of binary formats for each user namespace; qemu-user-static is entered there.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

PACKAGES = "perftest ibverbs-utils dash coreutils grep mount"
# Debian's name, and e_machine of ELF.
MACHINES = {"x86_64": ("amd64", 62), "aarch64": ("arm64", 183)}
# In namespaces of their own: two networks joined by a link, the table, and a program on each side.
# The emulator cannot share a UDP port between processes (SO_ATTACH_REUSEPORT_CBPF): hence two.
BEGIN = r"""set -e
mount -t proc proc /proc
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s "$2" >/proc/sys/fs/binfmt_misc/register
unshare --net sleep 600 &
other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
ip link add net0 type veth peer name net0 netns $other
ip address add 10.47.91.1/24 dev net0
ip link set net0 up
nsenter --net=/proc/$other/ns/net ip address add 10.47.91.2/24 dev net0
nsenter --net=/proc/$other/ns/net ip link set net0 up
unshare --mount sh -c "$3" sh "$1" "$4" &
server=$!
status=0
nsenter --net=/proc/$other/ns/net unshare --mount sh -c "$3" sh "$1" "$5" || status=1
if [ $status != 0 ]; then kill $server; fi
wait $server || status=1
exit $status
"""
# What they run in.
ENTER = r"""set -e
mount --bind "$1" "$1"
cd "$1"
mount --rbind /proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs tmp
mount --rbind /sys sys
pivot_root . .
umount -l .
exec env -i PATH=/usr/bin:/bin HOME=/tmp LANG=C.UTF-8 sh -ec "$2"
"""
# The clock of an emulated processor is not measured: perftest is told to go on (-F).
PROGRAM = "/feroce/bin/feroce run -- ib_write_bw -F -d feroce_net0 -n 100"
CLIENT = f"""
/feroce/bin/feroce --version
/feroce/bin/feroce run -- ibv_devices
for i in $(seq 100); do
    {PROGRAM} 10.47.91.1 >/tmp/client 2>&1 && exec cat /tmp/client
    grep -q "Couldn.t connect" /tmp/client || break
    sleep 0.2
done
cat /tmp/client
exit 1
"""


def format_line(machine):
    """A line for binfmt_misc: 64-bit ELF of the machine, programs (2) and shared objects (3)."""
    number = MACHINES[machine][1].to_bytes(2, "little")
    magic = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00" + number
    mask = b"\xff" * 7 + bytes(9) + b"\xfe\xff\xff\xff"

    def escaped(data):
        return "".join(f"\\x{byte:02x}" for byte in data)

    emulator = shutil.which(f"qemu-{machine}-static")
    if not emulator:
        sys.exit(f"dist: there is no qemu-{machine}-static; qemu-user-static has it")
    # F: the file is opened now, because programs will not find it from their root.
    return f":feroce:M::{escaped(magic)}:{escaped(mask)}:{emulator}:F"


def run(*words, **how):
    return subprocess.run([str(word) for word in words], check=True, text=True, **how)


def fetch(state, architecture):
    """Downloads PACKAGES with all they need, by an apt that has nothing installed."""
    for name in ("lists/partial", "archives/partial"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    conf = state / "conf"
    conf.write_text(f'APT::Architecture "{architecture}";\n'
                    f'APT::Architectures {{ "{architecture}"; }};\n'
                    f'APT::Install-Recommends "0"; APT::Sandbox::User "root";\n'
                    f'Acquire::Languages "none"; Debug::NoLocking "1";\n'
                    f'Dir::State "{state}"; Dir::State::status "{state}/status";\n'
                    f'Dir::Cache "{state}";\n')
    apt = {"env": {"APT_CONFIG": str(conf), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}}
    run("apt-get", "-qq", "update", **apt)
    run("apt-get", "-qq", "-y", "--download-only", "install", *PACKAGES.split(), **apt,
        stdout=subprocess.DEVNULL)
    return sorted((state / "archives").glob("*.deb"))


def make_system(work, architecture):
    """Made once for its list of packages."""
    system, new, made_of = work / "system", work / "system.new", work / "system.packages"
    if made_of.exists() and made_of.read_text(encoding="ascii") == PACKAGES:
        return system
    shutil.rmtree(system, ignore_errors=True)
    for folder in (new, work / "apt"):
        shutil.rmtree(folder, ignore_errors=True)
    new.mkdir()
    for package in fetch(work / "apt", architecture):
        run("dpkg-deb", "-x", package, new)
    for name in ("proc", "sys", "dev", "tmp", "feroce"):
        (new / name).mkdir(exist_ok=True)
    (new / "bin/sh").unlink(missing_ok=True)
    (new / "bin/sh").symlink_to("dash")
    new.rename(system)
    made_of.write_text(PACKAGES, encoding="ascii")
    return system


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("archive", type=pathlib.Path)
    options = parser.parse_args()
    machine = re.fullmatch(r"feroce-.*-linux-(\w+)\.tar\.zst", options.archive.name).group(1)
    options.work.mkdir(parents=True, exist_ok=True)
    system = make_system(options.work.resolve(), MACHINES[machine][0])
    shutil.rmtree(system / "feroce")
    (system / "feroce").mkdir()
    run("tar", "-C", system / "feroce", "--strip-components=1", "--no-same-owner", "-xf",
        options.archive)
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork",
                           "--kill-child", "--net", "sh", "-c", BEGIN, "sh", str(system),
                           format_line(machine), ENTER, PROGRAM, CLIENT], text=True,
                          check=False, timeout=300, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    if done.returncode != 0 or not re.search(r"^ *65536 +100 +[0-9.]+", done.stdout, re.MULTILINE):
        sys.exit(f"dist: emulated programs for {machine} ended with {done.returncode}")


if __name__ == "__main__":
    main()
