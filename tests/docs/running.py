"""Runs the commands of the documentation in one process, so that the frameworks are loaded once.

Configuration files are run with the numbers of `FEWER`. The thorough tests run every page exactly as printed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from mpi_learn.cli.commands import main as mpi_learn
from mpi_opt.cli.main import main as mpi_opt
from mpi_opt.views.figures.importance import MIN_TRIALS
from tests.docs.pages import Example
from tests.in_process import in_process
from tests.world import in_world

MAINS = {"mpi-opt": mpi_opt, "mpi-learn": mpi_learn}
STARTING_MPIRUN = {"search", "train"}
"""The commands that start ``mpirun`` with ``-n``."""
FEWER = {"epochs": 1, "trials": 3, "folds": 2}
"""Replaces the numbers in configuration files that determine how long a command takes, but not what it does."""
MAX_RANKS = 3
"""Commands for more ranks run on this number of ranks: a coordinator, and two blocks or a block of two."""


def run_here(example: Example, folder: Path) -> None:
    """Runs a bash or Python example in `folder`; commands under ``mpirun`` run on ranks that are kept for the next one.

    Raises:
        AssertionError: The exit status of a command is not 0. The message has its output.
    """
    if example.language == "python":
        _must_succeed(str(example), in_world(1, "-c", example.code, cwd=folder))
        return
    for words in example.commands():
        run_command_here(words, folder)


def run_command_here(words: list[str], folder: Path) -> str:
    """Runs one command as `run_here`; returns its standard output, which ``> FILE`` also writes."""
    _shorten(folder)
    command, output = _taken(words, ">")
    done = _run(command, folder)
    _must_succeed(" ".join(words), done)
    if output:
        (folder / output).write_text(done.stdout)
    return done.stdout


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = words
    if arguments[:2] == ["plot", "importance"]:
        _add_trials(arguments[arguments.index("--study") + 1], folder)
    if "--trials" in arguments:  # of a study that is continued
        arguments[arguments.index("--trials") + 1] = str(FEWER["trials"] + 1)
    if program == "mpirun":
        arguments, n = _taken(arguments, "-np")
        return in_world(min(int(n), MAX_RANKS), *arguments[1:], cwd=folder)
    if arguments[:2] == ["-m", "pytest"]:
        return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)
    if program == "python":
        return in_world(1, *arguments, cwd=folder)
    if arguments[0] in STARTING_MPIRUN and "-n" in arguments:
        arguments, n = _taken(arguments, "-n")
        return in_world(min(int(n), MAX_RANKS), "-m", program.replace("-", "_"), *arguments, cwd=folder)
    return in_process(*arguments, cwd=folder, main=MAINS[program])


def _add_trials(study: str, folder: Path) -> None:
    """Reports results for further trials without running them, up to the number that the importance needs."""
    asked = in_process("ask", f"{study}.yaml", "-k", str(MIN_TRIALS), "--trials", str(MIN_TRIALS), cwd=folder)
    for number in [trial["number"] for trial in json.loads(asked.stdout)]:
        told = in_process("tell", f"{study}.yaml", "--number", str(number), "--value", str(number), cwd=folder)
        _must_succeed("tell", told)


def _shorten(folder: Path) -> None:
    for file in folder.glob("*.yaml"):
        text = file.read_text()
        for key, number in FEWER.items():
            text = re.sub(rf"\b{key}: \d+", f"{key}: {number}", text)
        file.write_text(text)


def _taken(words: list[str], option: str) -> tuple[list[str], str]:
    """`words` without `option` and the word after it; and that word, empty without the option."""
    if option not in words:
        return words, ""
    place = words.index(option)
    return words[:place] + words[place + 2 :], words[place + 1]


def _must_succeed(what: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"{what}\n{done.stdout}\n{done.stderr}"
