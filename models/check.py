#!/usr/bin/env python3
"""Runs the Spin models. A sound model must pass; each planted bug must be found by the named check.

Usage: check.py [MODEL_DIR]. Works in a temporary directory, needs spin and a C compiler.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# model, definitions for spin, definitions for the verifier, verifier options, expected finding.
SAFETY = ["-DSAFETY"]
# This search order finds the planted bugs ten times sooner.
HUNT = ["-DSAFETY", "-DREVERSE", "-DT_REVERSE"]
LIVENESS = ["-DNP"]
NO_CLAIM = ["-DNOCLAIM", "-DSAFETY"]  # Leaves out the temporal formula of a model.
FAIR = ["-DNFAIR=3"]
SERVED = ["-a", "-f", "-N", "served"]
EXCLUSION = "inside==1"
CYCLE = "acceptance cycle"
RUNS = [
    ("rc_window", ["-DFAULTS=3"], SAFETY, [], None),
    ("rc_window", ["-DOPS=5"], LIVENESS, ["-l"], None),
    ("rc_window", ["-DBUG_SHORT_REPLAY"], HUNT, [], "retries<="),
    ("rc_window", ["-DBUG_REEXECUTE"], HUNT, [], "value==want"),
    ("rc_window", ["-DBUG_WIDE_WINDOW"], HUNT, [], "op==(una+ahead)"),
    ("rc_window", ["-DBUG_IGNORE_GAP"], HUNT, [], "op==applied"),
    ("rc_repair", [], SAFETY, [], None),
    ("rc_repair", ["-DBUG_WIDE_HOLD"], HUNT, [], "op==applied"),
    ("rc_repair", ["-DBUG_KEEP_LAST"], HUNT, [], "op==applied"),
    ("rc_repair", ["-DBUG_ACK_HELD"], HUNT, [], "op==(una+ahead)"),
    ("ack_first", [], SAFETY, [], None),
    ("ack_first", ["-DIMMORTAL"], SAFETY, [], None),
    ("ack_first", ["-DBUG_COMPLETE_FIRST"], SAFETY, [], "taken["),
    ("ack_first", ["-DBUG_PUBLISH_FIRST"], SAFETY, [], "taken["),
    ("ack_first", ["-DBUG_BLIND_RELEASE"], SAFETY, [], "taken["),
    ("ack_first", ["-DBUG_OVERTAKE"], SAFETY, [], "left["),
    ("ack_first", ["-DIMMORTAL", "-DBUG_NO_LOOK"], SAFETY, [], "taken[0]==3"),
    ("ring_wakeup", [], SAFETY, [], None),
    ("ring_wakeup", ["-DMORTAL"], SAFETY, [], None),
    ("ring_wakeup", ["-DBUG_LOOK_FIRST"], SAFETY, [], "taken["),
    ("ring_wakeup", ["-DBUG_CLEAR_LATE"], SAFETY, [], "taken["),
    ("ring_wakeup", ["-DBUG_BIT_FIRST"], SAFETY, [], "taken["),
    ("ring_wakeup", ["-DBUG_SILENT"], SAFETY, [], "taken["),
    ("ring_wakeup", ["-DMORTAL", "-DBUG_DISARM"], SAFETY, [], "taken["),
    ("left_behind", [], SAFETY, [], None),
    ("left_behind", ["-DBUG_TAKE_BACK_FIRST"], SAFETY, [], "acked>=seen"),
    ("left_behind", ["-DBUG_COUNT_FIRST"], SAFETY, [], "acked<=stored"),
    ("left_behind", ["-DBUG_SEEN_FIRST"], SAFETY, [], "acked>=seen"),
    ("left_behind", ["-DBUG_FULL"], SAFETY, [], "acked>=seen"),
    ("left_behind", ["-DBUG_BLIND"], SAFETY, [], "acked>=seen"),
    ("event_queue", ["-DPOLLS"], SAFETY, [], None),
    ("event_queue", ["-DMORTAL"], SAFETY, [], None),
    ("event_queue", ["-DTHIEF"], SAFETY, [], None),
    ("event_queue", ["-DTHIEF", "-DBUG_ONE_WRITE"], SAFETY, [], "queued["),
    ("event_queue", ["-DBUG_NO_REST"], SAFETY, [], "queued["),
    ("event_queue", ["-DPOLLS", "-DBUG_KEEP"], SAFETY, [], "counted==0"),
    ("event_queue", ["-DPOLLS", "-DBUG_DROP"], SAFETY, [], "counted==0"),
    ("event_queue", ["-DBUG_NO_WAIT"], SAFETY, [], "acknowledged["),
    ("alock", [], NO_CLAIM, [], None),
    ("alock", ["-DSWAP"], NO_CLAIM, [], None),
    ("alock", ["-DFAST"], NO_CLAIM, [], None),
    ("alock", ["-DFAST", "-DTRY"], NO_CLAIM, [], None),
    ("alock", ["-DFAST", "-DWATCH=1"], FAIR, SERVED, None),
    ("alock", ["-DFAST", "-DWATCH=3"], FAIR, SERVED, None),
    ("alock", ["-DWATCH=1"], FAIR, SERVED, None),
    ("alock", ["-DWATCH=3"], FAIR, SERVED, None),
    ("alock", ["-DFAIR", "-DFAST", "-DLOCALS=1"], NO_CLAIM, [], None),
    ("alock", ["-DFAIR", "-DFAST", "-DREMOTES=1"], NO_CLAIM, [], None),
    ("alock", ["-DFAIR", "-DFAST", "-DREMOTES=1", "-DWATCH=1"], FAIR, SERVED, None),
    ("alock", ["-DFAIR", "-DFAST", "-DREMOTES=1", "-DWATCH=3"], FAIR, SERVED, None),
    ("alock", ["-DTIMEOUT", "-DFAST", "-DTRY"], NO_CLAIM, [], None),
    ("alock", ["-DTIMEOUT", "-DFAST", "-DWATCH=3"], FAIR, SERVED, None),
    ("alock", ["-DTIMEOUT", "-DFAIR", "-DFAST", "-DREMOTES=1"], NO_CLAIM, [], None),
    ("alock", ["-DTIMEOUT", "-DBUG_LEAVES"], FAIR, SERVED, CYCLE),
    ("alock", ["-DBUG_SPECULATIVE"], NO_CLAIM, [], EXCLUSION),
    ("alock", ["-DFAST", "-DBUG_READ_FIRST"], NO_CLAIM, [], EXCLUSION),
    # The lost place in the queue also stops everybody; -E looks on for the worse.
    ("alock", ["-DBUG_MIXED_RMW"], NO_CLAIM, ["-E"], EXCLUSION),
    ("alock", ["-DBUG_NO_BUDGET"], FAIR, SERVED, CYCLE),
    ("alock", ["-DFAIR", "-DFAST", "-DBUG_EARLY_HANDOVER"], NO_CLAIM, [], EXCLUSION),
]
MEMORY_MB = 1500
DEPTH = 1_000_000


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def verify(models, model, defines, kind, options, expected):
    """Returns (number of errors, text of the first, states stored); raises on anything unclear."""
    with tempfile.TemporaryDirectory() as folder:
        status, text = run(["spin", "-a", *defines, str(models / f"{model}.pml")], folder)
        if status != 0:
            raise RuntimeError(text)
        # To optimize takes longer than to find a planted bug.
        level = "-O1" if expected is None else "-O0"
        compile_line = ["cc", level, "-w", f"-DMEMLIM={MEMORY_MB}", *kind]
        status, text = run([*compile_line, "-o", "pan", "pan.c"], folder)
        if status != 0:
            raise RuntimeError(text)
        _, text = run(["./pan", f"-m{DEPTH}", *options], folder)
        errors = re.search(r"errors: (\d+)", text)
        states = re.search(r"(\d+) states, stored", text)
        truncated = "max search depth too small" in text or "out of memory" in text
        if truncated or not errors or not states:
            raise RuntimeError(text)
        first = re.search(r"pan:1: (.*)", text)
        return int(errors[1]), first[1] if first else "", int(states[1])


def main():
    models = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    models = models if models.is_dir() else models.parent
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count(), 4)) as pool:
        results = list(pool.map(lambda case: verify(models, *case), RUNS))
    for (model, defines, kind, _, expected), (errors, first, states) in zip(RUNS, results):
        name = " ".join([model, *defines, kind[0]])
        good = errors == 0 if expected is None else errors > 0 and expected in first
        failures += not good
        found = first or "nothing found"
        print(f"{'ok  ' if good else 'FAIL'} {name}: {states} states, {found}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
