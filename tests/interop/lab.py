"""The laboratory: a booted guest with rxe, the host's side on Feroce, and jobs on either."""
import os
import pathlib
import re
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
GUEST = "a"
TAPS = ("guest-a", "guest-a1")
TAP = TAPS[0]
ADDRESS = {"rxe": {"IPv4": "198.51.100.11", "IPv6": "2001:db8::11"},
           "feroce": {"IPv4": "198.51.100.1", "IPv6": "2001:db8::1"}}
# On the second rail.
SECOND = {"rxe": "203.0.113.11", "feroce": "203.0.113.1"}
DEVICES = {"feroce": "feroce_br0", "rxe": "rxe0"}
PAIR_SECONDS = 60
# Once one side has failed the other has nothing to wait for; rxe would repeat for ever.
AFTERMATH_SECONDS = 8
# Port spaces as they stand in a service id: RDMA_PS_TCP and RDMA_PS_UDP.
SPACES = {"tcp": 0x0106, "udp": 0x0111}


class Failure(Exception):
    pass


def require_host(stage):
    """Ends the program where a guest cannot be run."""
    if os.geteuid() != 0:
        raise SystemExit(f"{stage}: needs root, to make a network namespace and a tap device")
    if not os.path.exists("/dev/net/tun"):
        raise SystemExit(f"{stage}: there is no /dev/net/tun, so the guest cannot have a network")


def other(side):
    return "rxe" if side == "feroce" else "feroce"


class Vm:
    def __init__(self, work, build):
        self.base = [str(HERE / "vm"), "-w", str(work)]
        self.work = work
        self.build = build
        self.share = work / "guest" / GUEST / "share"
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(build / "lib"),
                                FEROCE_DEVICES="br0")

    def call(self, *words, timeout=400):
        result = subprocess.run([*self.base, *words], capture_output=True, text=True,
                                timeout=timeout, check=False)
        if result.returncode != 0:
            raise Failure(f"vm {' '.join(words)}: status {result.returncode}\n"
                          f"{result.stdout}{result.stderr}")
        return result.stdout.strip()

    def is_up(self):
        return subprocess.run([*self.base, "run", "-t", "10", GUEST, "true"], check=False,
                              capture_output=True).returncode == 0

    def on_guest(self, command, seconds=PAIR_SECONDS):
        return self.call("run", "-t", str(seconds), GUEST, command)

    def on_host(self, command, output=subprocess.PIPE):
        """A process of the host on its side of the private network, on Feroce."""
        return subprocess.Popen([*self.base, "ns", *command], env=self.environment, text=True,
                                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def on_host_output(self, command):
        process = self.on_host(command)
        output, _ = process.communicate(timeout=PAIR_SECONDS)
        if process.returncode != 0:
            raise Failure(f"{' '.join(command)}: status {process.returncode}\n{output}")
        return output


class HostJob:
    count = 0

    def __init__(self, vm, command):
        HostJob.count += 1
        self.path = vm.work / f"host-{HostJob.count % 10}.out"
        with open(self.path, "w") as output:
            self.process = vm.on_host(command.split(), output)

    def output(self):
        return self.path.read_text()

    def is_running(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def finish(self, seconds):
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return 124, self.output()
        return self.process.returncode, self.output()


class GuestJob:
    def __init__(self, vm, command):
        self.vm = vm
        self.job = vm.call("bg", GUEST, command)
        self.folder = vm.share / "job" / self.job

    def output(self):
        path = self.folder / "out"
        return path.read_text() if path.exists() else ""

    def is_running(self):
        return not (self.folder / "rc").exists()

    def kill(self):
        self.vm.call("kill", GUEST, self.job)
        self.finish(AFTERMATH_SECONDS)

    def finish(self, seconds):
        result = subprocess.run(
            [*self.vm.base, "wait", "-t", str(max(1, int(seconds))), GUEST, self.job],
            capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr


def wait_until(test, seconds, pause=0.05):
    """Whether the test came true in time."""
    deadline = time.monotonic() + seconds
    while not test():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


class Lab:
    """The booted guest and what is known about both devices."""

    def __init__(self, vm):
        self.vm = vm
        self.work = vm.work
        self.last_port = 20000
        host = vm.on_host_output(["ibv_devinfo", "-v", "-d", DEVICES["feroce"]])
        guest = vm.on_guest(f"ibv_devinfo -v -d {DEVICES['rxe']}")
        self.gids = {"feroce": self.read_gids(host, ADDRESS["feroce"]),
                     "rxe": self.read_gids(guest, ADDRESS["rxe"])}

    @staticmethod
    def read_gids(text, addresses):
        """Address family to GID index."""
        found = {gid: index for index, gid in re.findall(r"GID\[\s*(\d+)\]:\s*([\w.:]+)", text)}
        return {"IPv4": found["::ffff:" + addresses["IPv4"]], "IPv6": found[addresses["IPv6"]]}

    def next_port(self):
        self.last_port += 1
        return self.last_port

    def start(self, side, command):
        return (HostJob if side == "feroce" else GuestJob)(self.vm, command)

    def wait_for_listener(self, side, port, job, space=None):
        """Servers say nothing when they are ready, but tables do: of TCP sockets, or, for rdma_cm,
        the kernel's of connection ids and ours of services, which are unix sockets."""
        test = f"grep -qi ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"
        if space and side == "rxe":
            test = f"rdma res show cm_id | grep LISTEN | grep -q ':{port} '"
        elif space:
            test = f"grep -q '@feroce-cm-.*-{SPACES[space] << 16 | port}-' /proc/net/unix"
        if side == "rxe":
            self.vm.on_guest(f"for i in $(seq 200); do {test} && break; sleep 0.1; done")
            return
        wait_until(lambda: self.vm.on_host(["sh", "-c", test]).wait() == 0 or not job.is_running(),
                   PAIR_SECONDS)
