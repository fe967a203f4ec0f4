#!/usr/bin/env python3
"""The checks of the pages find what is wrong: a page with planted mistakes, and each must be named.

docs_test.py BUILD
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import check_docs
import compile_docs
import pages
import run_docs

BUILD = sys.argv.pop()
PLANTED = """# A page
[gone](nowhere.md) and [heading](#no-such) and [fine](#a-page)
`src/no_such_file.cpp`, `./feroce test nonsense`, `./feroce bench nonsense`, `src/base/README.md`

    indented

```
no language
```

<!-- file: README.md -->
```cpp
not the README
```
"""


def planted(folder, text):
    path = pathlib.Path(folder, "page.md")
    path.write_text(text, encoding="utf-8")
    return pages.Page(path)


class Checks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_build_folders_are_not_entered(self):
        root = pathlib.Path(self.folder)
        for name in ("docs/page.md", "build-chroot/bare.room/usr/page.md"):
            (root / name).parent.mkdir(parents=True)
            (root / name).touch()
        entered = []
        scan = os.scandir

        def scandir(path):
            entered.append(os.path.relpath(path, root))
            return scan(path)

        with mock.patch.object(pages, "ROOT", root), mock.patch("os.scandir", scandir):
            found = pages.all_pages()
        self.assertEqual([page.path for page in found], [root / "docs/page.md"])
        self.assertEqual([path for path in entered if path.startswith("build")], [])

    def test_links(self):
        page = planted(self.folder, PLANTED)
        self.assertEqual(len(list(check_docs.check_links(page))), 1 + 1)

    def test_fences(self):
        page = planted(self.folder, PLANTED)
        self.assertEqual([line for line, _ in check_docs.check_fences(page)], [7, 12])
        self.assertEqual([line for line, _ in check_docs.check_indented(page)], [5])

    def test_names(self):
        stages, benches = check_docs.named_things()
        found = list(check_docs.check_spans(planted(self.folder, PLANTED), stages, benches))
        self.assertEqual(len(found), 3, found)

    def test_proofs(self):
        page = planted(self.folder, "| is claimed | `unit.base` |\n| too | nothing |\n"
                       "| else | `no.such` |\n| this is | open |\n")
        lines = [line for line, _ in check_docs.check_proofs(page, check_docs.tests_of(BUILD))]
        self.assertEqual(lines, [2, 3])

    def test_output(self):
        self.assertTrue(run_docs.matches(["pid 12 of 0xab", "..."], ["pid 7  of 0xff", "x", "y"]))
        self.assertFalse(run_docs.matches(["pid 12 is"], ["pid 12 was"]))
        self.assertFalse(run_docs.matches([], ["a word too much"]))

    def compiled(self, text):
        """What each compiler says of a page with this text: its status and the line it names."""
        unit, _ = compile_docs.unit_of([planted(self.folder, text)])
        return [(status, "page.md:9" in said)
                for _, said, status in compile_docs.compile_unit(BUILD, unit)]

    def test_cpp(self):
        page = ("# A page\n<!-- cpp\n#include <string>\nextern int known;\n-->\n\n```cpp\n"
                "std::string text;\n{}\n```\n<!-- top level -->\n```cpp\nint text() "
                "{{ return known; }}\n```\n")
        self.assertEqual(self.compiled(page.format("text = co_await loop;")), [(1, True)] * 2)
        self.assertEqual(self.compiled(page.format("text += char(known);")), [(0, False)] * 2)

    def run_page(self, text):
        """The status of running a page with these commands."""
        page = planted(self.folder, f"# Page\n\n{text}")
        return subprocess.run([sys.executable, run_docs.__file__, BUILD, page.path], check=False,
                              capture_output=True).returncode

    def test_commands(self):
        self.assertEqual(self.run_page("```console\n$ echo 5 words\n6 words\n```\n"), 0)
        self.assertNotEqual(self.run_page("```console\n$ echo words\nother words\n```\n"), 0)
        self.assertNotEqual(self.run_page("```console\n$ false\n```\n"), 0)
        self.assertEqual(self.run_page("<!-- fails -->\n```console\n$ false\n```\n"), 0)
        self.assertNotEqual(self.run_page("```sh\nfalse\ntrue\n```\n"), 0)
        self.assertEqual(self.run_page("<!-- not run: why -->\n```sh\nfalse\n```\n"), 0)


if __name__ == "__main__":
    unittest.main()
