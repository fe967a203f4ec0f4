#!/usr/bin/env python3
"""An archive of ./feroce dist in bare Debian: run.py --work FOLDER ARCHIVE SUITE... As root.

An ordinary user unpacks it and runs ib_write_bw, server and client; then in a network of his own,
and from another place, to which the folder was moved. Last the same files as a Python wheel.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "chroot"))
import rooms  # noqa: E402

USER = "1000"
WHEEL = HERE.parents[1] / "tools/dist/wheel.py"
# A server and then a client; if that fails, the server does not wait for it any longer. perftest
# gives up where it cannot measure the clock of a busy processor, but for -F.
PAIR = """{feroce} run -- ib_write_bw -F -d feroce_lo -n 500 >/tmp/server 2>&1 &
server=$!
status=1
for i in $(seq 100); do
    {feroce} run -- ib_write_bw -F -d feroce_lo -n 500 127.0.0.1 >/tmp/client 2>&1 &&
        status=0 && break
    grep -q "Couldn.t connect" /tmp/client || break
    sleep 0.1
done
cat /tmp/client
if [ $status != 0 ]; then
    kill $server || true
    wait $server || true
    echo "the server printed:"
    cat /tmp/server
    exit 1
fi
wait $server
"""
# Of the package in the wheel: a server with a session, and an address space of one node.
SESSION = """import os; os.environ["FEROCE_DEVICES"] = "lo"
import feroce
with feroce.Server(lambda request: b"answer", address="127.0.0.1", port=0) as server:
    with feroce.Session("wheel", "127.0.0.1", port=server.port) as session:
        print(session.read(b"a", 10).decode())
with feroce.join(rank=0, size=1) as space:
    word = space.share("word", 8)
    space.fetch_add(word, 3)
    print(space.read(word, 8)[0])"""


def expect_bandwidth(text):
    if not re.search(r"^ *65536 +500 +[0-9.]+ +[0-9.]+", text, re.MULTILINE):
        sys.exit(f"dist: ib_write_bw printed {text}")


def try_suite(work, archive, suite):
    with rooms.Room(work, suite) as room:
        # zstd, for tar; perftest, the program to be run.
        room.install("perftest zstd iproute2")
        name = archive.name.removesuffix(".tar.zst")
        for file in (archive, archive.with_name(archive.name + ".sha256")):
            shutil.copy(file, room.folder / "tmp")
        begin = time.monotonic()
        room.run(f"cd /tmp && sha256sum --quiet -c {archive.name}.sha256 && tar -xf {archive.name}",
                 user=USER)
        pair = PAIR.format(feroce=f"/tmp/{name}/bin/feroce")
        expect_bandwidth(room.run(pair, user=USER, patience=120))
        seconds = time.monotonic() - begin
        expect_bandwidth(room.run(f"unshare -Urn sh -ec 'ip link set lo up; {pair}'", user=USER,
                                  patience=120))
        room.run(f"mkdir '/tmp/a place' && mv /tmp/{name} '/tmp/a place/moved'", user=USER)
        moved = PAIR.format(feroce="'/tmp/a place/moved/bin/feroce'")
        expect_bandwidth(room.run(moved, user=USER, patience=120))
        print(f"{suite}: {seconds:.1f} s from the archive to the end of ib_write_bw", flush=True)
        seconds = try_wheel(room, archive)
        print(f"{suite}: {seconds:.1f} s from the wheel to the end of ib_write_bw", flush=True)


def try_wheel(room, archive):
    """As `pip install` puts it into a virtual environment."""
    room.install("python3-venv")
    wheel = pathlib.Path(subprocess.run([WHEEL, archive], stdout=subprocess.PIPE, text=True,
                                        check=True).stdout.strip())
    shutil.copy(wheel, room.folder / "tmp")
    begin = time.monotonic()
    room.run(f"python3 -m venv /tmp/venv && /tmp/venv/bin/pip install --no-index /tmp/{wheel.name}",
             user=USER, patience=120)
    expect_bandwidth(room.run(PAIR.format(feroce="/tmp/venv/bin/feroce"), user=USER, patience=120))
    seconds = time.monotonic() - begin
    said = room.run("/tmp/venv/bin/python -c 'import feroce, os; "
                    "print(os.listdir(feroce.libraries()))'", user=USER)
    if "libibverbs.so.1" not in said:
        sys.exit(f"dist: the module finds {said}")
    said = room.run(f"/tmp/venv/bin/python -c '{SESSION}'", user=USER, patience=60)
    if said.split() != ["answer", "3"]:
        sys.exit(f"dist: a session between two objects of Python gives {said}")
    room.run("/tmp/venv/bin/pip uninstall -y feroce && test ! -e /tmp/venv/bin/feroce", user=USER)
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("suites", nargs="+")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("dist: only root can make Debian systems; use sudo")
    options.work.mkdir(parents=True, exist_ok=True)
    for suite in options.suites:
        try_suite(options.work, options.archive, suite)


if __name__ == "__main__":
    main()
