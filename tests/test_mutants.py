"""The list of mutants fits the source, and the tool that runs them reports what the tests notice."""

from __future__ import annotations

import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mutants import __main__ as command
from tests.mutants.mutant import ROOT, Mutant, StaleMutant, read_mutants, stale_mutants
from tests.mutants.runner import NOTICED, TIMEOUT, UNNOTICED, CannotRun, Results, run_mutants

SOURCE = "def total(values):\n    result = 0\n    for value in values:\n        result += value\n    return result\n"
TESTS = """
import subprocess, sys
from sums import total

def test_total():
    assert total([1, 2]) == 3

def test_in_another_process():
    subprocess.run([sys.executable, "-c", "import sums; sums.total([1])"], check=True, start_new_session=True)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project under git with one module and its tests."""
    root = tmp_path / "project"
    (root / "tests").mkdir(parents=True)
    (root / "sums.py").write_text(SOURCE)
    (root / "tests" / "test_sums.py").write_text(TESTS)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def mutant(old: str, new: str, **options: str) -> Mutant:
    return Mutant("list.yaml", "sums.py", f"{new} for {old}", old, new, ("tests/test_sums.py",), **options)


def outcomes(mutants: list[Mutant], project: Path, **options: object) -> list[str]:
    results = Results(project / "results.jsonl")
    run = {"n_jobs": 1, "scratch": project.parent / "scratch", "root": project} | options
    return [result.outcome for _, result in run_mutants(mutants, results, lambda *_: None, **run)]


def test_at_least_150_entries_of_the_lists_match_the_source():
    mutants = read_mutants()
    stale = stale_mutants(mutants)
    if stale:
        warnings.warn("\n".join(["wrong changes that do not match the source:", *stale.values()]), stacklevel=1)
    assert len(mutants) - len(stale) >= 150
    assert len({(one.file, one.old, one.new) for one in mutants}) == len(mutants)
    assert len({str(one) for one in mutants}) == len(mutants)


def test_no_wrong_change_is_noticed_only_because_it_uses_an_undefined_name(tmp_path):
    for index, one in enumerate(read_mutants()):
        with suppress(StaleMutant):
            changed = one.applied_to((ROOT / one.file).read_text())
            (tmp_path / f"mutant_{index}.py").write_text(f"# {one}\n{changed}")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_changes_are_noticed_unnoticed_or_run_too_long(project, monkeypatch):
    monkeypatch.setattr("tests.mutants.runner.START_S", 3.0)
    changes = [mutant("+= value", "-= value"), mutant("result = 0", "result = +0")]
    changes.append(mutant("result += value", "while True: pass"))
    changes.append(mutant("def total", "def sum"))
    assert outcomes(changes, project, n_jobs=2) == [NOTICED, UNNOTICED, TIMEOUT, NOTICED]
    assert (project / "sums.py").read_text() == SOURCE
    left = subprocess.run(["pgrep", "-f", str(project.parent / "scratch")], capture_output=True, check=False)
    assert left.stdout == b""


def test_results_are_kept_until_source_or_tests_change(project):
    change = mutant("result = 0", "result = +0")
    runs = []
    monkeypatched = {"report": lambda *_: runs.append(1)}

    def run() -> str:
        results = Results(project / "results.jsonl")
        found = run_mutants([change], results, **monkeypatched, n_jobs=1, scratch=project.parent / "s", root=project)
        return found[0][1].outcome

    assert [run(), run()] == [UNNOTICED] * 2
    assert len(runs) == 1
    tests = project / "tests" / "test_sums.py"
    tests.write_text(tests.read_text() + "\ndef test_zero():\n    assert total([]) == 0\n")
    run()
    assert len(runs) == 2
    (project / "sums.py").write_text(SOURCE.replace("values", "numbers"))
    run()
    assert len(runs) == 3


def test_tests_that_fail_without_a_change_end_the_run(project):
    (project / "tests" / "test_sums.py").write_text("def test_nothing():\n    assert False\n")
    with pytest.raises(CannotRun, match=r"without any change, pytest .* ends with 1"):
        outcomes([mutant("+= value", "-= value")], project)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (mutant("- value", "+ value"), "`old` occurs 0 times"),
        (mutant("result", "total"), "`old` occurs 3 times"),
        (mutant("result", "total", after="for value"), ""),
        (mutant("value", "values", after="nowhere"), "`after` occurs 0 times"),
        (mutant("def", "x", after="return"), "`old` does not occur after"),
        (mutant("return", "retrun"), "not Python"),
        (mutant("result = 0", "result = (0)"), "the same program"),
    ],
)
def test_an_entry_that_does_not_fit_the_source_is_reported(change, complaint, project):
    messages = stale_mutants([change], project).values()
    assert [complaint in message for message in messages] == [True] * bool(complaint)
    if complaint:
        with pytest.raises(StaleMutant):
            outcomes([change], project)


@pytest.mark.parametrize(("file", "tests"), [("moved.py", "tests/test_sums.py"), ("sums.py", "tests/moved.py")])
def test_an_entry_without_its_file_or_tests_is_reported(project, file, tests):
    moved = Mutant("list.yaml", file, "", "+=", "-=", (tests,))
    assert [message.endswith("moved.py") for message in stale_mutants([moved], project).values()] == [True]


def test_the_command_runs_matching_mutants_and_fails_for_survivors(project, monkeypatch, capsys):
    stale = mutant("no such text", "x")
    monkeypatch.setattr(command, "ROOT", project)
    monkeypatch.setattr(command, "RESULTS", project / "results.jsonl")
    monkeypatch.setattr(command, "read_mutants", lambda: [stale, mutant("+= value", "-= value")])
    monkeypatch.setattr(command, "stale_mutants", lambda mutants: stale_mutants(mutants, project))
    monkeypatch.setattr(
        command, "run_mutants", lambda *arguments, **options: run_mutants(*arguments, **options, root=project)
    )
    assert command.main([]) == 1
    out, err = capsys.readouterr()
    assert "1 of 1 noticed" in out
    assert "`old` occurs 0 times" in err
    assert "1 entries do not match the source" in err


def test_the_command_lists_the_chosen_mutants():
    arguments = [sys.executable, "-m", "tests.mutants", "--list", "rules/adam.py", "bias"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.count("rules/adam.py: no bias correction") == 2
    assert len(done.stdout.splitlines()) == 3
