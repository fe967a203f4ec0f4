#!/usr/bin/env python3
"""Open MPI over UCX's rc transport on the soft device: run.py BUILD RANKS.

All ranks are on this machine, however few cores it has, and each sends to each (alltoall.c), so
128 ranks are 128 processes with 127 queue pairs each. UCX is left no other way to another rank: no
shared memory, no TCP, no other device. Its bytes are checked by the program.
"""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gas"))
import launchers_test  # noqa: E402  pylint: disable=wrong-import-position

ROUNDS = 4
BYTES = 16384
PATIENCE = 900


def environment():
    return launchers_test.environment(
        **launchers_test.OPENMPI_QUIET,
        OMPI_MCA_pml="ucx",
        OMPI_MCA_osc="^ucx",  # Nothing here is one-sided.
        OMPI_MCA_mpi_yield_when_idle="1",  # A rank that waits lets another have its core.
        UCX_TLS="rc,self",
        UCX_NET_DEVICES="feroce_lo:1",
        UCX_RNDV_THRESH="8192",  # So that messages of both ways are sent: by SEND and by READ.
        # Of UCX's own memory: 38 MB of receive buffers a rank by default.
        UCX_RC_VERBS_RX_QUEUE_LEN="1024")


def main():
    launchers_test.enter_own_world()
    build, ranks = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="feroce-mpi-") as folder:
        program = f"{folder}/alltoall"
        subprocess.run(["mpicc.openmpi", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program,
                        str(HERE / "alltoall.c")], check=True)
        status, shown = launchers_test.run(
            ["mpirun.openmpi", "--oversubscribe", "-n", str(ranks), str(build / "bin/feroce"),
             "run", "--", program, str(ROUNDS), str(BYTES)], environment(), PATIENCE)
    print(shown, end="")
    if status != 0 or f"{ranks} ranks, {ROUNDS} rounds" not in shown:
        sys.exit(f"FAILED: mpirun ended with status {status}")


if __name__ == "__main__":
    main()
