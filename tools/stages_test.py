#!/usr/bin/env python3
"""Shows that the stages of `./feroce test` can fail: what failed ahead is not lost, and a stage
that finds nothing to look at does not pass.

Each test sources .ci/stages.sh into a shell of its own, with a scratch folder as the checkout.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

STAGES = pathlib.Path(__file__).resolve().parent.parent / ".ci/stages.sh"
HEAD = f"""
set -euo pipefail
root=$PWD build=$PWD/build jobs=2 report=$PWD/report
say() {{ echo "feroce: $*" >&2; }}
die() {{ say "$1"; exit "${{2:-1}}"; }}
source {STAGES}
preset_configure() {{ :; }}
mkdir report
touch report/tries report/failed
# The piece fails the first time, and passes later.
cat >piece <<'TEXT'
#!/bin/sh
[ ! -e again ] || exit 0
touch again
echo what went wrong
exit 1
TEXT
chmod +x piece
done_ahead() {{ wait "${{ahead[$1]}}" || true; end_ahead "$1"; }}
"""
CTEST_LOG = """\
1/3 Test #1: sim.one ..........................   Passed    0.00 sec
2/3 Test #2: sim.two ..........................{}   0.00 sec
what went wrong
"""


class Stages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def shell(self, text):
        """The exit status of the shell, and what it printed."""
        done = subprocess.run(["bash", "-c", HEAD + text], cwd=self.root, text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=50)
        return done.returncode, done.stdout

    def reported(self, name):
        return (self.root / "report" / name).read_text()

    def test_a_timeless_piece_that_failed_ahead_fails(self):
        status, said = self.shell("""
            start_ahead x in_parallel ./piece
            done_ahead x
            timeless=yes in_parallel ./piece""")
        self.assertNotEqual(status, 0, said)
        self.assertIn("what went wrong", said)
        self.assertIn("FAILED ahead: ./piece", said)
        self.assertEqual(self.reported("failed"), "./piece\n")

    def test_another_piece_is_tried_again(self):
        status, said = self.shell("""
            start_ahead x in_parallel ./piece
            done_ahead x
            in_parallel ./piece""")
        self.assertEqual(status, 0, said)
        self.assertIn("what went wrong", said)
        self.assertEqual(self.reported("tries"), "./piece\n")

    def test_a_piece_that_passed_ahead_is_not_run_again(self):
        status, said = self.shell("""
            touch again
            start_ahead x in_parallel ./piece
            done_ahead x
            rm again
            timeless=yes in_parallel ./piece""")
        self.assertEqual(status, 0, said)
        self.assertIn("passed ahead: ./piece", said)

    def test_a_piece_that_passed_with_rings_is_run_again_without(self):
        status, said = self.shell("""
            touch again
            in_parallel ./piece
            rm again
            FEROCE_SAMEHOST=off in_parallel ./piece""")
        self.assertNotEqual(status, 0, said)
        self.assertIn("FAILED after", said)

    def test_stages_without_rings_leave_out_nothing_that_has_a_port(self):
        status, said = self.shell("""
            need_tests() { :; }
            run_ctest() { echo "samehost=$FEROCE_SAMEHOST with=$2 without=$3"; }
            for name in netns demo iser disks20 overload pyverbs lossy3 floods crowd250; do
                eval "stage_$name() { echo $name samehost=\\$FEROCE_SAMEHOST; }"
            done
            stage_udp
            echo "then ${FEROCE_SAMEHOST:-as ever}"
            stage_udprest""")
        self.assertEqual(status, 0, said)
        lines = said.splitlines()
        self.assertEqual(lines[0], "samehost=off with=^(abi|share|litmus)$ "
                                   "without=^(rings|full|soak)$")
        self.assertEqual(lines[1], "then as ever")
        self.assertTrue(lines[2].startswith("samehost=off with= without=^(abi|share|litmus|"), said)
        self.assertEqual(len([line for line in lines[3:] if line.endswith(" samehost=off")]), 9)

    def test_a_piece_that_was_ended_has_not_failed(self):
        # It ends itself when it is asked to, as a fuzzer does.
        status, said = self.shell("""
            cat >piece <<'TEXT'
