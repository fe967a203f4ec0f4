#!/usr/bin/env python3
"""Shows that check_yaml.py finds what it is to find: each test plants one mistake."""
import copy
import unittest

import check_yaml


def first(kind):
    return next(copy.deepcopy((document, more)) for _, found, document, more
                in check_yaml.every_document() if found == kind)


class Checks(unittest.TestCase):
    def problems(self, kind, change):
        document, more = first(kind)
        self.assertEqual(check_yaml.problems(kind, document, more), [])
        change(document)
        return check_yaml.problems(kind, document, more)

    def found(self, kind, change, part):
        problems = self.problems(kind, change)
        self.assertTrue(any(part in problem for problem in problems), problems)

    def test_actions(self):
        def step(document):
            return document["runs"]["steps"][0]
        self.found("action", lambda d: d.pop("name"), "'name' is a required property")
        self.found("action", lambda d: d["runs"].update(using="node20"), "composite")
        self.found("action", lambda d: step(d).pop("shell"), "runs/steps/0: ")
        self.found("action", lambda d: d["inputs"].pop("seed"), "there is no input seed")
        self.found("action", lambda d: step(d).update(id="other"), "there is no step setup")
        self.found("action", lambda d: step(d).update(run="echo ${{ inputs.seed }}"),
                   "a command has an expression")
        self.found("action", lambda d: step(d).update(run='"$GITHUB_ACTION_PATH/nowhere.sh"'),
                   "is no script of ours")

    def test_workflows(self):
        def steps(document):
            return next(iter(document["jobs"].values()))["steps"]
        self.found("workflow", lambda d: d.pop("on"), "'on' is a required property")
        self.found("workflow", lambda d: steps(d).append({"uses": "./nowhere"}),
                   "there is no action ./nowhere")
        self.found("workflow", lambda d: steps(d).append({"uses": "./", "with": {"sed": 1}}),
                   "./ has no input sed")
        self.found("workflow", lambda d: steps(d).append({"run": "if then"}), "bash")
        self.found("workflow", lambda d: steps(d).append({"name": "nothing"}), "steps")

    def test_gitlab(self):
        self.found("gitlab", lambda d: d["rdma-tests"].pop("script"), "'script' is a required")
        self.found("gitlab", lambda d: d["rdma-tests"]["script"].append("("), "bash")


if __name__ == "__main__":
    unittest.main()
