#!/usr/bin/env python3
"""What the pages name is there: check_docs.py [BUILD].

Links lead to files and headings; files, stages and benchmarks that are named exist; every fence
says what it is; a block that shows a file shows it as it is. With a build folder also every test
that docs/challenges.md gives as a proof.
"""
import json
import re
import subprocess
import sys

from pages import COMMANDS, OTHERS, ROOT, all_pages, user_pages

FOLDERS = tuple(f"{path.name}/" for path in ROOT.iterdir() if path.is_dir()
                and not path.name.startswith(("build", ".git")))
PROOFS = "docs/challenges.md"


def check_links(page):
    for line, target in page.links():
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.path.parent / path).resolve() if path else page.path
        if not there.exists():
            yield line, f"the link {target} leads nowhere"
        elif anchor and anchor not in type(page)(there).anchors():
            yield line, f"{path or 'this page'} has no heading #{anchor}"


def check_fences(page):
    for fence in page.fences:
        if fence.language not in COMMANDS | OTHERS:
            yield fence.line, f"a block of unknown language '{fence.language}'; text is one"
        if fence.note.startswith("file: "):
            path = ROOT / fence.note.removeprefix("file: ")
            if not path.is_file() or path.read_text(encoding="utf-8") != fence.text:
                yield fence.line, f"the block is not {path.relative_to(ROOT)} as it is"


def check_indented(page):
    """Code is fenced, so that it says whether it is run."""
    before = ""
    for line, text in page.prose:
        if text.startswith("    ") and not before:
            yield line, "an indented block; fence it"
        before = text.strip()


def named_things():
    """Stages of `./feroce test`, names of `./feroce bench`."""
    stages = re.findall(r'^    "\w+\|\w+\|(\w+)\|', (ROOT / ".ci/stages.sh").read_text(), re.M)
    benches = {path.parent.name for path in ROOT.glob("bench/*/run.py")}
    listed = (ROOT / "bench/CMakeLists.txt").read_text()
    benches |= set(re.findall(r"feroce_bench\(\s*(\w+)", listed))
    benches |= set(re.findall(r"(\w+)_benchmark", listed))
    return {*stages, "everyday", "full", "soak"}, benches


def check_spans(page, stages, benches):
    for line, span in page.spans():
        if span.startswith(FOLDERS) and re.fullmatch(r"[\w./-]+", span):
            if not (ROOT / span).exists() and not span.startswith("build"):
                yield line, f"there is no {span}"
        words = span.split()
        if words[:2] == ["./feroce", "test"]:
            for word in words[2:]:
                if re.fullmatch(r"[a-z]\w+", word) and word not in stages:
                    yield line, f"there is no stage {word}"
        if words[:2] == ["./feroce", "bench"]:
            for word in words[2:]:
                if re.fullmatch(r"[a-z]\w+", word) and word not in benches:
                    yield line, f"there is no benchmark {word}"


def tests_of(build):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                           capture_output=True, text=True).stdout
    return {test["name"] for test in json.loads(shown)["tests"]}


def check_proofs(page, known):
    """Each row of a table there names a test or a stage in its last column, or says open."""
    for line, text in page.prose:
        if not text.startswith("|") or set(text) <= set("|- ") or "Proof" in text:
            continue
        proof = text.rstrip("| ").rsplit("|", 1)[-1]
        names = re.findall(r"`([^`]+)`", proof)
        if not names and "open" not in proof:
            yield line, "a claim without a proof"
        for name in names:
            if name not in known:
                yield line, f"there is no test or stage {name}"


def findings(build):
    stages, benches = named_things()
    for page in all_pages():
        yield from ((page, *found) for found in check_links(page))
    for page in user_pages():
        yield from ((page, *found) for found in check_fences(page))
        yield from ((page, *found) for found in check_indented(page))
        yield from ((page, *found) for found in check_spans(page, stages, benches))
        if build and page.name == PROOFS:
            known = tests_of(build) | stages
            yield from ((page, *found) for found in check_proofs(page, known))


def main():
    found = list(findings(sys.argv[1] if len(sys.argv) > 1 else None))
    for page, line, message in found:
        print(f"{page.name}:{line}: {message}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
