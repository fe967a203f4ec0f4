#!/usr/bin/env python3
"""action.yml and tools/action/report in a runner, with an archive whose feroce is a shell script.

The same with a real archive in a bare system: tests/ci/bare.py.
"""
import hashlib
import os
import pathlib
import subprocess
import tempfile
import unittest

from runner import Runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINE = os.uname().machine
NAME = f"feroce-9.8.7-linux-{MACHINE}"
FEROCE = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
case $* in
    --version) echo feroce 9.8.7 ;;
    doctor)
        case $FEROCE_FAULTS in
            drop=7) echo "stop  feroce_lo cannot be opened: FEROCE_FAULTS has too much"; exit 1 ;;
            drop=8) exit 139 ;;
            ibv_open_device:*) echo "stop  feroce_lo cannot be opened: it was asked for"; exit 1 ;;
        esac ;;
    "-j dev") [ -z "$FEROCE_FAULTS" ] || exit 1
        echo '[{"ifindex":0,"ifname":"feroce_lo"},{"ifindex":1,"ifname":"feroce_eth0"}]' ;;
    env) echo "export LD_LIBRARY_PATH='$here/lib'\\"\\${LD_LIBRARY_PATH:+:\\$LD_LIBRARY_PATH}\\""
        echo "export FEROCE_SYSFS_ROOT='$here/sysfs'"
        echo "export PATH='$here/sysfs/bin'\\"\\${PATH:+:\\$PATH}\\"" ;;
    explain) echo "queue pair 0x12: the peer is gone ${FEROCE_PCAP:-and nothing is captured}" ;;
    *) exit 2 ;;
