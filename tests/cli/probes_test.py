#!/usr/bin/env python3
"""The probes for tracers: probes_test.py LIBIBVERBS LIBRDMACM. `readelf -n` finds those that
docs/watching.md lists, with as many values; a probe is a nop."""
import os
import re
import subprocess
import sys

PAGE = os.path.join(os.path.dirname(__file__), "../../docs/watching.md")
NOTE = re.compile(r"Provider: feroce\n\s+Name: (\w+)\n\s+Location: 0x([0-9a-f]+), .*"
                  r"Semaphore: 0x0+\n\s+Arguments:(.*)\n")
NOPS = {bytes([0x1f, 0x20, 0x03, 0xd5]), bytes([0x90])}


def listed():
    """{name: number of values} of the table in the page."""
    with open(PAGE, encoding="utf-8") as page:
        table = page.read().split("## Probes for tracers")[1].split("\n## ")[0]
    out = {}
    for names, values in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*) \|$", table, re.M):
        count = len(re.split(r", | and ", values.split(":")[0]))
        out.update({name: count for name in re.findall(r"\w+", names)})
    return out


def probes(library):
    """[(name, address, values)]"""
    text = subprocess.run(["readelf", "-nW", library], capture_output=True, text=True, check=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout
    # A value is SIZE@PLACE, and a place may have a blank in it: [x0, 8].
    return [(name, int(address, 16), re.findall(r"\b[1248]@", values))
            for name, address, values in NOTE.findall(text)]


def offset_of(library, address):
    """Where in the file the code at that address is."""
    text = subprocess.run(["readelf", "-lW", library], capture_output=True, text=True, check=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout
    for offset, start, size in re.findall(
            r"^\s+LOAD\s+0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)", text, re.M):
        if 0 <= address - int(start, 16) < int(size, 16):
            return int(offset, 16) + address - int(start, 16)
    raise AssertionError(f"{library}: no code at {address:#x}")


def main():
    expected, found = listed(), {}
    assert len(expected) == 8, expected
    for library in sys.argv[1:]:
        with open(library, "rb") as file:
            content = file.read()
        for name, address, values in probes(library):
            assert found.setdefault(name, len(values)) == len(values), f"{name} differs by place"
            at = offset_of(library, address)
            assert {content[at:at + 4], content[at:at + 1]} & NOPS, f"{name}: no nop"
    assert found == expected, f"found {found}, docs/watching.md has {expected}"
    return 0


sys.exit(main())
