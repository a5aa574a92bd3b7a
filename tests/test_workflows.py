"""The workflows of GitHub and the hooks of pre-commit run commands that exist."""

from __future__ import annotations

import re
import shutil
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def commands(workflow: Path) -> list[str]:
    """The commands of a workflow, also those of its matrix."""
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    run = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    for job in jobs:
        matrix = job.get("strategy", {}).get("matrix", {})
        run += matrix.get("command", []) + [one["command"] for one in matrix.get("include", [])]
    return [command.removeprefix("sudo --preserve-env=PATH ") for command in run if "matrix" not in command]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_commands_of_a_workflow_exist(workflow):
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.M)
    targets = phony.split()
    assert commands(workflow)
    for command in commands(workflow):
        program, *arguments = re.sub(r"^(\w+=\S+ )+", "", command).split()  # variables may come first
        if program == "make":
            assert arguments[0] in targets, command
        else:
            assert (ROOT / program).is_file(), command


def test_workflows_use_the_oldest_python_of_setup_cfg():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    oldest = setup["options"]["python_requires"].removeprefix(">=")
    for workflow in WORKFLOWS:
        assert f'"{oldest}"' in workflow.read_text()


def test_hooks_of_pre_commit_are_programs_of_the_environment():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]:
        assert shutil.which(hook["entry"].split()[0], path=Path(sys.executable).parent), hook["id"]
