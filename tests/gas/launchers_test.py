#!/usr/bin/env python3
"""Clusters that real launchers start: launchers_test.py openmpi|mpich|slurm|torchrun BUILD.

Nothing of a launcher's environment is set here: the nodes get their rank and size from mpirun,
mpiexec, srun and torchrun as Debian has them. Slurm's cluster is one machine: its daemons and
munge's run in the foreground, as the user of the test, with all their files in a folder of the test
and a key of its own. Started by root, a test has its own network, since launchers listen on every
address of the machine, and its own processes, which end with it.
"""
import contextlib
import ctypes
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 60
NODES = 3
# What a test that runs under a launcher itself would hand on.
FOREIGN = re.compile(r"^(OMPI|PMIX?|PRTE|MPI|HYDRA?|SLURM|MV2|FLUX|TORCHELASTIC)_|"
                     r"^(RANK|WORLD_SIZE|MASTER_)")


class Failure(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failure(text)


def environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if not FOREIGN.search(name) and not name.startswith("FEROCE_GAS_")}
    return {**kept, "FEROCE_DEVICES": "lo", **more}


def free_ports(count):
    """Ports that nobody listened at a moment ago, for TCP."""
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def run(words, env, patience=PATIENCE):
    """The exit status of a launcher, and all that it and its nodes print."""
    # In a session of its own, so that a launcher that hangs is ended with all of its nodes.
    with subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as launcher:
        try:
            shown, _ = launcher.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(launcher.pid, signal.SIGKILL)
            shown, _ = launcher.communicate()
            raise Failure(f"{' '.join(words)} does not end: {shown}") from None
    return launcher.returncode, shown


class Programs:
    def __init__(self, build):
        self.build = build
        self.feroce = build / "bin/feroce"
        self.counter = build / "examples/gas/gas_counter"

    def words(self):
        return [str(self.feroce), "run", "--", str(self.counter)]

    def count(self, launcher, env):
        """The nodes are one cluster: each has its own rank, and all have been counted."""
        status, shown = run([*launcher, *self.words()], env)
        check(status == 0, f"{' '.join(launcher)}: status {status}: {shown}")
        lines = re.findall(r"node (\d+) of (\d+) counted after (\d+) others; all are (\d+)", shown)
        check(sorted(int(line[0]) for line in lines) == list(range(NODES)), shown)
        check(sorted(int(line[2]) for line in lines) == list(range(NODES)), shown)
        check({line[1] for line in lines} == {line[3] for line in lines} == {str(NODES)}, shown)
        print(f"{' '.join(launcher)}: {NODES} nodes, one cluster")

    def refuse(self, launcher, env, words):
        """No cluster of one: a sentence that says what to do."""
        status, shown = run([*launcher, *self.words()], env)
        check(status != 0, f"{' '.join(launcher)}: it should have failed: {shown}")
        check(words in shown, f"{' '.join(launcher)}: no word of {words}: {shown}")
        check("counted after" not in shown, shown)
        print(f"{' '.join(launcher) or 'no launcher'}: refused")


