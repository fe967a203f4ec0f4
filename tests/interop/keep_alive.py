"""An idle connection to rxe: Feroce asks its queue pair whether it is there. While the guest can
answer nothing happens; once its cable is cut the connection ends, whoever made it.
"""
import shutil
import subprocess
import time

from lab import ADDRESS, TAP, GuestJob, other, wait_until

PROGRAM = "tests/interop/guest_mortal"  # Of tests/rdmacm/mortal.cpp.
KEEPALIVE_SECONDS = 3
IDLE_SECONDS = 12  # Four times the silence that would end it.
PATIENCE_SECONDS = 60
LIFE_SECONDS = 120  # Of the programs, which end with their stdin.
DISCONNECTED = "RDMA_CM_EVENT_DISCONNECTED"


class OurJob:
    """A program on Feroce whose stdin stays open."""

    def __init__(self, vm, command):
        self.path = vm.work / "keep-alive.out"
        settings = f"FEROCE_KEEPALIVE={KEEPALIVE_SECONDS}"
        with open(self.path, "w") as output:
            self.process = subprocess.Popen(
                [*vm.base, "ns", "timeout", str(LIFE_SECONDS), "env", settings, *command],
                env=vm.environment, text=True, stdin=subprocess.PIPE, stdout=output,
                stderr=subprocess.STDOUT)

    def output(self):
        return self.path.read_text()

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE_SECONDS)


def start(lab, side, role, port):
    words = [role, ADDRESS["rxe" if (side == "rxe") == (role == "server") else "feroce"]["IPv4"],
             str(port)]
    if side == "feroce":
        return OurJob(lab.vm, [str(lab.vm.build / PROGRAM), *words])
    return GuestJob(lab.vm, f"sleep {LIFE_SECONDS} | /share/guest_mortal {' '.join(words)}")


def said(job, word):
    return lambda: word in job.output()


def idle_and_cut(lab, client):
    """Problems with Feroce as client or as server."""
    port = lab.next_port()
    server = start(lab, other(client), "server", port)
    if not wait_until(said(server, "listening"), PATIENCE_SECONDS):
        return ["the server does not listen: " + server.output()]
    asking = start(lab, client, "client", port)
    ours = asking if client == "feroce" else server
    try:
        if not wait_until(said(asking, "connected"), PATIENCE_SECONDS):
            return ["not connected: " + asking.output() + server.output()]
        time.sleep(IDLE_SECONDS)  # Nothing is waited for: that nothing happens is the point.
        if DISCONNECTED in ours.output():
            return ["an idle connection to a living peer ended"]
        lab.vm.call("ns", "ip", "link", "set", TAP, "down")
        try:
            if not wait_until(said(ours, DISCONNECTED), PATIENCE_SECONDS):
                return ["the death of the peer was not noticed: " + ours.output()]
        finally:
            lab.vm.call("ns", "ip", "link", "set", TAP, "up")
        return []
    finally:
        ours.end()
        (server if client == "feroce" else asking).kill()


def run(lab, table):
    shutil.copy(lab.vm.build / PROGRAM, lab.vm.share)
    for client in ("feroce", "rxe"):
        problems = idle_and_cut(lab, client)
        print("ok  " if not problems else "FAIL", "keep-alive", client, *problems, flush=True)
        table.add("keep-alive of an idle connection", client, "IPv4", None, problems)