#!/bin/sh
[ ! -e began ] || exit 0
trap 'exit 1' TERM
touch began
for i in $(seq 300); do sleep 0.1; done
TEXT
            start_ahead x in_parallel ./piece
            for i in $(seq 300); do [[ ! -e began ]] || break; sleep 0.1; done
            end_ahead x
            wait "${ahead[x]}" || true
            timeless=yes in_parallel ./piece""")
        self.assertEqual(status, 0, said)
        self.assertIn("passed after", said)
        self.assertEqual(self.reported("tries"), "")

    def test_what_no_stage_waits_for_is_computed_after_compilers(self):
        status, said = self.shell("""
            build_ahead() { sleep 0.3; echo "$1 built" >>order; touch "$report/built-$1"; }
            asan_ahead() { sleep 0.3; echo asan >>order; }
            for name in seeds100 lint fuzz20; do
                eval "stage_$name() { sleep 0.3; echo $name >>order; }"
            done
            touch report/built
            work_ahead
            work_ahead # Before the next stage: nothing begins twice.
            wait""")
        self.assertEqual(status, 0, said)
        order = (self.root / "order").read_text().splitlines()
        self.assertEqual(set(order[:2]), {"clang built", "tsan built"})
        self.assertEqual(sorted(order[2:]), ["asan", "fuzz20", "lint", "seeds100"])
        self.assertLess(order.index("asan"), order.index("lint"))
        self.assertLess(order.index("seeds100"), order.index("fuzz20"))

    def test_nothing_is_computed_ahead_of_what_does_not_compile(self):
        status, said = self.shell("""
            build_ahead() { [[ $1 == clang ]] || touch "$report/built-$1"; }
            asan_ahead() { touch computed; }
            stage_seeds100() { touch computed; }
            stage_lint() { touch computed; }
            stage_fuzz20() { touch computed; }
            touch report/built
            hours=0
            work_ahead
            wait
            [[ ! -e computed ]]""")
        self.assertEqual(status, 0, said)

    def test_the_report_says_minutes_and_how_busy_processors_were(self):
        status, said = self.shell("""
            echo "one 60 200 50" >report/minutes
            echo "two 30 100 100" >>report/minutes
            echo "three 0 0 0" >>report/minutes
            print_report""")
        self.assertEqual(status, 0, said)
        rows = [line.split() for line in said.splitlines()]
        self.assertIn(["one", "1.0", "75", "%"], rows)
        self.assertIn(["two", "0.5", "0", "%"], rows)
        self.assertIn(["three", "0.0"], rows)
        self.assertIn(["together", "1.5", "50", "%"], rows)

    def test_a_stage_that_fails_does_not_end_the_run(self):
        status, said = self.shell("""
            set_up() { :; }
            stage_format() { false; echo format went on; }
            stage_overload() { echo overload ran; }
            stage_pyverbs() { die "pyverbs says no" 7; }
            run_stages format overload pyverbs""")
        self.assertEqual(status, 1, said)
        self.assertNotIn("format went on", said)
        self.assertIn("overload ran", said)
        self.assertIn("feroce: minutes a stage", said)
        self.assertEqual(said.splitlines()[-1], "feroce: stages that failed: format pyverbs")

    def test_stages_that_pass_end_well(self):
        status, said = self.shell("""
            set_up() { :; }
            stage_format() { :; }
            run_stages format""")
        self.assertEqual(status, 0, said)
        self.assertNotIn("failed", said)

    def test_an_interrupt_ends_the_run(self):
        (self.root / "taker.py").write_text(
            "import signal, sys\n"
            "signal.signal(signal.SIGINT, lambda *_: sys.exit(1))\n"
            "signal.alarm(40)\n"
            "print('ready', flush=True)\n"
            "signal.pause()\n")
        text = """
            set_up() { :; }
            # As ninja does: it takes the signal, tidies up and ends with a status.
            stage_format() { python3 taker.py; }
            stage_overload() { echo overload ran; }
            run_stages format overload"""
        with subprocess.Popen(["bash", "-c", HEAD + text], cwd=self.root, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, start_new_session=True) as run:
            for line in run.stdout:
                if line == "ready\n":
                    os.killpg(run.pid, signal.SIGINT)
                    break
            said = run.stdout.read()
            self.assertEqual(run.wait(50), 130, said)
        self.assertNotIn("overload ran", said)

    def test_what_does_not_compile_is_told_once(self):
        status, said = self.shell("""
            set_up() { :; }
            build_tests() { echo compiling; die "the build failed"; }
            stage_format() { echo format ran; }
            run_stages build ctest format overload""")
        self.assertEqual(status, 1, said)
        self.assertEqual(said.count("compiling"), 1, said)
        self.assertEqual(said.count("this stage cannot run"), 2, said)
        self.assertIn("format ran", said)
        self.assertIn("stage format (3 of 4)", said)
        self.assertEqual(said.splitlines()[-1],
                         "feroce: stages that failed: build ctest overload")

    def test_a_preset_that_does_not_compile_is_told_once(self):
        status, said = self.shell("""
            mkdir build-clang
            set_up() { :; }
            ninja() { echo compiling; false; }
            flock() { "${@:2}"; }
            preset_ctest() { echo no test; }
            run_stages clang asan tsan""")
        self.assertEqual(status, 1, said)
        self.assertEqual(said.count("compiling"), 2, said)  # clang, and tsan.
        self.assertNotIn("no test", said)
        self.assertEqual(said.splitlines()[-1], "feroce: stages that failed: clang asan tsan")

    def test_parts_of_simulations_are_the_whole(self):
        status, said = self.shell("""
            need_tests() { :; }
            in_parallel() { printf '%s\n' "$@"; }
            run_seeds 103""")
        self.assertEqual(status, 0, said)
        for program, count in ("simrun", 103), ("simrun_few_psns", 20):
            for keeps in "", " --keep":
                ranges = re.findall(rf"/{program} --seed=(\d+) --runs=(\d+) --twice{keeps}$", said,
                                    re.MULTILINE)
                seeds = [int(first) + i for first, runs in ranges for i in range(int(runs))]
                self.assertEqual(seeds, list(range(1, count + 1)), said)
        for program in "gas", "block":
            shards = re.findall(rf"GTEST_TOTAL_SHARDS=(\d+) GTEST_SHARD_INDEX=(\d+) .*{program}_",
                                said)
            self.assertEqual([int(part) for _, part in shards], list(range(int(shards[0][0]))))
        self.assertEqual(said.count("FEROCE_SEEDS=103"), 12, said)

    def judge(self, outcome):
        (self.root / "log").write_text(CTEST_LOG.format(outcome))
        return self.shell("judge_ahead log")

    def test_what_ctest_found_ahead_is_shown_and_fails(self):
        for outcome in ("***Failed ", "Subprocess aborted***Exception:",
                        "***Exception: SegFault"):
            with self.subTest(outcome):
                status, said = self.judge(outcome)
                self.assertNotEqual(status, 0, said)
                self.assertIn("what went wrong", said)
                self.assertIn("ahead: sim.two", self.reported("failed"))
                subprocess.run(["rm", "-r", "report"], cwd=self.root, check=True)

    def test_a_test_that_had_no_time_ahead_is_tried_again(self):
        status, said = self.judge("***Timeout")
        self.assertEqual(status, 0, said)
        self.assertIn("did not end ahead, and are tried again: sim.two", said)
        self.assertNotIn("what went wrong", said)

    def test_a_test_that_was_ended_has_not_failed(self):
        self.assertEqual(self.judge("Subprocess terminated***Exception:")[0], 0)

    def test_an_abort_counts_as_a_first_try(self):
        status, said = self.shell("""second_tries <<'TEXT'
