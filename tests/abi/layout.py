#!/usr/bin/env python3
"""Compares the layout of the ABI's structures, as this build sees them, with a table.

layout.py [--update] ARCHITECTURE COMPILER [FLAG...]. layout_ARCHITECTURE.tsv has the structures of
rdma-core 44, whose layout Debian's programs were compiled with: size and the offset of each named
member, in bytes (on arm64 a pthread_mutex_t is longer). Headers of that release must agree exactly.
Later ones let structures grow at their end, and calls say how long theirs is; anything else, or a
compiler option that packs structures, would break those programs and fail here.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = ("infiniband/verbs.h", "rdma/rdma_cma.h")
PREFIXES = ("ibv_", "verbs_", "rdma_")
RELEASE = 44


def layouts(command):
    with tempfile.TemporaryDirectory() as folder:
        source, library = f"{folder}/probe.cpp", f"{folder}/probe.so"
        with open(source, "w") as f:
            f.write("".join(f"#include <{header}>\n" for header in HEADERS) + "int probe = 1;\n")
        subprocess.run([*command, "-std=c++20", "-g", "-fno-eliminate-unused-debug-types", "-fPIC",
                        "-shared", source, "-o", library], check=True)
        text = subprocess.run(["abidw", "--load-all-types", library], check=True, text=True,
                              capture_output=True).stdout
    table = {}
    for kind in ElementTree.fromstring(text).iter("class-decl"):
        if not kind.get("name").startswith(PREFIXES) or not kind.get("size-in-bits"):
            continue
        members = [f"{member.find('var-decl').get('name')}@{int(offset) // 8}"
                   for member in kind.findall("data-member")
                   if (offset := member.get("layout-offset-in-bits")) is not None
                   and member.find("var-decl").get("name")]
        table[kind.get("name")] = [str(int(kind.get("size-in-bits")) // 8), " ".join(members)]
    return table


def headers_are_newer():
    """pkg-config says 1.14.44.0 of rdma-core 44."""
    asked = subprocess.run(["pkg-config", "--modversion", "libibverbs"], text=True, check=False,
                           capture_output=True)
    return asked.returncode == 0 and int(asked.stdout.split(".")[2]) > RELEASE


def same_or_longer(found, expected):
    return (bool(found) and int(found[0]) >= int(expected[0])
            and f"{found[1]} ".startswith(f"{expected[1]} "))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--update", action="store_true")
    parser.add_argument("architecture")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    table = HERE / f"layout_{options.architecture}.tsv"
    found = layouts(options.command)
    if options.update:
        table.write_text("".join(f"{name}\t{size}\t{members}\n"
                                 for name, (size, members) in sorted(found.items())))
    expected = {}
    for line in table.read_text().splitlines():
        name, *layout = line.split("\t")
        expected[name] = layout
    agree = same_or_longer if headers_are_newer() else list.__eq__
    different = [name for name in expected if not agree(found.get(name, []), expected[name])]
    for name in different:
        print(f"{name}\n  expected {expected[name]}\n  found    {found.get(name)}")
    print(f"{len(expected)} structures, {len(different)} different")
    sys.exit(1 if different or not expected else 0)


if __name__ == "__main__":
    main()
