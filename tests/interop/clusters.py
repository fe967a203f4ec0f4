"""Clusters of the global address space on the kernel's rxe: all nodes in the guest, and mixed ones.

The same programs that tests/gas runs on the soft device. What they print must say that every count
under a lock is right and every history linearizable; only the device differs. rxe's atomics are not
global, so atomics on the own node go through the device there.
"""
import shutil
import time

from lab import ADDRESS

SECONDS = 300
ROUNDS = "10"  # Of each lock: the guest is emulated.


class Cluster:
    def __init__(self, name, program, nodes, lines, proof):
        self.name, self.program, self.nodes = name, program, nodes
        self.lines, self.proof = lines, proof


LOCKS = (["gas_locks", ROUNDS], 6, "of")
HISTORIES = (["gas_histories"], 4, "calls, linearizable")
CLUSTERS = [Cluster("locks", LOCKS[0], ["rxe", "rxe"], *LOCKS[1:]),
            Cluster("locks", LOCKS[0], ["feroce", "rxe"], *LOCKS[1:]),
            Cluster("locks", LOCKS[0], ["rxe", "feroce"], *LOCKS[1:]),
            # Times of calls are compared, so all nodes must have the same clock.
            Cluster("histories", HISTORIES[0], ["rxe", "rxe"], *HISTORIES[1:])]


def prepare(lab):
    for name in ("gas_locks", "gas_histories"):
        shutil.copy(lab.vm.build / "tests/gas" / name, lab.vm.share)


def is_right(line, proof):
    """`NAME: 40 of 40`, or a line that says so."""
    if proof != "of":
        return line.endswith(proof)
    words = line.split()
    return len(words) >= 3 and words[-2] == "of" and words[-3] == words[-1] != "0"


def run(lab, cluster, family):
    """What was wrong, as sentences."""
    seed = ADDRESS[cluster.nodes[0]][family]
    seed = f"[{seed}]:{lab.next_port()}" if family == "IPv6" else f"{seed}:{lab.next_port()}"
    jobs = []
    for rank, side in enumerate(cluster.nodes):
        folder = "/share" if side == "rxe" else str(lab.vm.build / "tests/gas")
        words = ["env", f"FEROCE_GAS_RANK={rank}", f"FEROCE_GAS_SIZE={len(cluster.nodes)}",
                 f"FEROCE_GAS_SEED={seed}", f"{folder}/{cluster.program[0]}", *cluster.program[1:]]
        jobs.append(lab.start(side, " ".join(words)))
    problems, printed = [], ""
    deadline = time.monotonic() + SECONDS
    for rank, job in enumerate(jobs):
        status, output = job.finish(max(1, deadline - time.monotonic()))
        printed += output
        if status != 0:
            problems.append(f"node {rank} on {cluster.nodes[rank]}: status {status}: {output}")
    right = [line for line in printed.splitlines() if is_right(line, cluster.proof)]
    wanted = cluster.lines * (len(cluster.nodes) if cluster.proof == "of" else 1)
    if not problems and len(right) != wanted:
        problems.append(f"{len(right)} of {wanted} lines are right: {printed}")
    return problems
