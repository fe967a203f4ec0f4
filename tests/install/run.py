#!/usr/bin/env python3
"""Installs a build into a scratch folder and uses it as strangers would.

Programs are built against it by find_package and by pkg-config and run on loopback, `feroce run`
runs a Debian program, the completion completes, and what uninstalls leaves nothing. The files of a
build folder are not used: the installed programs may know nothing of it.
"""
import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))
import run_hello  # noqa: E402  (its folder is known only now)

PATIENCE = 200
PREFIX = "/usr"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]


def run(*command, **options):
    """What the command printed; the end of the test if it failed."""
    done = subprocess.run(command, text=True, check=False, timeout=PATIENCE, capture_output=True,
                          **options)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(truth, sentence):
    if not truth:
        sys.exit(sentence)


def without_libraries(environment):
    return {name: value for name, value in environment.items() if name != "LD_LIBRARY_PATH"}


class Installed:
    """A build installed under a DESTDIR, and used from there: nothing may depend on the prefix."""

    def __init__(self, build, scratch):
        self.build = build
        self.destination = scratch / "destination"
        self.root = pathlib.Path(f"{self.destination}{PREFIX}")
        self.environment = {**os.environ, "DESTDIR": str(self.destination)}
        run("cmake", "--install", build, "--prefix", PREFIX, env=self.environment)
        self.feroce = self.root / "bin" / "feroce"
        # lib, or with the name of the architecture below it.
        self.private = next(self.root.glob("lib/**/feroce/libibverbs.so.1")).parent
        self.libraries = self.private.parent

    def uninstall(self):
        run("cmake", "--build", self.build, "--target", "uninstall", env=self.environment)
        left = [path for path in self.destination.rglob("*")
                if not path.is_dir() or "feroce" in path.name.lower()]
        expect(not left, f"uninstalling left {left}")


def check_files(installed):
    for path in (installed.libraries / "libferoce.so.1", installed.private / "librdmacm.so.1",
                 installed.private / "libferoce_preload.so",
                 installed.private / "nbdkit-feroce-plugin.so",
                 installed.root / "share/man/man1/feroce.1",
                 installed.root / "share/zsh/vendor-completions/_feroce",
                 installed.root / "share/fish/vendor_completions.d/feroce.fish",
                 installed.root / "share/doc/feroce/LICENSE",
                 installed.root / "share/doc/feroce/examples/hello_client.cpp"):
        expect(path.exists(), f"{path} is not installed")
    link = installed.private / "libferoce.so.1"
    expect(os.readlink(link) == "../libferoce.so.1", f"{link} is not relative")
    for name in ("libibverbs", "librdmacm"):
        stray = list(installed.libraries.glob(f"{name}*"))
        expect(not stray, f"{stray} would replace the system's")
    for path in (installed.feroce, installed.private / "nbdkit-feroce-plugin.so"):
        paths = [line for line in run("readelf", "-d", path).splitlines() if "PATH" in line]
        expect(paths and str(installed.build) not in str(paths), f"{path} has {paths}")


def check_program(installed):
    environment = {**os.environ, "FEROCE_DEVICES": "lo"}
    out = run(installed.feroce, "run", "--", "ibv_devices", env=environment)
    expect("feroce_lo" in out, f"feroce run -- ibv_devices printed {out}")
    libraries = run(installed.feroce, "run", "--", "printenv", "LD_LIBRARY_PATH",
                    env=without_libraries(environment)).strip()
    expect(libraries == str(installed.private), f"programs search {libraries}")
    # In a process of its own: which libibverbs has it mapped?
    maps = run(installed.feroce, "run", "--", "cat", "/proc/self/maps", env=environment)
    expect(str(installed.private / "libferoce_preload.so") in maps, "the shim is not loaded")


def check_python(installed):
    """The package, with the library that `feroce run` finds."""
    environment = {**os.environ, "FEROCE_DEVICES": "lo", "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONPATH": str(installed.root / "share/feroce/python")}
    lines = "import feroce; print(feroce.join(rank=0, size=1).alloc(8).node)"
    out = run(installed.feroce, "run", "--", sys.executable, "-c", lines, env=environment)
    expect(out == "0\n", f"Python printed {out}")


