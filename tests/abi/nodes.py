#!/usr/bin/env python3
"""Starts a program for each version node: nodes.py LIBIBVERBS LIBRDMACM COMPILER.

The program refers to every name of its node and is bound at its start, as Debian's programs are. It
is linked with a library that has that node and empty functions, and started with ours.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import symbols


def run(*words, **more):
    return subprocess.run([str(w) for w in words], text=True, capture_output=True, check=False,
                          timeout=60, **more)


def must(*words):
    done = run(*words)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}:\n{done.stderr}")


def make_stand_in(folder, compiler, soname, node, names):
    """A library with one node, for the linker only."""
    source, script, library = folder / "stand_in.c", folder / "stand_in.map", folder / soname
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    listed = "".join(f"{name};" for name in names)
    script.write_text(f"{node} {{ global: {listed} local: *; }};\n")
    must(compiler, "-x", "c", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{soname}",
         f"-Wl,--version-script={script}", "-o", library, source)
    return library


def make_program(folder, compiler, library, names):
    source, program = folder / "program.c", folder / "program"
    declared = "".join(f"extern char {name}[];\n" for name in names)
    listed = ", ".join(names)
    source.write_text(f"{declared}static char *volatile all[] = {{{listed}}};\n"
                      "int main(void) { for (unsigned i = 0; i < sizeof all / sizeof *all; ++i)\n"
                      "    if (!all[i]) return 1;\n  return 0; }\n")
    must(compiler, "-x", "c", "-fPIC", "-pie", "-fno-builtin", "-Wl,-z,now", "-o", program, source,
         "-x", "none", library)
    return program


def starts(compiler, place, node, names):
    """None, or why it does not."""
    soname = "librdmacm.so.1" if node.startswith("RDMACM") else "libibverbs.so.1"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        library = make_stand_in(folder, compiler, soname, node, names)
        program = make_program(folder, compiler, library, names)
        if f"Name: {node} " not in run("readelf", "--version-info", "--wide", program).stdout:
            return "the program does not ask for the node"
        done = run(program, env={**os.environ, "LD_LIBRARY_PATH": place})
        return None if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"


def main():
    libibverbs, librdmacm, compiler = sys.argv[1:4]
    place = f"{os.path.dirname(libibverbs)}:{os.path.dirname(librdmacm)}"
    nodes = {}
    for release in symbols.RELEASES:
        for node, name in symbols.wanted(release):
            nodes.setdefault(node, set()).add(name)
    failures = 0
    for node, names in sorted(nodes.items()):
        why = starts(compiler, place, node, sorted(names))
        failures += why is not None
        print(f"{node}: {len(names)} names: {why or 'starts'}")
    sys.exit(1 if failures or len(nodes) < 20 else 0)


if __name__ == "__main__":
    main()
