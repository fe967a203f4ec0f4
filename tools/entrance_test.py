#!/usr/bin/env python3
"""Shows how ./feroce uses a build: one that is current without a lock, one that it may not change
as it is; that it says what it waits for; and that options which it does not know stop it.

Each test has a scratch checkout: the real script and ninja, with a build that compiles nothing.
"""
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

ENTRANCE = pathlib.Path(__file__).resolve().parent.parent / "feroce"
NINJA = """
rule make
  command = cp $in $out
build lib/libibverbs.so.1: make ../source
build bin/feroce: make ../program
build commands: phony lib/libibverbs.so.1 bin/feroce
build product: phony commands
"""
ORDINARY_USER = 65534


class Entrance(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.root.chmod(0o755)
        shutil.copy(ENTRANCE, self.root)
        self.build = self.root / "build"
        self.build.mkdir()
        (self.build / "build.ninja").write_text(NINJA)
        (self.root / "source").write_text("old")
        (self.root / "program").write_text('#!/bin/sh\necho "ran: $*"\n')
        (self.root / "program").chmod(0o755)
        subprocess.run(["ninja", "-C", self.build, "product"], check=True,
                       stdout=subprocess.DEVNULL)
        (self.build / ".lock").touch()

    def change_source(self):
        (self.root / "source").write_text("new")
        later = (self.build / "lib/libibverbs.so.1").stat().st_mtime + 2
        os.utime(self.root / "source", (later, later))

    def library(self):
        return (self.build / "lib/libibverbs.so.1").read_text()

    def start(self, **how):
        return subprocess.Popen(["timeout", "20", self.root / "feroce", "explain", "7"], text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **how)

    def feroce(self, **how):
        """The exit status, and what was printed to stdout and to stderr."""
        with self.start(**how) as process:
            said = process.communicate()
            return process.returncode, *said

    def as_another_user(self):
        """For a tree that its caller may not write; file modes do not bind root."""
        if os.geteuid() == 0:
            return {"user": ORDINARY_USER, "group": ORDINARY_USER, "extra_groups": []}
        for path in (self.build, self.build / ".lock"):
            path.chmod(0o555)
            self.addCleanup(path.chmod, 0o755)
        return {}

    def test_a_current_build_is_used_while_others_build(self):
        with open(self.build / ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertEqual(self.feroce(), (0, "ran: explain 7\n", ""))

    def test_a_build_that_is_waited_for_is_told(self):
        self.change_source()
        with open(self.build / ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self.start() as process:
                said = process.stderr.readline()
                self.assertIn("another ./feroce builds here; waiting", said)
                self.assertEqual(self.library(), "old")
                fcntl.flock(lock, fcntl.LOCK_UN)
                self.assertEqual(process.communicate(), ("ran: explain 7\n", ""))
                self.assertEqual(process.returncode, 0)
        self.assertEqual(self.library(), "new")

    def test_a_build_of_somebody_else_is_used(self):
        self.assertEqual(self.feroce(**self.as_another_user()), (0, "ran: explain 7\n", ""))

    def test_an_old_build_of_somebody_else_is_used_with_a_word(self):
        self.change_source()
        status, out, error = self.feroce(**self.as_another_user())
        self.assertEqual((status, out), (0, "ran: explain 7\n"))
        self.assertIn("is older than the sources, but cannot be written by you", error)
        self.assertEqual(self.library(), "old")

    def test_without_a_build_and_leave_to_write_one_nothing_is_tried(self):
        (self.build / "bin/feroce").unlink()
        (self.root / ".ci/packages").mkdir(parents=True)
        (self.root / ".ci/packages/product.txt").touch()
        status, out, error = self.feroce(**self.as_another_user())
        self.assertEqual((status, out), (1, ""))
        self.assertIn("cannot be written by you", error)

    def test_a_failing_build_says_why(self):
        self.change_source()
        (self.root / "source").unlink()
        status, out, error = self.feroce()
        self.assertEqual((status, out), (1, ""))
        self.assertIn("source", error)
        self.assertIn("the build failed", error)

    def test_a_build_that_is_interrupted_is_no_failure(self):
        (self.build / "build.ninja").write_text(NINJA.replace("cp $in", "sleep 19; cp $in"))
        self.change_source()
        with self.start(start_new_session=True) as process:
            for _ in range(1000):
                if "sleep" in subprocess.run(["ps", "-s", str(process.pid), "-o", "comm="],
                                             check=False, text=True, capture_output=True).stdout:
                    break
            os.killpg(process.pid, signal.SIGINT)
            out, error = process.communicate()
        self.assertEqual((process.returncode, out), (130, ""))
        self.assertIn("the build was interrupted", error)
        self.assertNotIn("failed", error)

    def test_words_are_completed_without_a_build(self):
        def offered(*words):
            done = subprocess.run([self.root / "feroce", "complete", *words], text=True, timeout=20,
                                  check=True, capture_output=True)
            return [line.partition("\t")[0] for line in done.stdout.splitlines()]
        self.assertEqual(offered("de"), ["dev", "demo"])
        self.assertEqual(offered("dist", "--i"), ["--image"])
        self.assertEqual(offered("demo", "lo"), ["lossy", "lock"])
        self.assertEqual(offered("explain", "7"), ["ran: complete explain 7"])
        (self.build / "bin/feroce").unlink()
        self.assertEqual(offered("explain", "7"), [])

    def test_the_words_of_run_are_judged_by_the_program(self):
        for words in (["--lint", "--", "true"], ["--lint=abort", "--card", "mlx5", "--", "true"],
                      ["--", "true"], ["true", "-x"], ["-h"], ["--help"], ["--no-such-option"]):
            with self.subTest(words):
                done = subprocess.run([self.root / "feroce", "run", *words], text=True, timeout=20,
                                      check=False, capture_output=True)
                self.assertEqual((done.returncode, done.stdout, done.stderr),
                                 (0, f"ran: run {' '.join(words)}\n", ""))

    def test_dist_refuses_what_it_does_not_know_with_one_sentence(self):
        for words, part in ((["--arch", "mips"], "dist --arch is amd64 or arm64, not 'mips'"),
                            (["--arch"], "dist --arch is amd64 or arm64, not ''"),
                            (["--fast"], "dist has no option --fast"),
                            (["--base", "debian"], "dist --base is for --image"),
                            (["--image", "--base"], "dist --base needs the name of an image")):
            with self.subTest(words):
                done = subprocess.run([self.root / "feroce", "dist", *words], text=True, timeout=20,
                                      check=False, capture_output=True)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(part, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
