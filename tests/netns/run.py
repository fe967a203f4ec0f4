#!/usr/bin/env python3
"""Unmodified Debian programs in pairs across two network namespaces joined by a veth pair.

run.py --library DIR [--all] [--only PATTERN] [--list]
Without --all the everyday choice runs. The programs run as an ordinary user: nobody when started by
root, else the caller, in a user namespace of his own.
"""
import argparse
import fnmatch
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "abi"), str(HERE.parent / "rdmacm")]
import run_cm  # noqa: E402  (found by the path above)
import run_pair  # noqa: E402
from attempts import run_pairs  # noqa: E402
from cases import CASES  # noqa: E402
from namespaces import (DEVICE, FAMILIES, as_ordinary_user, enter_user_namespace,  # noqa: E402
                        readable_copy, two_namespaces)


def run_alone(case, values, environment, places):
    """A program that needs no partner must succeed on either side."""
    good = True
    for place in places:
        words = [word.format(**values) for word in case.command]
        done = subprocess.run(place + words, env=environment, text=True, capture_output=True,
                              timeout=case.timeout, check=False)
        good = good and done.returncode == 0 and case.expect in done.stdout
        print(f"--- exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return good


def run_verbs(case, values, environment, places):
    words = [word.format(**values) for word in case.command]
    # The programs' own handshake is over IPv4 only; the GID index chooses the traffic's family.
    address = FAMILIES["ipv4"][0]
    return run_pairs(lambda: run_pair.Pair(words, address, environment, *places), case.pairs,
                     case.timeout)


def run_connected(case, values, environment, places):
    fill = {**values, "port": "{port}"}
    options = run_cm.parse(["--address", values["server"], *case.options,
                            "--server", case.server.format(**fill),
                            "--client", case.client.format(**fill)])
    return run_pairs(lambda: run_cm.Pair(options, environment, *places), case.pairs, case.timeout)


def run_case(case, family, environment, places):
    server, client, _, gid = FAMILIES[family]
    values = {"server": server, "client": client, "gid": gid, "address": server}
    run = {"alone": run_alone, "verbs": run_verbs, "connected": run_connected}[case.kind]
    return run(case, values, environment, places)


def run_all(chosen, library):
    failed = []
    with two_namespaces() as sides, readable_copy(library) as libraries:
        environment = dict(os.environ, LD_LIBRARY_PATH=libraries, FEROCE_DEVICES=DEVICE, HOME="/")
        places = [side.place(*as_ordinary_user()) for side in sides]
        for case, family in chosen:
            name = f"{case.name} {family}"
            print(f"=== {name}", flush=True)
            start = time.monotonic()
            good = run_case(case, family, environment, places)
            print(f"=== {name}: {'ok' if good else 'FAILED'}, {time.monotonic() - start:.1f} s",
                  flush=True)
            if not good:
                failed.append(name)
    print(f"{len(chosen)} runs, {len(failed)} failed")
    for name in failed:
        print(f"failed: {name}")
    return not failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="*", help="names to run, with * and ?")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [(case, family) for case in CASES if fnmatch.fnmatch(case.name, options.only)
              for family in (case.families if options.all else case.everyday)]
    if options.list:
        for case, family in chosen:
            print(case.name, family)
        return
    enter_user_namespace()
    sys.exit(0 if chosen and run_all(chosen, options.library) else 1)


if __name__ == "__main__":
    main()
