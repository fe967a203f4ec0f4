"""rsockets with rdma-core's on rxe: rcopy carries a file in both directions. rstream and riostream
are pairs (pairs.py)."""
import hashlib
import pathlib
import random

from lab import ADDRESS, PAIR_SECONDS, other

SIDES = ("feroce", "rxe")
FILE_BYTES = 300_000


def digest(lab, side, path):
    """rcopy maps what it writes, so that the copy in the guest is not on the share."""
    if side == "rxe":
        return lab.vm.on_guest(f"sha256sum {path} || true").split(" ")[0]
    found = pathlib.Path(path)
    return hashlib.sha256(found.read_bytes()).hexdigest() if found.exists() else "no file"


def copy_file(lab, client):
    """What went wrong, in words. The server never ends by itself."""
    server = other(client)
    port = lab.next_port()
    source = lab.vm.share / "rcopy.source"
    source.write_bytes(random.Random(port).randbytes(FILE_BYTES))
    names = {"feroce": str(source), "rxe": "/share/rcopy.source"}
    copies = {"feroce": str(lab.work / "rcopy.copy"), "rxe": "/tmp/rcopy.copy"}
    serving = lab.start(server, f"rcopy -p {port}")
    try:
        lab.wait_for_listener(server, port, serving, "tcp")
        command = f"rcopy {names[client]} {ADDRESS[server]['IPv4']}:{copies[server]} -p {port}"
        status, output = lab.start(client, command).finish(PAIR_SECONDS)
        problems = [f"{client} ended with status {status}: {command}\n{output}"] if status else []
    finally:
        serving.kill()
    if not problems and digest(lab, "feroce", str(source)) != digest(lab, server, copies[server]):
        problems.append(f"the copy differs\n{serving.output()}")
    return problems


def run(lab, table):
    for client in SIDES:
        problems = copy_file(lab, client)
        print("ok  " if not problems else "FAIL", "rcopy", client, *problems, flush=True)
        table.add("rcopy", client, "IPv4", None, problems)
