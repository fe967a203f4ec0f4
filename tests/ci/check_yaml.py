#!/usr/bin/env python3
"""Whether actions, workflows and snippets for CI are what their readers take: by the schemas beside
this, which name every field that we use and no other; and by what a schema does not see.

check_yaml.py: prints what is wrong, and ends with 1 then.
"""
import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ACTIONS = ["action.yml", "tools/action/report/action.yml"]


def load(text):
    """All documents. YAML 1.1 reads the key `on` as true; GitHub does not."""
    for document in yaml.safe_load_all(text):
        yield {("on" if key is True else key): value for key, value in document.items()}


def schema_problems(path, document):
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    for error in jsonschema.Draft7Validator(schema).iter_errors(document):
        deepest = jsonschema.exceptions.best_match([error])
        place = "/".join(str(part) for part in deepest.absolute_path)
        yield f"{place or 'it'}: {deepest.message}"


def shell_problems(lines):
    done = subprocess.run(["bash", "-n"], input=lines, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        yield f"bash does not understand: {done.stderr.strip()}"


def step_problems(step, root=ROOT):
    """A local action is there, gets inputs that it has, and commands are shell."""
    uses = step.get("uses", "")
    ours = re.fullmatch(r"(?:\./|OWNER/feroce/?)([\w/-]*)(?:@.*)?", uses)
    if ours:
        path = root / ours.group(1) / "action.yml"
        if not path.is_file():
            yield f"there is no action {uses}"
        else:
            known = yaml.safe_load(path.read_text(encoding="utf-8"))["inputs"]
            for name in set(step.get("with", {})) - set(known):
                yield f"{uses} has no input {name}"
    if "run" in step:
        yield from shell_problems(step["run"])


def action_problems(document, folder):
    """What `${{ }}` names is there, and is no part of a command: an input may have anything."""
    text = json.dumps(document)
    steps = document["runs"]["steps"]
    for name in re.findall(r"\$\{\{ *inputs\.([\w-]+)", text):
        if name not in document["inputs"]:
            yield f"there is no input {name}"
    for name in re.findall(r"\$\{\{ *steps\.([\w-]+)\.", text):
        if name not in [step.get("id") for step in steps]:
            yield f"there is no step {name}"
    for step in steps:
        if "${{" in step.get("run", ""):
            yield "a command has an expression; give it by env"
        script = re.fullmatch(r'"\$GITHUB_ACTION_PATH/([\w./-]+)"', step.get("run", ""))
        if "run" in step and not (script and (folder / script.group(1)).is_file()):
            yield f"{step['run']} is no script of ours"
        yield from step_problems(step)


def workflow_problems(document):
    for job in document["jobs"].values():
        for step in job["steps"]:
            yield from step_problems(step)
        if job.get("needs") and job["needs"] not in document["jobs"]:
            yield f"there is no job {job['needs']}"


def gitlab_problems(document):
    for job in document.values():
        for part in ("before_script", "script", "after_script"):
            yield from shell_problems("\n".join(job.get(part, [])))


def every_document():
    """(name, kind of schema, document, more problems)."""
    for name in ACTIONS:
        for document in load((ROOT / name).read_text(encoding="utf-8")):
            yield name, "action", document, lambda d, n=name: action_problems(d, (ROOT / n).parent)
    workflows = [*sorted(ROOT.glob(".github/workflows/*.yml")), ROOT / "docs/ci-example.yml"]
    for path in workflows:
        for document in load(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(ROOT)), "workflow", document, workflow_problems
    for document in load((ROOT / "docs/ci-gitlab.yml").read_text(encoding="utf-8")):
        yield "docs/ci-gitlab.yml", "gitlab", document, gitlab_problems


def problems(kind, document, more):
    """What a schema does not see is looked for only where the fields are right."""
    schema = HERE / "schema" / f"{kind}.json"
    return list(schema_problems(schema, document)) or list(more(document))


def main():
    found = count = 0
    for name, kind, document, more in every_document():
        count += 1
        for problem in problems(kind, document, more):
            found += 1
            print(f"{name}: {problem}")
    print(f"{count} documents, {found} problems")
    sys.exit(1 if found or not count else 0)


if __name__ == "__main__":
    main()
