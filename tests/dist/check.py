#!/usr/bin/env python3
"""Whether the files of an archive of ./feroce dist run elsewhere: check.py ARCHIVE.

No file asks for a newer C library than glibc 2.31, for a library that is neither in the archive nor
in every system, or looks for libraries outside of the archive. None names the folder of the
sources.
"""
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FLOOR = (2, 31)
# GCC's unwinder, as of the same Debian 11.
UNWINDER = (10, 0)
SOURCES = pathlib.Path(__file__).resolve().parents[2]
# Also after "..", as ccache writes it; not after a name, as a short one may be part of others.
NAMES_SOURCES = re.compile(rb"(?<![\w-])" + re.escape(os.fsencode(SOURCES)) + rb"(?![\w.-])")
SYSTEM = re.compile(r"^(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1"
                    r"|libgcc_s\.so\.1|ld-linux-[\w-]+\.so\.\d)$")
EXPECTED = {"bin/feroce", "lib/feroce/libibverbs.so.1", "lib/feroce/librdmacm.so.1",
            "lib/feroce/libferoce_preload.so", "lib/feroce/libferoce_python.so",
            "lib/feroce/libisal.so.2", "README", "share/feroce/python/feroce/__init__.py",
            "share/man/man1/feroce-run.1", "share/doc/feroce/LICENSE"}


def output(*words):
    # Without a translation: the words are looked for.
    return subprocess.run([str(word) for word in words], text=True, capture_output=True,
                          check=True, env={**os.environ, "LC_ALL": "C"}).stdout


def number(text):
    return tuple(int(part) for part in text.split("."))


def problems_of_version(versions):
    for library, wanted in re.findall(r"Name: (GLIBC|GCC|GLIBCXX|CXXABI)_([\d.]+)\b", versions):
        limit = {"GLIBC": FLOOR, "GCC": UNWINDER}.get(library, ())
        if number(wanted) > limit:
            yield f"asks for {library}_{wanted}"
    if "GLIBC_PRIVATE" in versions:
        yield "asks for GLIBC_PRIVATE"


def problems_of_place(dynamic, inside):
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if name not in inside and not SYSTEM.match(name):
            yield f"needs {name}"
    for path in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
        for element in path.split(":"):
            if not element.startswith("$ORIGIN"):
                yield f"looks for libraries in '{element}'"


def problems(file, inside):
    # Only what it needs of others: its own versions are after that.
    versions = output("readelf", "--version-info", "--wide", file)
    needs = versions[versions.find("Version needs section"):]
    yield from problems_of_version(needs)
    yield from problems_of_place(output("readelf", "--dynamic", "--wide", file), inside)


def is_elf(path):
    return path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"


def check_files(root):
    found = 0
    for name in sorted(EXPECTED):
        if not (root / name).exists():
            found += 1
            print(f"{name} is missing")
    for path in sorted(root.rglob("*")):
        if path.is_file() and NAMES_SOURCES.search(path.read_bytes()):
            found += 1
            print(f"{path.relative_to(root)} names {SOURCES}")
    return found


def check_tree(root):
    found = check_files(root)
    inside = {path.name for path in (root / "lib" / "feroce").iterdir()}
    binaries = [path for path in sorted(root.rglob("*")) if is_elf(path)]
    for path in binaries:
        for problem in problems(path, inside):
            found += 1
            print(f"{path.relative_to(root)} {problem}")
    print(f"{len(binaries)} files of machine code; {found} problems")
    return found


def main():
    archive = pathlib.Path(sys.argv[1])
    told = archive.with_name(archive.name + ".sha256").read_text(encoding="utf-8").split()
    if told != [hashlib.sha256(archive.read_bytes()).hexdigest(), archive.name]:
        sys.exit("the archive is not the one whose sum is beside it")
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["tar", "-C", name, "-xf", str(archive)], check=True)
        tops = list(pathlib.Path(name).iterdir())
        if [top.name for top in tops] != [archive.name.removesuffix(".tar.zst")]:
            sys.exit(f"the archive has {tops}, and not one folder of its own name")
        sys.exit(1 if check_tree(tops[0]) else 0)


if __name__ == "__main__":
    main()
