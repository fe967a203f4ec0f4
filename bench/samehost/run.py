#!/usr/bin/env python3
"""./feroce bench samehost: two processes of one machine, by rings in shared memory and by UDP,
beside UCX and libfabric over shared memory, TCP, and a thread that copies memory.

Every round measures each row once, in turn; the table shows medians of the rounds, and ratios of
those.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys


def load_verbs_bench():
    path = pathlib.Path(__file__).resolve().parent.parent / "verbs" / "run.py"
    spec = importlib.util.spec_from_file_location("verbs_bench", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


verbs = load_verbs_bench()


THREADS = 8


class Measures(verbs.Measures):
    """Each source returns {row: value}; rows of ours begin with the way that packets go."""

    def by(self, way):
        self.env = dict(self.env, FEROCE_SAMEHOST="on" if way == "ring" else "off")
        big = self.own("verbs_limits", "bandwidth", str(1 << 20))
        rows = {
            "ib_send_lat": self.perftest_latency("ib_send_lat"),
            "ib_write_lat": self.perftest_latency("ib_write_lat"),
            "WRITE 8 B": self.own("verbs_limits", "write_latency")["us_p50"],
            "READ 8 B": self.own("verbs_limits", "read_latency")["us_p50"],
            "WRITE, 64 KiB": self.own("verbs_limits", "bandwidth", "65536")["GB_per_s"],
            "WRITE, 1 MiB": big["GB_per_s"],
            "WRITE, CPU": big["cpu_s_per_GB"],
            "WRITE 64 B, 16 QPs": self.own("verbs_limits", "message_rate", "16")["Mmsg_per_s"],
            "ib_send_bw 64 B": self.message_rate("ib_send_bw"),
        }
        return {f"{way}: {row}": value for row, value in rows.items()}

    def message_rate(self, tool):
        text = self.perftest(tool, "-s", "64", "-n", "50000")
        # bytes, iterations, peak, average, millions of messages a second
        return float(re.search(r"^ *64 +\d+ .*$", text, re.M).group(0).split()[4])

    def rings(self):
        return self.by("ring")

    def udp(self):
        return self.by("udp")

    def limits(self):
        stream = self.own("socket_limits", "tcp_stream", str(1 << 20))
        return {
            "TCP stream, 1 MiB": stream["GB_per_s"],
            "TCP stream, CPU": stream["cpu_s_per_GB"],
            "memcpy, 1 MiB": self.own("socket_limits", "memory_copy", str(1 << 20))["GB_per_s"],
            "bare ring, 1 MiB": self.own("bare_ring", str(1 << 20))["GB_per_s"],
        }

    def at_once(self, count, key, program, *words):
        """The sum of what so many pairs of processes do, each on two cores of its own."""
        cores = sorted(os.sched_getaffinity(0))
        path = os.path.join(self.build, "bench", program)
        running = [subprocess.Popen(["taskset", "-c", f"{cores[2 * i]},{cores[2 * i + 1]}", path,
                                     *words], env=self.env, stdout=subprocess.PIPE, text=True)
                   for i in range(count)]
        said = [process.communicate(timeout=verbs.LIMIT_SECONDS)[0] for process in running]
        if any(process.returncode != 0 for process in running):
            raise RuntimeError(f"{program} {' '.join(words)} failed")
        return sum(json.loads(line)[key] for line in said)

    def scaling(self):
        """What more threads and processes add, where there is a core for each."""
        if len(os.sched_getaffinity(0)) < 2 * THREADS:
            return {}
        rows = {"bare ring, 8 pairs": self.at_once(THREADS, "GB_per_s", "bare_ring", str(1 << 20)),
                "bare UDP, 1 pair": self.at_once(1, "GB_per_s", "socket_limits", "udp_stream"),
                "bare UDP, 8 pairs": self.at_once(THREADS, "GB_per_s", "socket_limits",
                                                  "udp_stream")}
        for way, setting in (("ring", "on"), ("udp", "off")):
            self.env = dict(self.env, FEROCE_SAMEHOST=setting)
            for pairs, name in ((1, "1 pair"), (THREADS - 1, "7 pairs")):
                rows[f"{way}: messages, {name}"] = self.at_once(
                    pairs, "Mmsg_per_s", "verbs_limits", "message_rate", "16")
            rows[f"{way}: WRITE, 1 MiB, 8 threads"] = self.own(
                "verbs_limits", "bandwidth", str(1 << 20), str(THREADS))["GB_per_s"]
        return rows

    def ucx_posix(self):
        if not shutil.which("ucx_perftest"):
            return {}
        port = verbs.free_port()
        env = dict(os.environ, UCX_TLS="posix,self", UCX_WARN_UNUSED_ENV_VARS="n")
        base = ["ucx_perftest", "-p", str(port), "-t", "tag_lat", "-s", "8", "-n", "50000"]
        text = verbs.run_pair(base, base[:1] + ["127.0.0.1"] + base[1:], port, env)
        return {"UCX posix": float(re.search(r"Final:\s+\d+\s+([\d.]+)", text).group(1))}

    def libfabric_shm(self):
        if not shutil.which("fi_pingpong"):
            return {}
        port = verbs.free_port()
        base = ["fi_pingpong", "-p", "shm", "-e", "rdm", "-S", "64", "-I", "5000"]
        try:
            text = verbs.run_pair(base + ["-B", str(port)],
                                  base + ["-P", str(port), "127.0.0.1"], port)
        except RuntimeError as error:
            print(f"libfabric shm is left out: {error}", file=sys.stderr)
            return {}
        line = [x for x in text.splitlines() if x.startswith("64")][-1]
        return {"libfabric shm": float(line.split()[6])}


RATIOS = [
    ("ib_send_lat against UDP", "ring: ib_send_lat", "udp: ib_send_lat", 1, ("<=", 0.25)),
    ("ib_send_lat against UCX posix", "ring: ib_send_lat", "UCX posix", 1, ("<=", 4)),
    ("ib_send_lat against libfabric shm", "ring: ib_send_lat", "libfabric shm", 1, None),
    ("ib_write_lat against UDP", "ring: ib_write_lat", "udp: ib_write_lat", 1, None),
    ("WRITE 8 B against UDP", "ring: WRITE 8 B", "udp: WRITE 8 B", 1, ("<=", 0.25)),
    ("READ 8 B against UDP", "ring: READ 8 B", "udp: READ 8 B", 1, None),
    ("bandwidth, 1 MiB, against TCP", "ring: WRITE, 1 MiB", "TCP stream, 1 MiB", 1, (">=", 2)),
    ("bandwidth, 1 MiB, against memcpy", "ring: WRITE, 1 MiB", "memcpy, 1 MiB", 1, (">=", 0.6)),
    ("bandwidth, 1 MiB, against a bare ring", "ring: WRITE, 1 MiB", "bare ring, 1 MiB", 1, None),
    ("bandwidth, 1 MiB, against UDP", "ring: WRITE, 1 MiB", "udp: WRITE, 1 MiB", 1, None),
    ("CPU per byte against TCP", "ring: WRITE, CPU", "TCP stream, CPU", 1, ("<=", 1)),
    ("messages against UDP", "ring: WRITE 64 B, 16 QPs", "udp: WRITE 64 B, 16 QPs", 1,
     (">=", 1.6)),
    ("ib_send_bw 64 B against UDP", "ring: ib_send_bw 64 B", "udp: ib_send_bw 64 B", 1, None),
    ("rings: 8 threads against one", "ring: WRITE, 1 MiB, 8 threads", "ring: WRITE, 1 MiB", 1,
     (">=", 6)),
    ("bare rings: 8 pairs against one", "bare ring, 8 pairs", "bare ring, 1 MiB", 1, None),
    ("UDP: 8 threads against one", "udp: WRITE, 1 MiB, 8 threads", "udp: WRITE, 1 MiB", 1,
     (">=", 5)),
    ("bare UDP: 8 pairs against one", "bare UDP, 8 pairs", "bare UDP, 1 pair", 1, None),
    ("rings: 7 pairs against one", "ring: messages, 7 pairs", "ring: messages, 1 pair", 1,
     (">=", 6)),
    ("UDP: 7 pairs against one", "udp: messages, 7 pairs", "udp: messages, 1 pair", 1,
     (">=", 6)),
]


def main():
    verbs.measure(__doc__, Measures, [Measures.rings, Measures.udp, Measures.limits,
                                      Measures.scaling, Measures.ucx_posix,
                                      Measures.libfabric_shm], RATIOS)


if __name__ == "__main__":
    main()
