"""The list of mutants fits the source, and the tool that runs them reports what the tests notice."""

from __future__ import annotations

import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mpirun import patient_s
from tests.mutants import __main__ as command
from tests.mutants.drawing import Drawn, defaults, draw, read_argued, source_files, stale_arguments
from tests.mutants.mutant import ROOT, Mutant, StaleMutant, read_mutants, stale_mutants
from tests.mutants.operators import Site, sites
from tests.mutants.runner import (
    NOTICED,
    TIMEOUT,
    UNNOTICED,
    CannotRun,
    Results,
    failures_without_change,
    run_mutants,
)
from tests.mutants.selecting import CoverageMap, Selection, functions_by_line

pytestmark = pytest.mark.thorough  # `make lint` compares the lists with the source
SOURCE = "def total(values):\n    result = 0\n    for value in values:\n        result += value\n    return result\n"
TESTS = """
import subprocess, sys
from sums import total

def test_total():
    assert total([1, 2]) == 3

def test_in_another_process():
    subprocess.run([sys.executable, "-c", "import sums; sums.total([1])"], check=True, start_new_session=True)
"""

TESTS_OF_A = """
import pytest
from mpi_opt.a import f, g

@pytest.fixture(scope="module")
def shared():
    return g()

def test_f():
    assert f() == 1

def test_shared(shared):
    assert shared == 2

def test_fails():
    assert f() == 3
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
    monkeypatch.setattr("tests.mutants.runner.START_S", patient_s(3.0))
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


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("moved.py", ["tests/test_sums.py"]),
        ("sums.py", ["tests/moved.py"]),
        ("sums.py", ["tests/test_sums.py", "-k", "total and not moved.py"]),
    ],
)
def test_an_entry_without_its_file_or_tests_is_reported(project, file, tests):
    moved = Mutant("list.yaml", file, "", "+=", "-=", tuple(tests))
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


def changed(source: str, kind: str) -> set[str]:
    """The changed last lines of a module."""
    return {site.applied_to(source).splitlines()[-1].strip() for site in sites(source) if site.kind == kind}


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("x = a < b", "comparison", {"x = (a <= b)", "x = (a > b)"}),
        ("x = 'ü' if a is None else b", "comparison", {"x = 'ü' if (a is not None) else b"}),
        ("x = a and (b or c)", "and, or", {"x = (a or (b or c))", "x = a and ((b and c))"}),
        ("x = not a", "not dropped", {"x = a"}),
        ("x = [y for y in z if y > 0]", "filter dropped", {"x = [y for y in z if True]"}),
        ("x = f(2, n=True)", "constant", {"x = f(3, n=True)", "x = f(2, n=False)"}),
        ("x = -y", "sign dropped", {"x = y"}),
        ("x += y * 2", "arithmetic", {"x -= y * 2", "x += (y / 2)"}),
        ("f(x)", "call removed", {"pass"}),
        ("x.y = 3", "assignment removed", {"pass"}),
        ("x = 3", "assignment removed", set()),
        ("def f(x=1): x = 2", "assignment removed", {"def f(x=1): pass"}),
        ("while f(): break", "break, continue", {"while f(): continue"}),
        ("def f(): raise x", "raise, return", {"def f(): return"}),
        ("x = f(a, key=b)", "argument dropped", {"x = f(a)"}),
        ("x = f(a, b)", "arguments exchanged", {"x = f(b, a)"}),
        ("x = sorted(y)", "call dropped", {"x = y"}),
        ("x = max(y)", "other function", {"x = min(y)"}),
        ("AA, BB = 1, 2; x = AA", "other constant", {"AA, BB = 1, 2; x = BB"}),
        ("x = y[1:]", "slice dropped", {"x = y[:]"}),
        ("with lock: pass", "context dropped", {"with __import__('contextlib').nullcontext(): pass"}),
        ("x = f'{a} of {b}'", "value not said", {"x = f' of {b}'", "x = f'{a} of '"}),
    ],
)
def test_operators_change_what_they_say(source, kind, expected):
    assert changed(source, kind) == expected


def test_annotations_imports_and_texts_are_left_alone():
    source = '"""Module 1."""\nfrom a import b\nx: list[1]\ndef f(y: Literal[1]) -> Literal[2]:\n    "Text 3."\n'
    source += "MOST_S = 3.0\nA, B = 1, 2\nItem = TypeVar('Item')\n__all__ = [1]\nassert 4\n"
    source += "Message = Ready | Lost\nRow = dict[str, Literal[1]]\n"
    assert sites(source) == []
    assert sites("Duration = Annotated[str, validated(1)]")  # a validator is no type


def test_an_argument_without_default_is_never_dropped():
    source = "class A:\n    x: int\n    y: int = 0\ndef f(*, x, y=1): pass\nA(x=1, y=2); f(x=1, y=2)"
    has_default = defaults([source])
    dropped = {site.text for site in sites(source, has_default) if site.kind == "argument dropped"}
    assert dropped == {"A(x=1)", "f(x=1)"}


def test_functions_are_named_as_python_names_them():
    source = "class A:\n    def f(self):\n        def g():\n            return 1\n        return g\nx = 1\n"
    names = {3: "A.f", 4: "A.f.<locals>.g", 5: "A.f"}
    assert functions_by_line(source) == names
    assert [site.function for site in sites(source) if site.kind == "constant"] == ["A.f.<locals>.g", ""]


def test_a_seed_draws_the_same_valid_changes_of_all_packages():
    drawn = draw(25, 3)
    assert len({(one.file, one.site) for one in drawn}) == 25
    assert {one.file.partition("/")[0] for one in drawn} == {"mpi_learn", "mpi_opt"}
    for one in drawn:
        assert compile(one.applied_to((ROOT / one.file).read_text()), one.file, "exec")
    assert len(source_files(ROOT)) > 200


def test_another_seed_draws_other_changes_and_words_select_files(project):
    for package in ("mpi_learn", "mpi_opt"):
        (project / package).mkdir()
        (project / package / "sums.py").write_text(SOURCE * 5)
    first, again, other = draw(8, 3, project), draw(8, 3, project), draw(8, 4, project)
    assert first == again != other
    assert {one.file for one in draw(3, 1, project, only=["opt/"])} == {"mpi_opt/sums.py"}
    assert 0 < len(draw(10_000, 1, project)) < 10_000, "no change is drawn twice"


def test_the_key_of_a_drawn_change_survives_other_changes_of_its_file():
    def key(source: str) -> tuple[str, ...]:
        (site,) = [site for site in sites(source) if site.kind == "arithmetic"]
        line = source.splitlines()[site.line - 1].strip()
        return Drawn("sums.py", site, line, "").key

    assert key(SOURCE) == key("import os\n\n\n" + SOURCE)


def test_reasons_for_unnoticed_changes_are_read_and_must_fit_the_source(tmp_path, project):
    path = tmp_path / "drawn.yaml"
    entry = "  - {in: total, was: result = 0, becomes: result = -0, argued: it is the same number}\n"
    path.write_text(f"sums.py:\n{entry}gone.py:\n{entry}")
    argued = read_argued(path)
    assert argued["sums.py", "total", "result = 0", "result = -0"] == "it is the same number"
    assert [line.partition(": no such")[0].split(": ")[1] for line in stale_arguments(argued, project)] == ["gone.py"]
    assert read_argued(tmp_path / "missing.yaml") == {}
    assert stale_arguments(read_argued()) == []


def test_the_tests_of_a_change_are_those_that_run_its_function(project, monkeypatch):
    folder = project / "mpi_opt"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "a.py").write_text("def f():\n    return 1\n\ndef g():\n    return 2\n")
    (project / "tests" / "__init__.py").touch()
    (project / "tests" / "test_a.py").write_text(TESTS_OF_A)
    (project / "tests" / "mutants").symlink_to(ROOT / "tests" / "mutants")
    monkeypatch.setenv("PYTHONPATH", str(project))
    path = project / "build" / "map.json"
    measured = CoverageMap(path, project)
    measured.update(["tests"], only=["tests/test_far.py"])
    assert measured.tests_of("mpi_opt/a.py", "") == {}
    for _ in range(2):  # measured once, then read
        measured = CoverageMap(path, project)
        measured.update(["tests"])
    a = "tests/test_a.py"
    assert set(measured.tests_of("mpi_opt/a.py", "f")) == {f"{a}::test_f"}
    assert set(measured.tests_of("mpi_opt/a.py", "g")) == {f"{a}::test_f", f"{a}::test_shared"}  # a shared fixture
    assert set(measured.tests_of("mpi_opt/a.py", "")) == {f"{a}::test_f", f"{a}::test_shared"}


def test_a_change_that_ends_pytest_counts_as_noticed_and_a_hanging_test_is_named(project, monkeypatch):
    monkeypatch.setattr("tests.mutants.runner.START_S", patient_s(3.0))
    changes = [mutant("result = 0", "import os; os._exit(9)"), mutant("result += value", "while True: pass")]
    changes.append(mutant("+= value", "-= value"))
    results = Results(project / "results.jsonl")
    found = run_mutants(changes, results, lambda *_: None, n_jobs=1, scratch=project.parent / "scratch", root=project)
    assert [(result.outcome, result.test) for _, result in found] == [
        (NOTICED, "tests/test_sums.py::test_total"),
        (TIMEOUT, "tests/test_sums.py::test_total"),
        (NOTICED, "tests/test_sums.py::test_total"),
    ]


def test_a_test_that_fails_without_a_change_is_found(project, tmp_path):
    tests = project / "tests" / "test_sums.py"
    tests.write_text(TESTS + "\ndef test_wrong():\n    assert total([1]) == 2\n")
    names = [f"tests/test_sums.py::{name}" for name in ("test_total", "test_wrong", "test_total")]
    assert failures_without_change(names, project, tmp_path) == ["tests/test_sums.py::test_wrong"]


def test_the_command_draws_changes_runs_their_tests_and_fails_for_survivors(project, monkeypatch, capsys):
    site = next(site for site in sites(SOURCE) if site.kind == "arithmetic")
    noticed, survivor = (Drawn("sums.py", one, "", str(one)) for one in (site, Site("same", 2, "total", 0, 0, "0\n")))
    monkeypatch.setattr(command, "ROOT", project)
    monkeypatch.setattr(command, "RESULTS", project / "results.jsonl")
    monkeypatch.setattr(command, "draw", lambda *_: [noticed, survivor])
    monkeypatch.setattr(command, "read_argued", dict)
    monkeypatch.setattr(CoverageMap, "update", lambda self, only: None)
    monkeypatch.setattr(Selection, "stages", lambda self, *_: ((("tests/test_sums.py",),), 1.0))
    run = lambda *arguments, **options: run_mutants(*arguments, **options, root=project)  # noqa: E731
    monkeypatch.setattr(command, "run_mutants", run)
    assert command.main(["--draw", "2", "--seed", "5"]) == 1
    out = capsys.readouterr().out
    assert "2 places, drawn with seed 5" in out
    assert "by tests/test_sums.py::test_total" in out
    assert "1 of 2 noticed (50%)" in out


def test_the_nearest_test_files_have_the_fewest_imports_in_between():
    selection = Selection(CoverageMap(ROOT / "build" / "no-map.json", ROOT), ROOT, 1.0)
    near = selection.nearest("mpi_opt/coordinator/trials/trial_queue.py", 4)
    assert "tests/mpi_opt/test_trial_queue.py" in near  # it imports the module, as few others do
    assert len(near) == 4
