"""A runner of composite actions, as small as our actions allow: inputs, outputs, environment, path.

What an action says is taken from its action.yml. Steps are run by `execute`, which gets a line for
a shell and the environment and gives back a status and what was printed; so a bare system can be
the runner's machine.
"""
import pathlib
import re
import subprocess

import yaml

SHELL = "bash --noprofile --norc -eo pipefail"


def here(line, environment):
    done = subprocess.run(["bash", "-c", line], env=environment, text=True, check=False,
                          timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


class Runner:
    """One job. `prefix` leads from outside to the root of the machine that steps run on."""

    def __init__(self, temporary, execute=here, prefix="", **environment):
        self.execute = execute
        self.prefix = prefix
        self.temporary = temporary
        self.path = []
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp",
                            "LANG": "C.UTF-8", "GITHUB_ACTIONS": "true", "RUNNER_TEMP": temporary,
                            **environment}
        for name in ("OUTPUT", "ENV", "PATH", "STEP_SUMMARY"):
            self.environment[f"GITHUB_{name}"] = f"{temporary}/{name.lower()}"
        self.used = []  # Actions of others that were to be used, with what they get.

    def file(self, name):
        return pathlib.Path(f"{self.prefix}{self.temporary}/{name}")

    def step(self, line, **more):
        """Runs a line as a step of the job; returns the status, what was printed, and outputs."""
        for name in ("output", "env", "path"):
            self.file(name).write_text("", encoding="utf-8")
            self.file(name).chmod(0o666)  # The steps' user may be another.
        environment = {**self.environment, **more}
        environment["PATH"] = ":".join([*self.path, environment["PATH"]])
        self.file("step.sh").write_text(line + "\n", encoding="utf-8")
        status, text = self.execute(f"{SHELL} {self.temporary}/step.sh", environment)
        # Written by a step that failed, too.
        self.environment.update(self._pairs("env"))
        self.path[:0] = reversed(self.file("path").read_text(encoding="utf-8").split())
        return status, text, self._pairs("output")

    def _pairs(self, name):
        lines = self.file(name).read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def action(self, folder, inside=None, **inputs):
        """Runs the action of a folder, which the machine sees as `inside`; returns the status, what
        was printed, and the action's outputs."""
        about = yaml.safe_load((folder / "action.yml").read_text(encoding="utf-8"))
        unknown = set(inputs) - set(about["inputs"])
        if unknown:
            raise ValueError(f"the action has no input {unknown}")
        values = {f"inputs.{name}": given.get("default", "")
                  for name, given in about["inputs"].items()}
        values.update({f"inputs.{name}": value for name, value in inputs.items()})
        values["github.action_repository"] = "owner/feroce"
        printed = ""
        for step in about["runs"]["steps"]:
            if "uses" in step:
                self.used.append((step["uses"], {name: fill(value, values)
                                                 for name, value in step.get("with", {}).items()}))
                continue
            given = {name: fill(value, values) for name, value in step.get("env", {}).items()}
            status, text, outputs = self.step(fill(step["run"], values),
                                              GITHUB_ACTION_PATH=str(inside or folder), **given)
            printed += text
            if status != 0:
                return status, printed, {}
            values.update({f"steps.{step.get('id')}.outputs.{name}": value
                           for name, value in outputs.items()})
        return 0, printed, {name: fill(output["value"], values)
                            for name, output in about["outputs"].items()}


def fill(text, values):
    """${{ NAME }} becomes its value; what a step has not set is empty, as in a runner."""
    def value(match):
        name = match.group(1)
        if name not in values and not name.startswith("steps."):
            raise ValueError(f"nothing gives {name}")
        return values.get(name, "")
    return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", value, text)