esac
"""


class Action(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "temporary").mkdir()
        self.runner = Runner(str(self.root / "temporary"))
        self.archive = self.pack(NAME)

    def pack(self, name, text=FEROCE):
        program = self.root / name / "bin/feroce"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
        archive = self.root / f"{name}.tar.zst"
        subprocess.run(["tar", "--zstd", "-C", self.root, "-cf", archive, name], check=True)
        self.write_sum(archive, hashlib.sha256(archive.read_bytes()).hexdigest())
        return archive

    @staticmethod
    def write_sum(archive, digest):
        archive.with_name(archive.name + ".sha256").write_text(f"{digest}  {archive.name}\n")

    def setup(self, **inputs):
        inputs = {"archive": str(self.archive), **inputs}
        return self.runner.action(ROOT, **inputs)

    def refused(self, **inputs):
        """The sentence by which the inputs are refused; nothing was set then."""
        before = dict(self.runner.environment)
        status, said, outputs = self.setup(**inputs)
        self.assertEqual((status, outputs), (1, {}), said)
        self.assertEqual((self.runner.environment, self.runner.path), (before, []))
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertTrue(said.startswith("::error title=Feroce::feroce: "), said)
        return said

    def test_later_steps_find_feroce_and_its_settings(self):
        status, said, outputs = self.setup(devices="lo", faults="drop=0.01,dup=0.02", seed="7",
                                           capture="true")
        self.assertEqual(status, 0, said)
        folder = f"{self.root}/temporary/feroce/{NAME}"
        captures = f"{self.root}/temporary/feroce/captures"
        self.assertEqual(outputs, {"path": folder, "version": "9.8.7", "captures": captures,
                                   "devices": "feroce_lo,feroce_eth0"})
        _, said, _ = self.runner.step("feroce --version; env | grep ^FEROCE | sort")
        self.assertEqual(said.splitlines(), [
            "feroce 9.8.7", f"FEROCE_CAPTURES={captures}", "FEROCE_DEVICES=lo",
            "FEROCE_FAULTS=drop=0.01,dup=0.02,seed=7", f"FEROCE_PCAP={captures}/%p.pcapng"])
        self.assertNotIn("LD_LIBRARY_PATH", self.runner.environment)

    def test_without_inputs_nothing_is_set_but_the_place(self):
        status, said, _ = self.setup()
        self.assertEqual(status, 0, said)
        self.assertEqual([name for name in self.runner.environment if name.startswith("FEROCE")],
                         ["FEROCE_CAPTURES"])

    def test_everywhere_sets_what_feroce_env_says(self):
        status, said, outputs = self.setup(everywhere="true")
        self.assertEqual(status, 0, said)
        folder = f"{outputs['path']}/bin"
        self.assertEqual(self.runner.environment["LD_LIBRARY_PATH"], f"{folder}/lib")
        self.assertEqual(self.runner.environment["FEROCE_SYSFS_ROOT"], f"{folder}/sysfs")
        self.assertEqual(self.runner.path, [f"{folder}/sysfs/bin", folder])

    def test_faults_of_calls_and_events(self):
        for faults in ("ibv_create_cq:ENOMEM@1", "PORT_ERR@100ms,PORT_ACTIVE@300ms",
                       "ibv_post_send:EIO@3+,ibv_poll_cq:LATE=0.5,drop=1e-3,seed=3",
                       "ibv_open_device:ENOMEM@1"):  # Which stops feroce doctor, too.
            with self.subTest(faults=faults):
                status, said, outputs = self.setup(faults=faults)
                self.assertEqual((status, outputs.get("devices")), (0, "feroce_lo,feroce_eth0"),
                                 said)
                self.assertEqual(self.runner.environment["FEROCE_FAULTS"], faults)

    def test_a_program_that_does_not_run(self):
        def without(command):
            return FEROCE.replace("case $* in\n", f"case $* in\n    {command}) exit 3 ;;\n")
        for text, sentence in (
                ("#!/bin/sh\necho started; echo 'GLIBC_2.99 not found'; exit 1\n",
                 "no program would run: feroce doctor ended with 1: GLIBC_2.99 not found"),
                ("#!/nowhere/sh\n", "its loader is missing, as on systems without glibc"),
                (without("doctor"), "feroce doctor ended with 3"),
                (without("--version"), "feroce --version tells no version"),
                (without("'-j dev'"), "feroce dev names no device"),
                (without("env"), "feroce env tells no variables")):
            with self.subTest(sentence=sentence):
                self.archive = self.pack(NAME, text)
                self.assertIn(sentence, self.refused(everywhere="true"))

    def test_bad_inputs_stop_with_one_sentence(self):
        for name, value in (("version", "latest"), ("version", "1.2"), ("devices", "lo eth0"),
                            ("devices", "lo,"), ("devices", "../lo"), ("faults", "drop=1,"),
                            ("faults", "drop 0.1"), ("faults", "drop=0.1\nLD_PRELOAD=/tmp/x"),
                            ("seed", "-1"), ("seed", "1e9"), ("capture", "yes"),
                            ("everywhere", "1"), ("archive", "a\nb")):
            with self.subTest(input=name, value=value):
                self.assertIn(f"the input {name} is '", self.refused(**{name: value}))

    def test_inputs_that_do_not_go_together(self):
        self.assertIn("needs the input faults", self.refused(seed="7"))
        self.assertIn("one suffices", self.refused(faults="drop=0.1,seed=3", seed="7"))

    def test_what_the_runner_or_the_program_does_not_have(self):
        self.assertIn("has no such interface", self.refused(devices="nosuch0"))
        self.assertIn("no program would run: feroce_lo cannot be opened: FEROCE_FAULTS has",
                      self.refused(faults="drop=7"))
        self.assertIn("feroce doctor ended with 139", self.refused(faults="drop=8"))

    def test_an_archive_that_is_not_the_one(self):
        self.assertIn("there is no file", self.refused(archive="/nowhere/" + self.archive.name))
        self.assertIn("is no name of an archive", self.refused(archive="/etc/passwd"))
        other = self.pack("feroce-9.8.7-linux-mips64")
        self.assertIn("is not for this runner", self.refused(archive=str(other)))
        self.write_sum(self.archive, "0" * 64)
        self.assertIn("is not the file whose sum", self.refused())

    def test_a_release_comes_from_the_place_of_the_action(self):
        curl = self.root / "curl"
        curl.write_text('#!/bin/sh\necho trying >&2\necho "curl: (22) error: 404" >&2\nexit 22\n')
        curl.chmod(0o755)
        self.runner.environment["PATH"] = f"{self.root}:{self.runner.environment['PATH']}"
        self.runner.environment["GITHUB_SERVER_URL"] = "https://server"
        said = self.refused(archive="", version="v1.2.3")
        self.assertIn("feroce: https://server/owner/feroce/releases/download/v1.2.3/"
                      f"feroce-1.2.3-linux-{MACHINE}.tar.zst could not be downloaded: curl: (22)",
                      said)

    def test_the_report_keeps_reasons_and_the_youngest_captures(self):
        _, _, outputs = self.setup(capture="true")
        captures = pathlib.Path(outputs["captures"])
        for age, size in ((1, 10), (2, 70 << 20), (3, 50 << 20)):
            path = captures / f"{age}.pcapng"
            path.touch()
            os.truncate(path, size)
            os.utime(path, (10000 - age, 10000 - age))
        status, said, outputs = self.runner.action(ROOT / "tools/action/report", name="mine")
        self.assertEqual(status, 0, said)
        report = pathlib.Path(outputs["path"])
        reason = "queue pair 0x12: the peer is gone and nothing is captured\n"
        self.assertEqual((report / "explain.txt").read_text(), reason)
        self.assertIn(reason, self.runner.file("step_summary").read_text())
        self.assertEqual(sorted(path.name for path in (report / "captures").iterdir()),
                         ["1.pcapng", "2.pcapng"])
        self.assertIn("3.pcapng: left out", (report / "left-out.txt").read_text())
        self.assertEqual([words for _, words in self.runner.used],
                         [{"name": "mine", "path": str(report)}])

    def test_the_summary_has_the_beginning_of_many_reasons(self):
        line = "queue pair 0x12: ``` " + "the peer is gone; " * 50
        self.archive = self.pack(NAME, FEROCE.replace(
            "explain) echo", f"explain) yes '{line}' | head -n 300 ;;\n    never) echo"))
        self.assertEqual(self.setup()[0], 0)
        status, said, outputs = self.runner.action(ROOT / "tools/action/report")
        self.assertEqual(status, 0, said[-1000:])
        reasons = (pathlib.Path(outputs["path"]) / "explain.txt").read_text()
        self.assertEqual(reasons, f"{line}\n" * 300)
        self.assertGreater(len(reasons), 200000)
        summary = self.runner.file("step_summary").read_text()
        self.assertTrue(
            summary.endswith("\n... the rest is in explain.txt of the artifact\n```\n"))
        self.assertEqual(summary.count("```"), 2)
        self.assertTrue(59000 < len(summary) < 61000, len(summary))

    def test_a_report_outside_of_a_runner(self):
        del self.runner.environment["RUNNER_TEMP"]
        self.runner.environment["TMPDIR"] = str(self.root)
        folders = [self.runner.action(ROOT / "tools/action/report")[2]["path"] for _ in range(2)]
        self.assertEqual({str(pathlib.Path(folder).parent) for folder in folders},
                         {str(self.root)})
        self.assertNotEqual(*folders)

    def test_a_report_where_nothing_was_set_up(self):
        status, said, outputs = self.runner.action(ROOT / "tools/action/report")
        self.assertEqual((status, said), (0, "Feroce was not set up in this job.\n"))
        self.assertTrue(pathlib.Path(outputs["path"]).is_dir())


if __name__ == "__main__":
    unittest.main()
