#!/usr/bin/env python3
"""./feroce bench gas: operations on remote memory and containers, beside MPI and Redis.

run.py --build FOLDER [--json] [--milliseconds N]
Two processes of one machine. Peers that are not installed are left out, and the table says so.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import figures  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_SECONDS = 300
# Other one-sided components of Open MPI 4.1.4 crash in MPI_Compare_and_swap here.
MPI_WAYS = {"MPI tcp": {"btl": "self,tcp", "btl_tcp_if_include": "lo", "osc": "pt2pt"},
            "MPI shared memory": {"btl": "self,vader", "osc": "sm"}}


def ours(build, milliseconds):
    """{(row, tasks): figures}, both nodes together."""
    lines = figures.launch(build, 2, [os.path.join(build, "bench/gas_table"), str(milliseconds)],
                           LIMIT_SECONDS)
    rows = {}
    for line in lines:
        rows.setdefault((line["row"], line["tasks"]), []).append(line)
    return {key: {"per_s": sum(node["per_s"] for node in nodes),
                  "us": figures.percentiles(figures.merge(node["times"] for node in nodes)),
                  "round_trips": sum(node["round_trips"] for node in nodes) / len(nodes),
                  "allocations": sum(node["allocations"] for node in nodes) / len(nodes)}
            for key, nodes in rows.items()}


def mpi(milliseconds):
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        return {}
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "mpi_rma")
        subprocess.run(["mpicc", "-O2", "-o", program, str(HERE / "mpi_rma.c")], check=True)
        for name, way in MPI_WAYS.items():
            words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "--mca", "pml",
                     "ob1"]
            for key, value in way.items():
                words += ["--mca", key, value]
            words += [program, str(milliseconds)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS,
                                  check=False)
            lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
            out[name] = {(line["row"], line["tasks"]): line for line in lines}
    return out


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def redis():
    """Sets and gets a second over two connections, one at a time and eight pipelined."""
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        return {}
    port = str(free_port())
    server = subprocess.Popen(["redis-server", "--port", port, "--save", "", "--appendonly", "no"],
                              stdout=subprocess.DEVNULL)
    out = {}
    try:
        deadline = time.monotonic() + 10
        while subprocess.run(["redis-cli", "-p", port, "ping"], capture_output=True,
                             check=False).returncode != 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        for deep in (1, 8):
            words = ["redis-benchmark", "-p", port, "-c", "2", "-P", str(deep), "-n",
                     str(50_000 * deep), "-r", "10000", "-t", "set,get", "-d", "8", "--csv"]
            text = subprocess.run(words, capture_output=True, text=True, check=True,
                                  timeout=LIMIT_SECONDS).stdout
            for line in text.splitlines():
                fields = [field.strip('"') for field in line.split(",")]
                if fields[0] in ("SET", "GET"):
                    out[(fields[0].lower(), deep)] = float(fields[1])
    finally:
        server.terminate()
        server.wait()
    return out


def print_table(rows, peers, store):
    print(f"{'2 processes, both ask':26} {'tasks':>5} {'thousand/s':>11} {'p50 us':>8} "
          f"{'p99 us':>8} {'round trips':>12} {'allocations':>12}")
    for (name, tasks), row in rows.items():
        print(f"{name:26} {tasks:>5} {row['per_s'] / 1000:>11.1f} {row['us']['p50']:>8.1f} "
              f"{row['us']['p99']:>8.1f} {row['round_trips']:>12.2f} {row['allocations']:>12.4f}")
    for peer, figure in peers.items():
        print(f"\n{peer}: thousand/s (one process asks), ours / theirs, median, ours / theirs")
        for key, line in figure.items():
            print(f"{key[0]:26} {key[1]:>5} {line['per_s'] / 1000:>11.1f} "
                  f"{rows[key]['per_s'] / line['per_s']:>8.2f} x {line['p50_us']:>8.1f} us "
                  f"{rows[key]['us']['p50'] / line['p50_us']:>8.2f} x")
    if store:
        print("\nRedis, 2 connections: thousand/s, and our hash map (YCSB C, A) / theirs")
        for (kind, deep), per_s in store.items():
            own = rows[(f"hash map, YCSB {'C' if kind == 'get' else 'A'}", deep)]["per_s"]
            print(f"{kind:26} {deep:>5} {per_s / 1000:>11.1f} {own / per_s:>8.2f} x")
    for name, there in (("Open MPI", peers), ("Redis", store)):
        if not there:
            print(f"{name} is not installed and was left out")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--milliseconds", type=int, default=500)
    options = parser.parse_args()
    figures.say("part 1 of 3: global address space")
    rows = ours(os.path.abspath(options.build), options.milliseconds)
    figures.say("part 2 of 3: Open MPI")
    peers = mpi(options.milliseconds)
    figures.say("part 3 of 3: Redis")
    store = redis()
    if options.json:
        named = [dict(row, row=key[0], tasks=key[1]) for key, row in rows.items()]
        peer_rows = [dict(line, peer=peer) for peer, figure in peers.items()
                     for line in figure.values()]
        peer_rows += [{"peer": "Redis", "row": kind, "tasks": deep, "per_s": per_s}
                      for (kind, deep), per_s in store.items()]
        print(json.dumps({"rows": named, "peers": peer_rows}, indent=1))
        return
    print_table(rows, peers, store)


if __name__ == "__main__":
    main()
