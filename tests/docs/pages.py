"""Reads the pages: fences with what is said about them, links, headings, words in code.

A fence has a language. `sh` and `console` are commands, which run_docs.py runs; all others are
pictures, programs and files. On the line before a fence a comment may say

    <!-- not run: REASON -->      these commands are not run, and the reason is listed
    <!-- fails -->                the last command of the block is expected to fail
    <!-- file: PATH -->           the block shows this file of the tree, and must be equal to it
    <!-- top level -->            the block is no statements but declarations (compile_docs.py)
"""
import os
import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = {"sh", "console"}
OTHERS = {"text", "cpp", "c", "cmake", "yaml", "json", "ini", "lua", "dockerfile", "python"}


class Fence(NamedTuple):
    line: int
    language: str
    note: str  # What the comment before it says.
    text: str


class Page:
    def __init__(self, path):
        self.path = path
        self.name = os.path.relpath(path, ROOT)
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.fences = []
        self.prose = []  # (line number, text) outside of fences.
        self._split()

    def _split(self):
        opened = None
        for number, text in enumerate(self.lines, 1):
            mark = re.match(r"\s*```(\w*)", text)
            if mark and opened is None:
                opened = number
                language = mark.group(1)
            elif mark:
                before = re.fullmatch(r"\s*<!-- (.*) -->", self.lines[opened - 2])
                body = "".join(f"{line}\n" for line in self.lines[opened:number - 1])
                self.fences.append(Fence(opened, language, before.group(1) if before else "", body))
                opened = None
            elif opened is None:
                self.prose.append((number, text))
        if opened is not None:
            self.fences.append(Fence(opened, "", "never closed", ""))

    def spans(self):
        """What stands between backticks in the prose: (line number, text)."""
        for number, text in self.prose:
            for span in re.findall(r"`([^`]+)`", text):
                yield number, span

    def links(self):
        for number, text in self.prose:
            bare = re.sub(r"`[^`]*`", "", text)
            for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", bare):
                yield number, target

    def anchors(self):
        """The names that a browser of repositories gives to headings."""
        out = set()
        for _, text in self.prose:
            if heading := re.match(r"#+ (.*)", text):
                plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
                out.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
        return out


def user_pages():
    """The pages whose commands are run."""
    paths = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    return [Page(path) for path in [*paths, *sorted((ROOT / "docs").glob("*.md"))]]


def all_pages():
    """Build folders are not entered: bare systems come and go there."""
    skip = {"build", ".git"}
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name.split("-")[0] not in skip]
        found += [pathlib.Path(folder) / name for name in names if name.endswith(".md")]
    return [Page(path) for path in sorted(found)]
