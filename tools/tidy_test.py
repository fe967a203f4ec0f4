#!/usr/bin/env python3
"""Shows that tidy can fail: a clean tree has no findings, one planted violation per rule is found.

Each case is (rule, path, text): the file is added to the clean tree and must be the only finding's
cause. A rule name without a case fails the last test.
"""
import pathlib
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # A test leaves nothing in the tree it reads.

import tidy  # noqa: E402

HEAD = "// A room's file.\n#pragma once\n"
CLEAN = {
    "src/base/README.md": "# base\n",
    "src/base/CMakeLists.txt": "feroce_room(base SOURCES psn.cpp)\n",
    "src/base/psn.hpp": HEAD + "int next(int psn);\n",
    "src/base/psn.cpp": '#include "base/psn.hpp"\nint next(int psn) { return psn + 1; }\n',
    "src/wire/README.md": "# wire\n",
    "src/wire/CMakeLists.txt": "feroce_room(wire SOURCES bth.cpp NEEDS base LIBRARIES isal)\n"
                               "feroce_unit_test(wire TESTS bth_test.cpp)\n",
    "src/wire/bth.hpp": HEAD + '#include "base/psn.hpp"\n',
    "src/wire/bth.cpp": '#include "wire/bth.hpp"\n// steady_clock in a comment is no use of it.\n'
                        'const char* text = "steady_clock";\n',
    "src/wire/bth_test.cpp": '#include "sim/world.hpp"\n#include <thread>\nstd::thread helper;\n',
    "src/mem/README.md": "# mem\n",
    "src/transport/README.md": "# transport\n",
    "src/port/README.md": "# port\n",
    "src/cm/README.md": "# cm\n",
    "src/device/README.md": "# device\n",
    "src/sim/README.md": "# sim\n",
    "src/sim/world.hpp": HEAD + "struct World {};\n",
    "src/process/README.md": "# process\n",
    "src/verbs/README.md": "# verbs\n",
    "src/rtrs/README.md": "# rtrs\n",
    "src/cli/README.md": "# cli\n",
    "src/cli/trace.hpp": HEAD + '#include "wire/bth.hpp"\n#include "process/state_page.hpp"\n',
    "fuzz/CMakeLists.txt": "feroce_fuzz(parse NEEDS wire)\n",
    "fuzz/parse_fuzz.cpp": "int x;\n",
    ".ci/packages/product.txt": "g++\n",
    "docs/dependencies.md": "| `g++` | the compiler |\n",
}


def body(lines):
    return "".join("    ++x;\n" for _ in range(lines))


MEMBER = "    int f(int x) {\n        return x;\n    }\n"
LONG_CLASS = "class alignas(64) C {\npublic:\n" + MEMBER * 30 + "};\n"
LONG_MEMBER = ("struct S {\n    S(int x) : a_{x}, b_{x} {\n" + body(70) + "    }\n"
               "    int a_, b_;\n};\n")