1/2 Test #1: abi.one ....Subprocess aborted***Exception:   0.00 sec
    Test #1: abi.one ....   Passed    0.00 sec
2/2 Test #2: abi.two ....   Passed    0.00 sec
TEXT""")
        self.assertEqual((status, said), (0, "abi.one\n"))

    def test_lint_needs_sources(self):
        (self.root / "build-clang").mkdir()
        (self.root / "build-clang/compile_commands.json").write_text("[]\n")
        status, said = self.shell("stage_lint")
        self.assertEqual(status, 1, said)
        self.assertIn("names no source", said)

    def test_lint_reads_every_source_of_the_product_once_and_no_room_twice_together(self):
        (self.root / "build-clang").mkdir()
        rooms = {"mem": 2, "wire": 2, "verbs": 1, "cm_test": 1, "block": 1}
        entries = []
        for room, count in rooms.items():
            folder = self.root / f"src/{room}/CMakeFiles/feroce_{room}.dir/Unity"
            folder.mkdir(parents=True)
            for number in range(count):
                file = folder / f"unity_{number}_cxx.cxx"
                file.write_text("\n")
                entries.append({"directory": str(self.root), "file": str(file),
                                "command": f"c++ -O{number} -DROOM_{room} -Xclang -include-pch "
                                           f"-Xclang x/cmake_pch.hxx.pch -o {file}.o -c {file}"})
        commands = self.root / "build-clang/compile_commands.json"
        commands.write_text(json.dumps(entries))
        status, said = self.shell("""
            in_parallel() { printf '%s\\n' "$@"; }
            stage_lint""")
        self.assertEqual(status, 0, said)
        units = json.loads((self.root / "build-clang/lint/compile_commands.json").read_text())
        self.assertEqual([line.split()[-1] for line in said.splitlines()],
                         [unit["file"] for unit in units])
        read = []
        for unit in units:
            path = pathlib.Path(unit["file"])
            text = path.read_text().strip()
            files = re.findall('#include "(.*)"', text) or [unit["file"]]
            self.assertEqual(len({pathlib.Path(file).parent for file in files}), len(files))
            self.assertTrue(len(files) == 1 or "verbs" not in text, text)
            self.assertNotIn("pch", " ".join(unit["arguments"]))
            read += files
        wanted = [entry["file"] for entry in entries if "_test.dir" not in entry["file"]]
        self.assertEqual(sorted(read), sorted(wanted))
        self.assertLess(len(units), len(wanted))

    def test_tests_that_cannot_be_listed_fail(self):
        status, said = self.shell("run_ctest $PWD/none '' '^full$'")
        self.assertNotEqual(status, 0, said)
        self.assertIn("cannot list the tests", said)

    def test_a_selection_without_a_test_fails(self):
        (self.root / "build").mkdir()
        (self.root / "build/CTestTestfile.cmake").write_text(
            'add_test(one true)\nset_tests_properties(one PROPERTIES LABELS unit)\n')
        for pattern, passes in (("", True), ("^unit$", True), ("^units$", False)):
            with self.subTest(pattern):
                status, said = self.shell(f"run_ctest $PWD/build '{pattern}' '^full$'")
                self.assertEqual(status == 0, passes, said)
                self.assertEqual("no test of" in said, not passes, said)
                subprocess.run(["rm", "-r", "report"], cwd=self.root, check=True)
        self.assertNotEqual(self.shell("run_ctest $PWD/build '' '^unit$'")[0], 0)

    def test_a_selection_that_has_passed_ahead_passes(self):
        (self.root / "build").mkdir()
        (self.root / "build/CTestTestfile.cmake").write_text("add_test(sim.one false)\n")
        log = CTEST_LOG.format("***Timeout")
        status, said = self.shell(f"""
            cat >report/ahead-build.log <<'TEXT'
{log}TEXT
            run_ctest $PWD/build '' '^full$'""")
        self.assertEqual(status, 0, said)


if __name__ == "__main__":
    unittest.main()
