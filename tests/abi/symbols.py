#!/usr/bin/env python3
"""Compares what our libraries export with rdma-core's releases: symbols.py LIBIBVERBS LIBRDMACM.

releases.tsv has the names. Every release's must be ours, at the same version node, and ours may
have no others but those at its own nodes (FEROCE_*).
"""
import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).with_name("releases.tsv")
RELEASES = (28, 33, 44, 50, 56, 58, 60, 62, 64, 65)
# Names that the maps have and no release's library defines, and what only hardware's providers of
# before 2017 register by.
NOT_DEFINED = {("IBVERBS_PRIVATE_34", "ibv_cmd_query_device"),
               ("IBVERBS_1.0", "ibv_query_device_ex"), ("IBVERBS_1.1", "ibv_register_driver"),
               ("RDMACM_1.0", "rdma_get_local_addr"), ("RDMACM_1.0", "rdma_get_peer_addr")}


def table():
    """(node, name): (first release, last release)."""
    out = {}
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            node, name, first, last = line.split("\t")
            out[node, name] = (int(first), int(last))
    return out


def wanted(release, names=None):
    """What a release exports for programs. The second, older version of names at IBVERBS_1.0, for
    programs of 2006, is left out."""
    names = names or table()
    here = {key for key, (first, last) in names.items() if first <= release <= last}
    older = {("IBVERBS_1.0", name) for node, name in here if node == "IBVERBS_1.1"}
    return here - older - NOT_DEFINED


def exported(library):
    """(node, name) of all that a library defines."""
    text = subprocess.run(["readelf", "--dyn-syms", "--wide", library], text=True,
                          capture_output=True, check=True).stdout
    out = set()
    for line in text.splitlines():
        words = line.split()
        found = re.match(r"(\w+)@@?([\w.]+)$", words[7]) if len(words) > 7 else None
        if found and words[6] not in ("UND", "ABS"):
            out.add((found[2], found[1]))
    return out


def main():
    ours = exported(sys.argv[1]) | exported(sys.argv[2])
    names = table()
    problems = 0
    for release in RELEASES:
        missing = wanted(release, names) - ours
        problems += len(missing)
        for node, name in sorted(missing):
            print(f"rdma-core {release} has {name}@{node}, we do not")
    private = {name for node, name in names if node.startswith("IBVERBS_PRIVATE_")}
    for node, name in sorted(ours - set(names)):
        # A private node may have names that only those of later releases need.
        known = node.startswith("IBVERBS_PRIVATE_") and name in private
        if not known and not node.startswith("FEROCE_"):
            problems += 1
            print(f"{name}@{node} is ours alone")
    print(f"{len(ours)} names compared with {len(RELEASES)} releases; {problems} differ")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
