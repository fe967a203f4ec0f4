"""The steps of a Containerfile in Rooms, for machines without a container engine."""
import json
import re
import shutil
import sys

import rooms


def instructions(path):
    """(word, rest) of each instruction; lines that end in a backslash go on."""
    text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


class Image:
    """The last room of a Containerfile, with what the file says of how to run it."""

    def __init__(self, work, suite, path, bring_source):
        self.work, self.suite = work, suite
        self.confine = path.parent / "build/tests/chroot/confine"
        self.bring_source = bring_source
        self.room, self.user, self.place, self.command = None, "0", "/", []
        self.kept = work / f"{suite}.image"
        for word, rest in instructions(path):
            step = getattr(self, f"do_{word.lower()}", None)
            if step is None:
                sys.exit(f"chroot: {path.name} has the unknown instruction {word}")
            step(rest)

    def do_arg(self, rest):
        pass  # The base is the suite.

    def do_from(self, _):
        if self.room:
            shutil.rmtree(self.kept, ignore_errors=True)
            self.room.folder.rename(self.kept)
        self.room = rooms.Room(self.work, self.suite)

    def do_run(self, rest):
        self.room.run(rest, online=True)

    def do_copy(self, rest):
        words = rest.split()
        if words[:2] == [".", "/feroce"]:
            self.bring_source(self.room)
            return
        if not words[0].startswith("--from="):
            sys.exit(f"chroot: COPY {rest} is not understood")
        for path in self.kept.glob(words[1].lstrip("/")):
            shutil.copy(path, self.room.folder / words[2].lstrip("/"))

    def do_user(self, rest):
        self.user = self.room.run(f"id -u {rest}").strip()

    def do_workdir(self, rest):
        self.place = rest

    def do_cmd(self, rest):
        self.command = json.loads(rest)

    def confined(self, line):
        """Runs a line as the image's user, without capabilities, under the default profile."""
        shutil.copy(self.confine, self.room.folder / "confine")
        return self.room.run(f"cd {self.place}; exec /confine sh -ec '{line}'", user=self.user)

    def close(self):
        shutil.rmtree(self.kept, ignore_errors=True)
        shutil.rmtree(self.room.folder, ignore_errors=True)