def check_completion(installed):
    """Every command of --help is offered, and options by command."""
    script = installed.root / "share/bash-completion/completions/feroce"

    def complete(*words):
        lines = ["source " + shlex.quote(str(script)),
                 f"COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}",
                 "_feroce", "echo ${COMPREPLY[@]}"]
        return run("bash", "-c", "\n".join(lines),
                   env={**os.environ, "FEROCE_DEVICES": "lo"}).split()

    feroce = str(installed.feroce)
    for name in ("run", "dev", "explain", "trace", "export", "attach", "resource"):
        expect(name in complete(feroce, ""), f"{name} is not completed")
    expect(complete(feroce, "exp") == ["explain", "export"], "exp is not completed")
    expect("--config" in complete(feroce, "export", "--"), "options are not completed")
    expect("ibv_devices" in complete(feroce, "run", "--", "ibv_dev"), "programs are not completed")
    expect(complete(feroce, "attach", "--access", "r") == ["ro", "rw"], "values are not completed")
    expect("feroce_lo" in complete(feroce, "dev", "show", ""), "devices are not completed")


# What the completion calls, reduced to what it was given.
ZSH = """words=({words}) CURRENT={count}
_describe() {{ print -l -- ${{found%%:*}}; }}
_files() {{ print files; }}
_command_names() {{ print programs; }}
source {script}
"""


def check_other_shells(installed):
    """Where they are installed: zsh and fish offer the same."""
    share, feroce = installed.root / "share", str(installed.feroce)
    zsh, fish = shutil.which("zsh"), shutil.which("fish")
    for name, shell in (("zsh", zsh), ("fish", fish)):
        if not shell:
            print(f"skipped: no {name}")
    for words, offered in ((["exp"], ["explain", "export"]), (["attach", "--access", "r"],
                                                              ["ro", "rw"])):
        if zsh:
            script = ZSH.format(words=shlex.join([feroce, *words]), count=len(words) + 1,
                                script=shlex.quote(str(share / "zsh/vendor-completions/_feroce")))
            got = run(zsh, "-fc", script).split()
            expect(got == offered, f"zsh offers {got} for {words}")
        if fish:
            script = share / "fish/vendor_completions.d/feroce.fish"
            line = shlex.quote(shlex.join([feroce, *words]))
            said = run(fish, "--no-config", "-c", f"source {script}; complete -C {line}")
            got = [candidate.split("\t")[0] for candidate in said.splitlines()]
            expect(got == offered, f"fish offers {got} for {words}")


def by_cmake(installed, scratch, compiler):
    folder = scratch / "by_cmake"
    run("cmake", "-G", "Ninja", "-S", HERE / "consumer", "-B", folder, f"-DEXAMPLES={EXAMPLES}",
        f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_PREFIX_PATH={installed.root}")
    run("cmake", "--build", folder)
    return folder


def by_pkg_config(installed, scratch, compiler):
    folder = scratch / "by_pkg_config"
    folder.mkdir()
    environment = {**os.environ, "PKG_CONFIG_PATH": str(installed.libraries / "pkgconfig")}
    for name, packages in (("hello_server", ["feroce"]),
                           ("hello_client", ["feroce-verbs", "feroce"])):
        flags = run("pkg-config", "--cflags", "--libs", *packages, env=environment).split()
        run(compiler, *WARNINGS, EXAMPLES / f"{name}.cpp", "-o", folder / name, *flags)
    return folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--compiler", required=True)
    options = parser.parse_args()
    scratch = pathlib.Path(tempfile.mkdtemp())
    try:
        installed = Installed(options.build, scratch)
        check_files(installed)
        check_program(installed)
        check_python(installed)
        check_completion(installed)
        check_other_shells(installed)
        # The server finds libferoce by `feroce run` alone; the client is started without.
        run_hello.ENVIRONMENT = without_libraries(run_hello.ENVIRONMENT)
        alone = ["env", f"LD_LIBRARY_PATH={installed.libraries}"]
        for made in (by_cmake, by_pkg_config):
            folder = made(installed, scratch, options.compiler)
            run_hello.greet([str(installed.feroce), "run", "--"], alone, folder)
        installed.uninstall()
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