# It starts nothing elsewhere and looks for no ssh. Those of PRTE are for Open MPI 5.
OPENMPI_QUIET = {"OMPI_MCA_plm": "isolated", "OMPI_MCA_oob_tcp_if_include": "lo",
                 "PRTE_MCA_plm": "ssh", "PRTE_MCA_plm_ssh_agent": "false",
                 "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                 "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def test_openmpi(programs, _):
    launcher = ["mpirun.openmpi", "--oversubscribe", "-n", str(NODES)]
    seed = f"localhost:{free_ports(1)[0]}"
    programs.count(launcher, environment(FEROCE_GAS_SEED=seed, **OPENMPI_QUIET))
    programs.refuse(launcher, environment(**OPENMPI_QUIET), "FEROCE_GAS_SEED")


def test_mpich(programs, _):
    seed = f"localhost:{free_ports(1)[0]}"
    for name in ("mpiexec.hydra", "mpiexec.mpich"):
        launcher = [name, "-launcher", "fork", "-n", str(NODES)]
        programs.count(launcher, environment(FEROCE_GAS_SEED=seed))
    programs.refuse(launcher, environment(), "FEROCE_GAS_SEED")


SLURM_CONF = """\
ClusterName=feroce
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
# PMIx has a folder there that is named by the job; the first job of every cluster has number 1.
TmpFS={folder}/tmp
MailProg=/bin/true
# Without control groups, which a container may not have.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# As many nodes as the test wants, however few processors there are.
SlurmdParameters=config_overrides
SelectType=select/linear
SchedulerType=sched/builtin
NodeName=localhost NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES State=UP
"""


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """What a daemon leaves becomes a child of this process, so that it can be ended with it."""
    check(LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, "prctl")


def end_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_orphans():
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                child = int(stat.parent.name)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


class Slurm:
    """A cluster of one machine, for as long as the block lasts."""

    def __init__(self, folder):
        self.folder = folder
        self.daemons = contextlib.ExitStack()
        self.env = environment(SLURM_CONF=str(folder / "slurm.conf"), TMPDIR=str(folder / "tmp"))

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            adopt_orphans()
            self.daemons.callback(end_orphans)  # When the daemons have ended.
            undo.enter_context(self.daemons)
            self.configure()
            munge = self.folder / "munge"
            self.start("munged", "--foreground", "--force", f"--key-file={munge}.key",
                       f"--socket={munge}.socket", f"--pid-file={munge}.pid",
                       f"--seed-file={munge}.seed", f"--log-file={munge}.log")
            self.wait("munge's socket", (self.folder / "munge.socket").exists)
            self.start("slurmctld", "-D")
            self.start("slurmd", "-D", "-N", "localhost")
            self.wait("an idle machine", self.is_idle)
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.daemons.close()

    def configure(self):
        controller, daemon = free_ports(2)
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.folder.chmod(0o711)  # As munge wants it for its socket.
        for name in ("state", "spool", "tmp"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(
            controller=controller, daemon=daemon, user=user, folder=self.folder, cpus=NODES))
        # Newer ones ask for control groups whatever the plugins above say.
        version = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True)
        if tuple(map(int, re.findall(r"\d+", version.stdout)[:2])) >= (24, 5):
            (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")

    def log(self, name):
        return self.folder / f"{name}.out"

    def start(self, name, *arguments):
        program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
        check(program, f"there is no {name}")
        with open(self.log(name), "w", encoding="utf-8") as log:
            daemon = subprocess.Popen([program, *arguments], env=self.env, stdout=log, stderr=log,
                                      stdin=subprocess.DEVNULL, start_new_session=True,
                                      preexec_fn=end_with_parent)
        self.daemons.callback(self.end, daemon)

    @staticmethod
    def end(daemon):
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()

    def is_idle(self):
        status, shown = run(["sinfo", "-h", "-o", "%T"], self.env)
        return status == 0 and shown.strip() == "idle"

    def wait(self, what, condition):
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                logs = "\n".join(path.read_text() for path in self.folder.glob("*.out"))
                raise Failure(f"{what} does not come:\n{logs}")
            time.sleep(0.1)


def test_slurm(programs, folder):
    with Slurm(folder) as slurm:
        inside = [sys.executable, __file__, "allocated", str(programs.build)]
        status, shown = run(["salloc", "-n", str(NODES), *inside], slurm.env,
                            3 * PATIENCE)
        print(shown)
        check(status == 0, f"status {status}")


def test_allocated(programs, _):
    """In an allocation of Slurm, whose variables are there. One for all: a second one would wait
    until the first is over, which takes long where the machine does not know its own name."""
    srun = ["srun", "-n", str(NODES)]
    env = dict(os.environ)
    # Rank 0 listens on the first machine of the step, at our default port.
    programs.count([*srun, "--mpi=none"], env)
    seed = f"localhost:{free_ports(1)[0]}"
    for protocol in ("pmi2", "pmix"):
        programs.count([*srun, f"--mpi={protocol}"], {**env, "FEROCE_GAS_SEED": seed})
    programs.refuse([], env, "srun")  # It was forgotten.


def test_torchrun(programs, folder):
    """Agents as torchrun starts them: one, and two that stand for machines."""
    # By default PyTorch 1.13 fails under Python 3.11, which counts members of an IntFlag otherwise.
    torchrun = ["torchrun", "--no_python", "--redirects=1", "--tee=1", f"--log_dir={folder}"]
    # Where the first node is nobody says but the agent.
    programs.count([*torchrun, "--standalone", f"--nproc_per_node={NODES}"],
                   environment(OMP_NUM_THREADS="1"))
    master, port = "127.0.0.1", str(free_ports(1)[0])
    agents = []
    for machine in range(2):
        words = [*torchrun, "--nnodes=2", f"--node_rank={machine}", "--nproc_per_node=1",
                 f"--master_addr={master}", f"--master_port={port}", *programs.words()]
        agents.append(subprocess.Popen(words, env=environment(OMP_NUM_THREADS="1"), text=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True))
    try:
        said = [agent.communicate(timeout=3 * PATIENCE)[0] for agent in agents]
    except subprocess.TimeoutExpired:
        raise Failure("two agents of torchrun do not end") from None
    finally:
        for agent in agents:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
    shown = "".join(said)
    check([agent.returncode for agent in agents] == [0, 0], shown)
    lines = re.findall(r"node (\d+) of (\d+) counted after (\d+) others; all are (\d+)", shown)
    check(sorted(line[0] for line in lines) == ["0", "1"], shown)
    check({line[1] for line in lines} == {line[3] for line in lines} == {"2"}, shown)
    print("torchrun, two agents: 2 nodes, one cluster")


TESTS = {"openmpi": test_openmpi, "mpich": test_mpich, "slurm": test_slurm,
         "allocated": test_allocated, "torchrun": test_torchrun}


# Slurm finds no address where there is only loopback.
OWN_NETWORK = """ip link set lo up && ip link add net0 type veth peer name net1 &&
ip addr add 10.99.0.1/24 dev net0 && ip link set net0 up && ip link set net1 up && exec "$@" """


def enter_own_world():
    """Begins this program again with a network and processes of its own. If it is killed, the first
    of these processes is, and with it all of them. An ordinary user has none of this."""
    if os.geteuid() != 0 or "FEROCE_OWN_WORLD" in os.environ:
        return
    os.environ["FEROCE_OWN_WORLD"] = "yes"
    os.execvp("unshare", ["unshare", "-n", "-p", "--fork", "--kill-child", "--mount-proc",
                          "sh", "-c", OWN_NETWORK, "sh", sys.executable, *sys.argv])


def main():
    enter_own_world()
    name, build = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory(prefix="feroce-launchers-") as folder:
        try:
            TESTS[name](Programs(build), pathlib.Path(folder))
        except Failure as failure:
            sys.exit(f"FAILED: {failure}")


if __name__ == "__main__":
    main()
