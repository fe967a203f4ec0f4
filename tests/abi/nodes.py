#!/usr/bin/env python3
"""Starts a program for each version node: nodes.py LIBIBVERBS LIBRDMACM COMPILER.

The program refers to every name of its node and is bound at its start, as Debian's programs are. It
is linked with a library that has that node and empty functions, and started with ours. Private
names that return pointers are called as well.
"""
import ctypes
import errno
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


def pointer_is_refused(libibverbs, node, name):
    """Null and EOPNOTSUPP, whatever the arguments: any other number would be a bad pointer."""
    find = ctypes.CDLL(None).dlvsym
    find.restype = ctypes.c_void_p
    find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    handle = ctypes.CDLL(libibverbs)._handle  # pylint: disable=protected-access
    address = find(handle, name.encode(), node.encode())
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, use_errno=True)(address)
    ctypes.set_errno(0)
    return call(None) is None and ctypes.get_errno() == errno.EOPNOTSUPP


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
    for node in ("IBVERBS_PRIVATE_64", "IBVERBS_PRIVATE_65"):
        for name in ("ibv_dmabuf_heap_alloc", "ibv_dmabuf_heap_cc_shared_init"):
            if not pointer_is_refused(libibverbs, node, name):
                failures += 1
                print(f"{name}@{node} returns a bad pointer")
    sys.exit(1 if failures or len(nodes) < 20 else 0)


if __name__ == "__main__":
    main()
