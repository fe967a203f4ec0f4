"""What the benchmarks of this folder have in common: settings, clusters of real processes, figures.

A histogram is what histogram.hpp prints: {step: count}, 16 steps a power of two.
"""
import json
import os
import subprocess
import sys


def say(text):
    """How far a benchmark is, beside its table."""
    print(text, file=sys.stderr, flush=True)


def environment(build, **settings):
    """Our libraries first, and then where this machine keeps those that they need."""
    libraries = [os.path.join(build, "lib"), os.environ.get("LD_LIBRARY_PATH")]
    return dict(os.environ, FEROCE_DEVICES="lo", LD_LIBRARY_PATH=":".join(filter(None, libraries)),
                **settings)


def launch(build, nodes, command, limit_seconds, **environment):
    """The JSON lines of all nodes of a local cluster, in the order they came."""
    env = dict(os.environ, FEROCE_DEVICES="lo", **environment)
    words = ["timeout", str(limit_seconds), os.path.join(build, "bin/feroce"), "launch",
             "-n", str(nodes), "--"] + command
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with status {done.returncode}: "
                           f"{done.stderr.strip()[-2000:]}")
    lines = (line.split("] ", 1)[1] for line in done.stdout.splitlines() if "] " in line)
    return [json.loads(line) for line in lines]


def merge(histograms):
    out = {}
    for histogram in histograms:
        for step, count in histogram.items():
            out[int(step)] = out.get(int(step), 0) + count
    return out


def total(histogram):
    return sum(histogram.values())


def nanoseconds(step):
    return step if step < 16 else (16 + step % 16) << (step // 16 - 1)


def percentile(histogram, part):
    """In microseconds; None if nothing was counted."""
    left = total(histogram) * part
    for step in sorted(histogram):
        left -= histogram[step]
        if left <= 0:
            return nanoseconds(step) / 1000
    return None


def percentiles(histogram):
    return {name: percentile(histogram, part)
            for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}
