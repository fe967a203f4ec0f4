#!/usr/bin/env python3
"""./feroce bench verbs: the drop-in over UDP loopback beside what else this machine offers.

Every round measures each row once, peers and ours in turn, so that noise of the machine falls on
all alike; the table shows medians of the rounds, and ratios of those.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from figures import environment  # noqa: E402

LIMIT_SECONDS = 60


def run(command, env=None):
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout}")
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listening(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for line in lines.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].split(":")[1], 16) == port:
                    return True
    return False


def pinned(command, which):
    """On a core of its own where there are two, as the programs of this folder do themselves."""
    cores = sorted(os.sched_getaffinity(0))
    return command if len(cores) < 2 else ["taskset", "-c", str(cores[which])] + command


def run_pair(server, client, port, env=None):
    """The client's output; both must end well."""
    server, client = pinned(server, 1), pinned(client, 0)
    first = subprocess.Popen(server, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not listening(port):
            if first.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(server)} does not listen")
            time.sleep(0.01)
        out = run(client, env)
        first.wait(LIMIT_SECONDS)
        return out
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()


class Measures:
    """One method a source of figures; each returns {row: value}."""

    def __init__(self, build):
        self.build = build
        self.env = environment(build, FEROCE_SAMEHOST="off")

    def own(self, program, *words):
        return json.loads(run([os.path.join(self.build, "bench", program), *words], self.env))

    def sockets(self):
        big = self.own("socket_limits", "tcp_stream", str(1 << 20))
        return {
            "TCP stream, 64 KiB": self.own("socket_limits", "tcp_stream", "65536")["GB_per_s"],
            "TCP stream, 1 MiB": big["GB_per_s"],
            "TCP stream, CPU": big["cpu_s_per_GB"],
            "TCP ping-pong": self.own("socket_limits", "tcp_pingpong")["us_p50"],
            "UDP segmented stream": self.own("socket_limits", "udp_stream")["GB_per_s"],
            "UDP busy ping-pong": self.own("socket_limits", "udp_pingpong")["us_p50"],
            "UDP datagrams": self.own("socket_limits", "udp_messages")["Mmsg_per_s"],
        }

    def verbs(self):
        big = self.own("verbs_limits", "bandwidth", str(1 << 20))
        two = self.own("verbs_limits", "bandwidth", str(1 << 20), "2")
        return {
            "WRITE, 64 KiB": self.own("verbs_limits", "bandwidth", "65536")["GB_per_s"],
            "WRITE, 1 MiB": big["GB_per_s"],
            "WRITE, CPU": big["cpu_s_per_GB"],
            "WRITE, 1 MiB, 2 threads": two["GB_per_s"],
            "WRITE 8 B, post to completion": self.own("verbs_limits", "write_latency")["us_p50"],
            "READ 8 B, post to completion": self.own("verbs_limits", "read_latency")["us_p50"],
            "SEND 8 B, post to completion": self.own("verbs_limits", "send_latency")["us_p50"],
            "WRITE 64 B, 16 QPs": self.own("verbs_limits", "message_rate", "16")["Mmsg_per_s"],
        }

    def perftest(self, tool, *words):
        port = free_port()
        command = [tool, "-d", "feroce_lo", "-p", str(port), *words]
        return run_pair(command, command + ["127.0.0.1"], port, self.env)

    def perftest_latency(self, tool):
        # size, iterations, min, max, typical, ...
        line = re.search(r"^ *8 +\d+ .*$", self.perftest(tool, "-s", "8", "-n", "5000"), re.M)
        return float(line.group(0).split()[4])

    def programs(self):
        default_buffer = self.perftest("ib_write_bw", "-q", "16", "-n", "1000")
        line = re.search(r"^ *65536 .*$", default_buffer, re.M).group(0)
        return {
            "ib_send_lat": self.perftest_latency("ib_send_lat"),
            "ib_write_lat": self.perftest_latency("ib_write_lat"),
            "ib_write_bw -q 16": float(line.split()[3]) / 1000,
        }

    def ucx(self):
        if not shutil.which("ucx_perftest"):
            return {}
        port = free_port()
        env = dict(os.environ, UCX_TLS="tcp", UCX_NET_DEVICES="lo", UCX_WARN_UNUSED_ENV_VARS="n")
        base = ["ucx_perftest", "-p", str(port), "-t", "tag_lat", "-s", "8", "-n", "5000"]
        text = run_pair(base, base[:1] + ["127.0.0.1"] + base[1:], port, env)
        # Final: iterations, percentile, average, overall, ...
        return {"UCX tcp": float(re.search(r"Final:\s+\d+\s+([\d.]+)", text).group(1))}

    def libfabric(self):
        if not shutil.which("fi_pingpong"):
            return {}
        port = free_port()
        base = ["fi_pingpong", "-p", "tcp", "-e", "msg", "-S", "64", "-I", "5000"]
        text = run_pair(base + ["-B", str(port)], base + ["-P", str(port), "127.0.0.1"], port)
        # bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec
        line = [x for x in text.splitlines() if x.startswith("64")][-1]
        return {"libfabric tcp": float(line.split()[6])}


