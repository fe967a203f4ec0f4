#!/usr/bin/env python3
"""A file with -DMISTAKE must not compile, for the reason it names; without it, it must.

Usage: check.py COMPILER ROOT FILE. The second half shows that the mistake alone is what fails.
"""
import pathlib
import re
import subprocess
import sys


def compile_file(compiler, root, path, *defines):
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", f"-I{root}/src",
               f"-I{root}/include"]
    return subprocess.run([*command, *defines, path], capture_output=True, text=True, check=False)


def main():
    compiler, root, path = sys.argv[1:4]
    reason = re.search(r"^// expect: (.*)$", pathlib.Path(path).read_text(), re.MULTILINE)[1]
    sound = compile_file(compiler, root, path)
    if sound.returncode != 0:
        print(f"does not compile even without the mistake:\n{sound.stderr}")
        return 1
    broken = compile_file(compiler, root, path, "-DMISTAKE")
    if broken.returncode == 0:
        print("the mistake compiles")
        return 1
    if not re.search(reason, broken.stderr):
        print(f"fails for another reason than '{reason}':\n{broken.stderr}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
