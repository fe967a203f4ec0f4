#!/usr/bin/env python3
"""Compares the exported symbols of our librdmacm with the system's: cm_symbols.py OURS THEIRS.

Both must export the same functions under the same versions, nothing more and nothing less.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "abi"))
from symbols import exported  # noqa: E402  (found by the path above)


def main():
    ours, theirs = exported(sys.argv[1]), exported(sys.argv[2])
    if "rdma_create_id@@RDMACM_1.0" not in theirs:
        sys.exit(f"{sys.argv[2]} is not librdmacm")
    for name in sorted(ours.items() ^ theirs.items()):
        print(f"differs: {name}")
    print(f"{len(theirs)} symbols")
    sys.exit(0 if ours == theirs else 1)


if __name__ == "__main__":
    main()