PLANTED = [
    ("counter", "src/transport/counters.hpp",
     HEAD + "enum class Counter : int {\n    Never,  // Counted.\n    Count,\n};\n"),
    ("edge", "src/mem/up.hpp", HEAD + '#include "device/engine.hpp"\n'),
    ("edge", "src/transport/side.hpp", HEAD + '#include "cm/machine.hpp"\n'),
    ("edge", "src/rtrs/deep.hpp", HEAD + '#include "wire/bth.hpp"\n'),
    ("edge", "src/process/fake.hpp", HEAD + '#include "sim/world.hpp"\n'),
    ("edge", "src/cli/deep.hpp", HEAD + '#include "process/node.hpp"\n'),
    ("edge", "src/device/above.hpp", HEAD + '#include "feroce/node.hpp"\n'),
    ("edge", "src/wire/bare.hpp", HEAD + '#include "bth.hpp"\n'),
    ("needs", "src/mem/CMakeLists.txt", "feroce_room(mem SOURCES NEEDS base)\n"),
    ("size", "src/base/tall.hpp", HEAD + "\n" * 250),
    ("size", "src/base/psn.cpp", "\n" * 501),
    ("size", "src/wire/bth_test.cpp", "\n" * 801),
    ("columns", "src/base/wide.hpp", HEAD + "// " + "x" * 100 + "\n"),
    ("function", "src/base/psn.cpp", "int f(int x) {\n" + body(69) + "    return x;\n}\n"),
    ("function", "src/base/psn.cpp", LONG_MEMBER),
    ("function", "src/wire/bth_test.cpp", "TEST(A, B) {\n" + body(70) + "}\n"),
    ("clock", "src/device/now.hpp", HEAD + "auto t = std::chrono::steady_clock::now();\n"),
    ("clock", "src/sim/now.hpp", HEAD + "auto t = std::time(nullptr);\n"),
    ("random", "src/mem/key.hpp", HEAD + "std::random_device entropy;\n"),
    ("socket", "src/wire/send.hpp", HEAD + "#include <sys/socket.h>\n"),
    ("thread", "src/transport/lock.hpp", HEAD + "std::mutex lock;\n"),
    ("unordered", "src/device/table.hpp", HEAD + "std::unordered_map<int, int> table;\n"),
    ("environment", "src/process/ask.hpp", HEAD + "inline auto f() { return getenv(name); }\n"),
    ("errno", "src/verbs/bare.hpp", HEAD + "inline int f() { return EINVAL; }\n"),
    ("throw", "src/process/open.hpp", HEAD + "inline void f() { throw 1; }\n"),
    ("identity", "src/process/page.hpp", HEAD + "const auto user = ::geteuid();\n"),
    ("identity", "src/port/name.hpp", HEAD + "const auto user = ::geteuid();\n"),
    ("todo", "src/base/later.hpp", HEAD + "// TODO" + "(now): finish.\n"),
    ("header", "src/base/twice.hpp", "// A header without its guard.\n"),
    ("header", "src/base/mute.hpp", "#pragma once\n"),
    ("orphan", "src/wire/dead.cpp", "int x;\n"),
    ("orphan", "src/wire/th.cpp", "int x;\n"),
    ("orphan", "fuzz/live_fuzz.cpp", "int x;\n"),
    ("room", "src/attic/README.md", "# attic\n"),
    ("room", "src/gas/ptr.hpp", HEAD),
    ("package", ".ci/packages/test.txt", "libfoo-dev\n"),
    ("state", "tests/disk.py", 'Popen([fe' 'roce(lab), "export", f"disk={path}"])\n'),
    ("state", "tools/disk.sh", '"$FE' 'ROCE" export "data=disk"\n'),
    ("state", "tests/page.py", 'shell.run("fe' 'roce export data=memory:1M &")\n'),
]


class Planted(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for path, text in CLEAN.items():
            self.write(path, text)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def test_clean_tree_has_no_findings(self):
        # bth_test.cpp sees sim/ without declaring it; a test must declare it like any other.
        findings = tidy.check(self.root)
        self.assertEqual([f.rule for f in findings], ["needs"])
        self.write("src/wire/CMakeLists.txt", CLEAN["src/wire/CMakeLists.txt"].replace(
            "TESTS bth_test.cpp", "TESTS bth_test.cpp NEEDS sim"))
        self.assertEqual(tidy.check(self.root), [])

    def test_each_violation_is_found(self):
        for rule, path, text in PLANTED:
            with self.subTest(rule=rule, path=path):
                self.setUp()
                before = set(tidy.check(self.root))
                self.write(path, text)
                if rule == "needs":
                    self.write("src/mem/mr.hpp", HEAD + '#include "wire/bth.hpp"\n')
                found = {f.rule for f in set(tidy.check(self.root)) - before}
                self.assertEqual(found, {rule})

    def test_function_of_exactly_the_limit_passes(self):
        self.write("src/base/psn.cpp", "int f(int x) {\n" + body(67) + "    return x;\n}\n")
        self.assertNotIn("function", {f.rule for f in tidy.check(self.root)})

    def test_a_long_class_is_no_long_function(self):
        self.write("src/base/psn.cpp", LONG_CLASS)
        self.assertNotIn("function", {f.rule for f in tidy.check(self.root)})

    def test_each_rule_has_a_case(self):
        source = pathlib.Path(tidy.__file__).read_text(encoding="utf-8")
        rules = set(re.findall(r'Finding\([^"\n]*"(?:src/\{room\}", 1, ")?(\w+)"', source))
        rules |= {name for name, *_ in tidy.BANNED}
        self.assertGreater(len(rules), 10)
        self.assertEqual(rules, {rule for rule, *_ in PLANTED})


if __name__ == "__main__":
    unittest.main()
