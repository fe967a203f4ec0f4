"""tgt, the target: tgtd with one file as disk, offered over iSER and beside it over TCP.

tgtd runs as any user: TGT_IPC_SOCKET names the socket by which tgtadm commands it, which otherwise
is in root's /var/run. A target belongs to one transport, so there are two of them on the same file.
"""
import contextlib
import pathlib
import random
import subprocess

from place import Failure, Place, wait_until

NAME = "iqn.2026-01.test.feroce:"
TARGETS = {"iscsi": 1, "iser": 2}  # tgt's numbers for them.
LUN = 1  # tgt keeps 0 for its controller.
# Over iSER tgt 1.0.85 admits only initiators whose address and name are both bound, over TCP either
# does (fujita/tgt#63): these are the names that the programs have, and the guest of tests/interop.
LIBISCSI = "iqn.2007-10.com.github:sahlberg:libiscsi:"
INITIATORS = (*(LIBISCSI + tool for tool in ("iscsi-inq", "iscsi-readcapacity16", "iscsi-test",
                                              "iscsi-test-2")),
              "iqn.2010-11.libiscsi:iscsi-perf", "iqn.2008-11.org.linux-kvm", NAME + "guest")
# For initiators: over iSER libiscsi's cache of small blocks hands out blocks that are too small.
LIBISCSI_SETTINGS = {"LIBISCSI_CACHE_ALLOCATIONS": "0"}
START_SECONDS = 20
# An initiator that died is noticed when the ping that tgt sends every 5 s is repeated in vain.
STOP_SECONDS = 60


def url(transport, address, port):
    host = f"[{address}]" if ":" in address else address
    return f"{transport}://{host}:{port}/{NAME}{transport}/{LUN}"


def image_options(transport, address, port, name, lun):
    """The disk in QEMU's words. Over iSER libiscsi 1.19 has buffers of 256 KiB and qemu-img dies of
    more, so a filter of QEMU's cuts requests to that."""
    host = f"[{address}]" if ":" in address else address
    return ("driver=raw,file.driver=blkdebug,file.max-transfer=262144,file.image.driver=iscsi,"
            f"file.image.transport={transport},file.image.portal={host}:{port},"
            f"file.image.target={name},file.image.lun={lun}")


class Target:
    """A running tgtd. `address` is where it listens for TCP; for RDMA tgt listens everywhere."""

    def __init__(self, place, folder, address, disk):
        self.folder = pathlib.Path(folder)
        self.address = address
        self.disk = pathlib.Path(disk)
        # Below the ephemeral range; tgt keeps it in a signed short.
        self.port = random.randrange(10000, 30000)
        path = place.environment.get("PATH", "/usr/bin") + ":/usr/sbin"  # Only root has that.
        environment = dict(place.environment, TGT_IPC_SOCKET=str(self.folder / "socket"), PATH=path)
        self.place = Place(environment, place.words, place.feroce)
        self.log = self.folder / "tgtd.log"
        self.process = None

    def start(self):
        with open(self.log, "w") as log:
            self.process = self.place.start(
                "tgtd", "-f", "--iscsi", f"portal={self.portal()}", "--iser", f"port={self.port}",
                stdout=log, stderr=subprocess.STDOUT)
        self.configure()

    def restart(self):
        """Forgets every session, reservation and wait, as after an initiator that crashed."""
        self.kill()
        self.start()

    def portal(self):
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    def url(self, transport):
        return url(transport, self.address, self.port)

    def image(self, transport="iser"):
        word = "tcp" if transport == "iscsi" else transport  # QEMU's.
        return image_options(word, self.address, self.port, NAME + transport, LUN)

    def admin(self, *words):
        """tgtadm knows nothing of RDMA, so it is not put on Feroce."""
        return Place(self.place.environment, self.place.words).run("tgtadm", *words)

    def command(self, *words):
        status, output = self.admin(*words)
        if status != 0:
            raise Failure(f"tgtadm {' '.join(words)} ended with status {status}:\n{output}"
                          f"{self.log.read_text()}")

    def is_ready(self):
        if self.process.poll() is not None:
            raise Failure(f"tgtd ended with status {self.process.returncode}:\n"
                          f"{self.log.read_text()}")
        status, output = self.admin("--mode", "system", "--op", "show")
        return status == 0 and "iser: ready" in output and "iscsi: ready" in output

    def configure(self):
        if not wait_until(self.is_ready, START_SECONDS):
            raise Failure(f"tgtd does not offer iSER:\n{self.log.read_text()}")
        for transport, number in TARGETS.items():
            target = ["--lld", transport, "--mode", "target", "--tid", str(number)]
            unit = ["--lld", transport, "--mode", "logicalunit", "--tid", str(number),
                    "--lun", str(LUN)]
            self.command(*target, "--op", "new", "-T", NAME + transport)
            self.command(*unit, "--op", "new", "-b", str(self.disk))
            # So that discarding is tried too.
            self.command(*unit, "--op", "update", "--params", "thin_provisioning=1")
            self.command(*target, "--op", "bind", "-I", "ALL")
            for name in INITIATORS:
                self.command(*target, "--op", "bind", "-Q", name)

    def delete(self, transport):
        status, _ = self.admin("--lld", transport, "--mode", "target", "--op", "delete",
                               "--tid", str(TARGETS[transport]))
        return status == 0

    def stop(self):
        """tgtd ends by command only, without targets only. A target goes when its last connection
        is out of time-wait; to force that makes tgt 1.0.85 use memory it has freed."""
        for transport in TARGETS:
            if not wait_until(lambda: self.delete(transport), STOP_SECONDS):
                raise Failure(f"connections stay behind:\n{self.log.read_text()}")
        self.command("--mode", "system", "--op", "delete")
        if self.process.wait(timeout=START_SECONDS) != 0:
            raise Failure(f"tgtd ended with status {self.process.returncode}:\n"
                          f"{self.log.read_text()}")

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def running(place, folder, address, disk):
    target = Target(place, folder, address, disk)
    try:
        target.start()
        yield target
        target.stop()
    finally:
        target.kill()
