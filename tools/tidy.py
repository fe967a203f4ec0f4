#!/usr/bin/env python3
"""Reads the tree and fails on what a reviewer should not have to look for.

Usage: tidy.py [ROOT]. Prints `path:line: rule: message` per finding; exit status 1 if there is any.
Each rule is a function in RULES; tidy_test.py plants one violation per rule and demands that it is
found. Only the Python standard library is used.
"""
import pathlib
import re
import sys
from typing import NamedTuple

# The rooms and their levels. A room sees only rooms of a smaller level, so equal levels
# (wire and lint, transport and cm, port, sim, process and cuda, the ABI rooms) do not see each
# other.
LEVELS = {
    "base": 0, "wire": 1, "lint": 1, "mem": 2, "transport": 3, "cm": 3, "device": 4, "host": 5,
    "port": 6, "sim": 6, "process": 6, "cuda": 6, "verbs": 7, "rdmacm": 7, "preload": 7,
    "rsocket": 8, "rdma": 8, "rtrs": 9, "gas": 9, "block": 10, "python": 11,
    "cli": 11,
}
# include/feroce/: the public face of src/rdma/, and in folders of their names of other rooms.
PUBLIC = "feroce"
WORDS = {"feroce/result.hpp", "feroce/time.hpp"}  # Spoken by every room; base/ hands them on.
WAIST = 8          # Rooms from here up see the C ABI and nothing of levels 1 to 7.
# What the command may see of the levels below the waist, to trace and explain.
CLI_MAY_SEE = re.compile(r"wire/|process/state_page\.hpp$")

LINE_COLUMNS = 100
FUNCTION_LINES = 70
HEADER_LINES = 250
SOURCE_LINES = 500
TEST_LINES = 800

CODE = (".hpp", ".cpp", ".h", ".c")
TEXT = CODE + (".py", ".sh", ".cmake", ".txt", ".md", ".pml")
TREES = ("src", "include", "tests", "tools", "fuzz", "bench", "examples", "models", "cmake", ".ci")

# Room sets for the banned words. The engine is passive: time, randomness and threads come from
# above, or seeded runs stop being repeatable.
PASSIVE = {"base", "wire", "lint", "mem", "transport", "cm", "device", "host"}
# What shares the port, as one user for good.
IDENTIFIED = {"port", "host", "process", "verbs", "rdmacm"}
ORDERED = {"transport", "cm", "device", "host"}
CLOCKS = (r"\b(steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday)\b"
          r"|(?<![\w.>])time\s*\(\s*(nullptr|NULL|0|&)")
RANDOM = r"\b(random_device|mt19937(_64)?|getrandom|getentropy|drand48|s?rand\s*\()"
SOCKETS = (r"<(sys/socket|netinet/\w+|arpa/inet|sys/epoll|sys/eventfd|poll)\.h>"
           r"|\b(sendto|sendmsg|sendmmsg|recvfrom|recvmsg|recvmmsg|setsockopt|epoll_\w+)\s*\("
           r"|::socket\s*\(")
THREADS = (r"\bstd::(thread|jthread|mutex|shared_mutex|recursive_mutex|condition_variable|async)\b"
           r"|\bpthread_(create|mutex_\w+|cond_\w+)\b|\b(sleep_for|sleep_until|usleep|nanosleep)\b"
           r"|(?<![\w.>])sleep\s*\(|\bsched_yield\b")
BANNED = [
    ("clock", PASSIVE | {"sim"}, CLOCKS, "time arrives as an argument here"),
    ("random", PASSIVE | {"sim"}, RANDOM, "take a RandomSource instead"),
    ("socket", PASSIVE | {"sim"}, SOCKETS, "only port/ and what stands on it touch sockets"),
    ("thread", PASSIVE, THREADS, "the engine is passive: no threads, locks that sleep, or sleeps"),
    ("unordered", ORDERED, r"\bunordered_\w+", "its order differs from run to run"),
    ("environment", {room for room, level in LEVELS.items() if 0 < level < WAIST},
     r"\b(secure_)?getenv\b", "environment() of base/ is deaf in set-uid programs"),
    ("errno", {"verbs"}, r"\breturn -?E[A-Z]+;", "refuse() sets errno too, and says why"),
    # But what a container would throw, where the C library finds no memory.
    ("throw", {room for room, level in LEVELS.items() if level < WAIST},
     r"\bthrow\b(?! std::bad_alloc\(\))", "below level 8 errors are Result, data or ASSERT"),
]


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