# name, unit, row, peer's row, factor on the peer's figure, bar (ours at least / at most x peer)
RATIOS = [
    ("bandwidth, 64 KiB", "WRITE, 64 KiB", "TCP stream, 64 KiB", 1, None),
    ("bandwidth, 1 MiB", "WRITE, 1 MiB", "TCP stream, 1 MiB", 1, (">=", 0.6)),
    ("bandwidth, 1 MiB, of UDP's limit", "WRITE, 1 MiB", "UDP segmented stream", 1, None),
    ("two threads against one", "WRITE, 1 MiB, 2 threads", "WRITE, 1 MiB", 1, None),
    ("CPU per byte against TCP", "WRITE, CPU", "TCP stream, CPU", 1, None),
    ("WRITE 8 B against UDP round trip", "WRITE 8 B, post to completion", "UDP busy ping-pong", 1,
     ("<=", 1.5)),
    ("READ 8 B against UDP round trip", "READ 8 B, post to completion", "UDP busy ping-pong", 1,
     None),
    ("ib_send_lat against UDP half round trip", "ib_send_lat", "UDP busy ping-pong", 0.5,
     ("<=", 3)),
    ("ib_write_lat against UDP half round trip", "ib_write_lat", "UDP busy ping-pong", 0.5,
     ("<=", 8)),
    ("ib_send_lat against UCX tcp", "ib_send_lat", "UCX tcp", 1, ("<=", 1)),
    ("ib_send_lat against libfabric tcp", "ib_send_lat", "libfabric tcp", 1, ("<=", 1)),
    ("messages against UDP datagrams", "WRITE 64 B, 16 QPs", "UDP datagrams", 1, (">=", 3)),
]

UNITS = [("CPU s/GB", r"CPU"), ("M/s", r"datagrams|16 QPs|64 B|messages"),
         ("GB/s", r"stream, \d|WRITE, \d|segmented|_bw|memcpy|bare")]


def unit_of(row):
    for unit, pattern in UNITS:
        if re.search(pattern, row):
            return unit
    return "us"


def verdict(ratio, bar):
    if bar is None:
        return ""
    met = ratio >= bar[1] if bar[0] == ">=" else ratio <= bar[1]
    return f"{bar[0]} {bar[1]}: {'met' if met else 'missed'}"


def report(found, wanted, as_json):
    """Prints the medians, and the ratios of those that were measured."""
    medians = {row: statistics.median(values) for row, values in found.items()}
    ratios = [(name, medians[ours] / (medians[peer] * factor), bar)
              for name, ours, peer, factor, bar in wanted if ours in medians and peer in medians]
    if as_json:
        print(json.dumps({"figures": medians, "ratios": {n: r for n, r, _ in ratios}}, indent=2))
        return
    for row, value in medians.items():
        print(f"{row:36} {value:10.3f} {unit_of(row)}")
    print()
    for name, ratio, bar in ratios:
        print(f"{name:42} {ratio:6.2f}  {verdict(ratio, bar)}")


def measure(about, measures_of, sources, ratios):
    """Every source of every round once, then the table."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    measures = measures_of(os.path.abspath(arguments.build))
    found = {}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        for source in sources:
            for row, value in source(measures).items():
                found.setdefault(row, []).append(value)
    report(found, ratios, arguments.json)


def main():
    measure(__doc__, Measures, [Measures.sockets, Measures.verbs, Measures.programs, Measures.ucx,
                                Measures.libfabric], RATIOS)


if __name__ == "__main__":
    main()