class File:
    """One file: raw lines, and for code the same lines without comments and string contents."""

    def __init__(self, root, path):
        self.path = path.relative_to(root).as_posix()
        self.name = path.name
        self.suffix = path.suffix
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.splitlines()
        self.bare = strip(self.text) if self.suffix in CODE else self.text
        parts = self.path.split("/")
        self.is_public = parts[0] == "include"
        if self.is_public:
            self.room = public_room("/".join(parts[1:]))
        else:
            self.room = parts[1] if parts[0] == "src" and parts[1] in LEVELS else None
        self.is_test = self.name.endswith("_test.cpp") or parts[0] == "tests"


def public_room(target):
    """The room of a public header, named as it is included: feroce/..."""
    parts = target.split("/")
    return parts[1] if len(parts) > 2 and parts[1] in LEVELS else "rdma"


def strip(text):
    """Blanks comments and the contents of literals; keeps line numbers and #include names."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                       r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)

    def blank(match):
        found = match.group(0)
        start = text.rfind("\n", 0, match.start()) + 1
        if found[0] == '"' and text[start:match.start()].strip().startswith("#include"):
            return found
        if found[0] == "/":
            return "\n" * found.count("\n")
        return '""' + "\n" * found.count("\n")

    return token.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        paths = [p for tree in TREES for p in sorted((self.root / tree).rglob("*"))]
        paths += sorted(self.root.glob("*"))
        self.files = [File(self.root, p) for p in paths
                      if p.is_file() and p.suffix in TEXT and "corpus" not in p.parts]
        self.code = [f for f in self.files if f.suffix in CODE]
        self.cmake = [f for f in self.files if f.name == "CMakeLists.txt"]

    def rooms(self):
        folders = sorted(p for p in (self.root / "src").glob("*") if p.is_dir())
        return [p.name for p in folders]


def include_allowed(file, target):
    """Why `file` of a room may not include `target`; None if it may."""
    room, other = file.room, target.split("/")[0]
    if other == PUBLIC:
        of = public_room(target)
        visible = target in WORDS or of == room or WAIST <= LEVELS[of] < LEVELS[room]
        return None if visible else f"{room} may not see public headers of {of}"
    if file.is_public:
        return "a public header includes only public headers"
    if other == room:
        return None
    if other not in LEVELS:
        return "includes are written from src/: \"room/file.hpp\""
    if other == "sim":
        return None if file.is_test else "product code never includes sim/"
    if LEVELS[other] >= LEVELS[room]:
        return f"{room} (level {LEVELS[room]}) may not see {other} (level {LEVELS[other]})"
    below_waist = 0 < LEVELS[other] < WAIST
    if LEVELS[room] >= WAIST and below_waist and not (room == "cli" and CLI_MAY_SEE.match(target)):
        return f"{room} stands above the waist and sees only the C ABI, not {other}"
    return None


def includes(file):
    for match in re.finditer(r'^[ \t]*#include "([^"]+)"', file.bare, re.MULTILINE):
        yield line_of(file.bare, match.start()), match.group(1)


def rule_edge(tree):
    for file in tree.code:
        if file.room is None:
            continue
        for line, target in includes(file):
            why = include_allowed(file, target)
            if why:
                yield Finding(file.path, line, "edge", why)


def declared_needs(tree):
    """Per room what its CMakeLists declares: (needs of the library, needs of its tests)."""
    needs = {}
    for file in tree.cmake:
        for kind, name, body in re.findall(r"(feroce_room|feroce_unit_test)\(\s*(\w+)([^)]*)\)",
                                           file.text):
            match = re.search(r"\bNEEDS\b([\w\s]*?)(?=\b[A-Z]{4,}\b|$)", body)
            words = set(match.group(1).split()) if match else set()
            entry = needs.setdefault(name, {"feroce_room": set(), "feroce_unit_test": set()})
            entry[kind] |= words
            entry["declared"] = entry.get("declared", False) or kind == "feroce_room"
    return needs


def reach(needs, rooms):
    seen, todo = set(), list(rooms)
    while todo:
        room = todo.pop()
        if room not in seen:
            seen.add(room)
            todo += needs.get(room, {}).get("feroce_room", ())
    return seen


def rule_needs(tree):
    needs = declared_needs(tree)
    for file in tree.code:
        if file.room is None or not needs.get(file.room, {}).get("declared"):
            continue
        entry = needs[file.room]
        direct = entry["feroce_room"] | (entry["feroce_unit_test"] if file.is_test else set())
        visible = reach(needs, direct) | {file.room}
        for line, target in includes(file):
            other = target.split("/")[0]
            if other in LEVELS and other not in visible:
                message = f"{other} is not among the NEEDS of {file.room} in its CMakeLists.txt"
                yield Finding(file.path, line, "needs", message)


def rule_size(tree):
    for file in tree.code:
        limit = HEADER_LINES if file.suffix in (".hpp", ".h") else SOURCE_LINES
        limit = TEST_LINES if file.is_test else limit
        if len(file.lines) > limit:
            yield Finding(file.path, limit + 1, "size", f"{len(file.lines)} lines, limit {limit}")


def rule_columns(tree):
    for file in tree.files:
        if file.suffix in (".md", ".txt") and file.name != "CMakeLists.txt":
            continue
        for number, text in enumerate(file.lines, 1):
            if len(text) > LINE_COLUMNS:
                yield Finding(file.path, number, "columns", f"{len(text)} columns")


def functions(bare):
    """Yields (line, length, head) of every outermost function body; a brace matcher, no parser."""
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"), bare,
                  flags=re.MULTILINE)
    head_start, depth, function_depth, begun, stack = 0, 0, None, 0, []
    for match in re.finditer(r"[{};]", text):
        at, sign = match.start(), match.group(0)
        if sign == "{":
            head = text[head_start:at].strip()
            stack.append(head_start)
            if function_depth is None and opens_function(head):
                function_depth, begun = depth, head_start
            depth += 1
        elif sign == "}":
            depth -= 1
            opened = stack.pop() if stack else 0
            follows = text[at + 1:at + 200].lstrip()[:1]
            # `: a_{1}, b_{2} {`: an initialiser list, so the head goes on.
            if function_depth == depth and follows and follows in ",{":
                function_depth = None
                head_start = opened
                continue
            if function_depth == depth:
                function_depth = None
                first = begun + len(text[begun:]) - len(text[begun:].lstrip())
                length = text.count("\n", first, at) + 1
                yield line_of(text, first), length, text[first:first + 60].split("\n")[0]
        if not (function_depth is not None and depth > function_depth + 1):
            head_start = at + 1


def opens_function(head):
    head = re.sub(r"\b(public|private|protected)\s*:(?!:)|\balignas\([^)]*\)|\[\[.*?\]\]", "", head)
    head = head.strip()
    if not head or "(" not in head or head[-1] in "(,=":
        return False
    head = re.sub(r"^(template\s*<[^{}]*?>\s*)+(?=\w)", "", head)
    return not re.match(r"(namespace|class|struct|union|enum|extern)\b[^()]*$", head)


def rule_function(tree):
    for file in tree.code:
        for line, length, head in functions(file.bare):
            if length > FUNCTION_LINES:
                message = f"{length} lines, limit {FUNCTION_LINES}: {head}"
                yield Finding(file.path, line, "function", message)


def rule_banned(tree):
    for name, rooms, pattern, reason in BANNED:
        for file in tree.code:
            if file.room not in rooms or file.is_test:
                continue
            for match in re.finditer(pattern, file.bare):
                message = f"'{match.group(0).strip()}': {reason}"
                yield Finding(file.path, line_of(file.bare, match.start()), name, message)


def rule_identity(tree):
    """A process may change its user: which one counts is decided in one place."""
    for file in tree.code:
        if file.room not in IDENTIFIED or file.is_test or file.name == "identity.cpp":
            continue
        for match in re.finditer(r"\bgete?uid\b", file.bare):
            yield Finding(file.path, line_of(file.bare, match.start()), "identity",
                          "the user is captured when the port is entered: host/identity.hpp")


def rule_todo(tree):
    word = "TODO" + "(now)"
    for file in tree.files:
        for number, text in enumerate(file.lines, 1):
            if word in text:
                yield Finding(file.path, number, "todo", "do it before it lands")


def rule_header(tree):
    for file in tree.code:
        if file.suffix != ".hpp":
            continue
        if "#pragma once" not in file.text:
            yield Finding(file.path, 1, "header", "lacks #pragma once")
        if not file.text.startswith("//"):
            yield Finding(file.path, 1, "header", "starts without a comment that says its role")


def names_file(cmake, name):
    """Whether a CMakeLists.txt names this file, by itself or as feroce_fuzz(x) for x_fuzz.cpp."""
    if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", cmake):
        return True
    kind = re.fullmatch(r"(\w+)_(fuzz|bench)\.cpp", name)
    return bool(kind and re.search(rf"\bferoce_{kind[2]}\(\s*{kind[1]}\b", cmake))


def rule_orphan(tree):
    for file in tree.code:
        if file.suffix not in (".cpp", ".c"):
            continue
        path = pathlib.PurePosixPath(file.path)
        listed = False
        for cmake in tree.cmake:
            folder = pathlib.PurePosixPath(cmake.path).parent
            if folder in path.parents:
                listed |= names_file(cmake.text, path.relative_to(folder).as_posix())
        if not listed:
            yield Finding(file.path, 1, "orphan", "no CMakeLists.txt names this file")


def rule_room(tree):
    for room in tree.rooms():
        if room not in LEVELS:
            yield Finding(f"src/{room}", 1, "room", "is not in the table of rooms")
        elif not (tree.root / "src" / room / "README.md").is_file():
            yield Finding(f"src/{room}", 1, "room", "has no README.md")


def rule_package(tree):
    explained = tree.root / "docs" / "dependencies.md"
    text = explained.read_text(encoding="utf-8") if explained.is_file() else ""
    for file in tree.files:
        if not file.path.startswith(".ci/packages/"):
            continue
        for number, line in enumerate(file.lines, 1):
            name = line.split("#")[0].strip()
            if name and f"`{name}`" not in text:
                yield Finding(file.path, number, "package", f"docs/dependencies.md lacks {name}")


def rule_counter(tree):
    """What `feroce stat` shows is counted: a zero that means "unknown" would be a lie."""
    used = {name for file in tree.code if file.room and not file.is_test
            for name in re.findall(r"\bCounter::(\w+)", file.bare)}
    for file in tree.code:
        if file.path != "src/transport/counters.hpp":
            continue
        for block in re.finditer(r"enum class Counter\b[^{]*{([^}]*)}", file.bare):
            for name in re.finditer(r"\w+", block[1]):
                if name[0] not in used | {"Count"}:
                    line = line_of(file.bare, block.start(1) + name.start())
                    yield Finding(file.path, line, "counter", f"nothing counts {name[0]}")


def rule_state(tree):
    """A test's server must not touch what a server of the machine remembers."""
    # As words of a list (completing them starts nothing), or in a shell's line.
    starts = re.compile(r"""(?<!complete\()feroce(\([^()]*\))?,\s*["']export["']"""
                        r"""|feroce["']? export ("|'|\S*=)""", re.IGNORECASE)
    for file in tree.files:
        if not file.path.startswith(("tests/", "tools/", "bench/", ".ci/")) \
                or file.suffix not in (".py", ".sh"):
            continue
        found = starts.search(file.text)
        given = r"\bSTATE_DIRECTORY\b|\buse_state_in\(|\benvironment\(lab\)"
        if found and not re.search(given, file.text):
            yield Finding(file.path, line_of(file.text, found.start()), "state",
                          "give `feroce export` a STATE_DIRECTORY of the test's own")


RULES = [rule_edge, rule_needs, rule_size, rule_columns, rule_function, rule_banned,
         rule_identity, rule_todo, rule_header, rule_orphan, rule_room, rule_package, rule_counter,
         rule_state]


def check(root):
    tree = Tree(root)
    return [finding for rule in RULES for finding in rule(tree)]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
