"""Default names of studies, and whether an objective of Python is the one that a study was made with."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from mpi_opt import Real, search
from mpi_opt.configuration.definition import Definition
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.study import user_code
from mpi_opt.study.study import Study

SPACE = {"x": Real(-5, 10)}

SCRIPT = """
from mpi_opt import Real, search

calls = 0

def objective(trial):
    global calls
    calls += 1
    return (trial.parameters["x"] - SHIFT) ** 2 + OFFSET

study = search(objective, space={"x": Real(-5, 10)}, trials=6, strategy="random", OPTIONS)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory; as if each search ran in a process of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(user_code, "_BOUND", {})
    return tmp_path


def write(path: Path, *, shift: int, offset: int = 0, options: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    text = SCRIPT.replace("SHIFT", str(shift)).replace("OFFSET", str(offset)).replace("OPTIONS", options)
    path.write_text(text)
    return path


def run(script: Path) -> tuple[Study, int]:
    """Runs a script as in a process of its own; returns its study and how often it has called its objective."""
    user_code._BOUND.clear()
    found = runpy.run_path(str(script), run_name="__main__")
    return found["study"], found["calls"]


def test_two_scripts_of_one_folder_have_two_studies_in_one_store(folder, capsys):
    """Both functions have the same name."""
    first, n_first = run(write(folder / "valley.py", shift=2))
    second, n_second = run(write(folder / "hill.py", shift=-4, offset=100))
    assert (n_first, n_second) == (6, 6)
    assert (first.name, second.name) == ("valley", "hill")
    assert second.best.figure_of_merit >= 100
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("study ")]
    store = f"sqlite:///{folder}/mpi_opt.db"
    assert [line.split(" will run")[0] for line in lines] == [
        f"study valley in {store}: new, 6 trials",
        f"study hill in {store}: new, 6 trials",
    ]
    assert [study.name for study in Store.open("mpi_opt.db").studies()] == ["valley", "hill"]


def test_finished_study_says_that_no_trial_runs(folder, capsys):
    script = write(folder / "valley.py", shift=2)
    run(script)
    capsys.readouterr()
    study, calls = run(script)
    assert (calls, len(study.trials)) == (0, 6)
    line, *_ = capsys.readouterr().err.splitlines()
    assert line == f"study valley in sqlite:///{folder}/mpi_opt.db is finished: 6 trials, none run"
    assert [event.kind for event in study.events()] == ["study_finished"]


def test_store_is_beside_the_script_wherever_it_runs(folder, monkeypatch):
    script = write(folder / "analysis" / "valley.py", shift=2)
    run(script)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert run(script)[1] == 0
    assert (folder / "analysis" / "mpi_opt.db").exists()


NAMED = 'study="one", store="sqlite:///one.db"'


def test_other_script_under_the_same_name_is_refused_and_both_are_named(folder):
    run(write(folder / "valley.py", shift=2, options=NAMED))
    with pytest.raises(ConfigurationError, match="was made with another objective") as refused:
        run(write(folder / "hill.py", shift=-4, options=NAMED))
    assert f"objective of {folder}/valley.py; this is objective of {folder}/hill.py" in str(refused.value)
    assert "resume=True" in refused.value.cure
    assert len(Study.open("one.db", "one").trials) == 6
    assert run(write(folder / "hill.py", shift=-4, options=f"{NAMED}, resume=True"))[1] == 0, "the study is finished"


def test_script_that_is_refused_ends_with_status_2_and_without_a_traceback(folder):
    run(write(folder / "valley.py", shift=2, options=NAMED))
    script = write(folder / "hill.py", shift=-4, options=NAMED)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2, done.stderr
    assert re.match(r"mpi-opt: hill\.py, line \d+: search\(\): objective: the study 'one'", done.stderr), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ('float("nan")', ["ValueError: the figure of merit must be a finite number, not nan"]),
        (
            "1 / 0",
            [
                "ZeroDivisionError: division by zero",
                "Traceback (most recent call last):",
                '  File "{script}", line 5, in objective',
                "    return 1 / 0",
                "           ~~^~~",
                "ZeroDivisionError: division by zero",
            ],
        ),
    ],
)
def test_script_whose_trials_all_fail_ends_with_the_users_lines_alone(folder, result, shown):
    script = folder / "failing.py"
    options = 'space={"x": Real(0, 1)}, trials=3, study="f", store="sqlite:///f.db", progress=False'
    head = "from mpi_opt import Real, search\n\n\ndef objective(trial):\n"
    script.write_text(f"{head}    return {result}\n\n\nsearch(objective, {options})\n")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1, done.stderr
    first, second, *rest = done.stderr.splitlines()
    assert first == "mpi-opt: the first 3 trials all failed; the last one:"
    assert [second.partition(": ")[2], *rest] == [line.format(script=script) for line in shown]


def test_edited_script_continues_its_study_and_says_that_it_has_changed(folder, capsys):
    run(write(folder / "valley.py", shift=2))
    script = write(folder / "valley.py", shift=3)
    script.write_text(script.read_text().replace("trials=6", "trials=8"))
    study, calls = run(script)
    assert calls == 2
    assert "6 of 8 trials finished before, 2 will run" in capsys.readouterr().err
    assert [event.detail for event in study.events() if event.kind == "code_changed"] == ["valley.py has changed"]


@pytest.mark.parametrize("is_moved", [True, False], ids=["moved", "copied"])
def test_edited_script_continues_its_study_in_a_moved_or_copied_folder(folder, is_moved):
    run(write(folder / "before" / "valley.py", shift=2))
    (shutil.move if is_moved else shutil.copytree)(folder / "before", folder / "after")
    assert run(write(folder / "after" / "valley.py", shift=3))[1] == 0


def test_scripts_with_the_same_function_and_other_constants_are_different(folder):
    text = SCRIPT.replace("SHIFT", "shift").replace("OFFSET", "0").replace("OPTIONS", NAMED)
    for name, shift in (("valley", 2), ("hill", -4)):
        (folder / f"{name}.py").write_text(f"shift = {shift}\n{text}")
    run(folder / "valley.py")
    with pytest.raises(ConfigurationError, match="was made with another objective"):
        run(folder / "hill.py")


TWICE = """
from mpi_opt import Real, search
FIRST
search(first, space={"x": Real(-5, 10)}, trials=2, strategy="random")
SECOND
search(second, space={"x": Real(-5, 10)}, trials=2, strategy="random")
"""

TWO_OBJECTIVES = {
    "two functions": ("def first(trial): return 1.0", "def second(trial): return 2.0"),
    "two lambdas": ("first = lambda trial: 1.0", "second = lambda trial: 2.0"),
    "one name": ("def f(trial): return 1.0\nfirst = f", "def f(trial): return 2.0\nsecond = f"),
    "closures": (
        "def make(value):\n    return lambda trial: value\nfirst = make(1.0)",
        "second = make(2.0)",
    ),
    "partials": (
        "from functools import partial\ndef f(trial, value): return value\nfirst = partial(f, value=1.0)",
        "second = partial(f, value=2.0)",
    ),
    "default arguments": ("first = lambda trial, value=1.0: value", "second = lambda trial, value=2.0: value"),
    "methods": ("class One:\n    def __call__(self, trial): return 1.0\nfirst = One()",
                "class One:\n    def __call__(self, trial): return 2.0\nsecond = One()"),
}  # fmt: skip


@pytest.mark.parametrize("both", TWO_OBJECTIVES.values(), ids=TWO_OBJECTIVES)
def test_second_objective_of_a_script_does_not_get_the_result_of_the_first(folder, both):
    (folder / "both.py").write_text(TWICE.replace("FIRST", both[0]).replace("SECOND", both[1]))
    with pytest.raises(ConfigurationError, match=r"was (made|created) with (the|another) objective"):
        runpy.run_path(str(folder / "both.py"), run_name="__main__")


def test_lambda_that_was_edited_is_the_same(folder):
    text = TWICE.partition("SECOND")[0].replace("FIRST", "first = lambda trial: 1.0")
    (folder / "one.py").write_text(text)
    runpy.run_path(str(folder / "one.py"), run_name="__main__")
    user_code._BOUND.clear()
    (folder / "one.py").write_text(text.replace("1.0", "3.0").replace("trials=2", "trials=3"))
    found = runpy.run_path(str(folder / "one.py"), run_name="__main__")
    assert found["first"](None) == 3.0
    assert [trial.figure_of_merit for trial in Study.open("mpi_opt.db", "one").trials] == [1.0, 1.0, 3.0]


def test_partial_with_another_value_in_the_next_process_is_the_same(folder):
    """The value may be the number of a batch job, whose repetition must continue the study."""
    for job in (11, 12):
        user_code._BOUND.clear()
        study = search(
            partial(with_job, job=job), space=SPACE, trials=job - 9, strategy="random", study="one", store="one.db"
        )
    assert len(study.trials) == 3


def with_job(trial, job):
    return float(job)


class Notebook:
    """An interactive session: a module ``__main__`` without a file."""

    def __init__(self, monkeypatch):
        self.module = ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", self.module)

    def run(self, cell):
        exec(compile(cell, "<cell>", "exec"), vars(self.module))


@pytest.fixture
def notebook(monkeypatch):
    return Notebook(monkeypatch)


CELL = "def objective(trial):\n    return helper(trial) + WIDTH"
SEARCH = """
from mpi_opt import Real, search
study = search(objective, space={"x": Real(-5, 10)}, trials=TRIALS, strategy="random")
"""


def test_study_of_a_notebook_has_the_name_of_the_function(folder, notebook):
    notebook.run("WIDTH = 1\ndef helper(trial): return 1.0\n" + CELL + SEARCH.replace("TRIALS", "2"))
    assert notebook.module.study.name == "objective"
    assert (folder / "mpi_opt.db").exists()
    notebook.run(CELL + "  # the same" + SEARCH.replace("TRIALS", "3"))
    assert len(notebook.module.study.trials) == 3


@pytest.mark.parametrize(
    "edited", [CELL + " * 2", "WIDTH = 2", "def helper(trial): return 2.0"], ids=["function", "constant", "helper"]
)
def test_edited_cell_of_a_notebook_continues_a_study_only_if_asked_to(notebook, edited):
    """Nothing tells an edited function from that of another notebook in the same folder."""
    notebook.run("WIDTH = 1\ndef helper(trial): return 1.0\n" + CELL + SEARCH.replace("TRIALS", "2"))
    notebook.run(edited)
    with pytest.raises(ConfigurationError, match="of an interactive session, but another one"):
        notebook.run(SEARCH.replace("TRIALS", "3"))
    notebook.run(SEARCH.replace("TRIALS", "3, resume=True"))
    assert [trial.code for trial in notebook.module.study.trials] == [1, 1, 2]
    assert [one.detail for one in notebook.module.study.events() if one.kind == "code_changed"] == [
        "objective has changed"
    ]
    notebook.run(SEARCH.replace("TRIALS", "4"))
    assert len(notebook.module.study.trials) == 4


def test_constants_in_a_set_do_not_depend_on_the_process(folder):
    (folder / "one.py").write_text("def f(trial):\n    return float(trial.parameters['x'] in {'a', 'b', 'c', 'd'})\n")
    program = "import one; from mpi_opt.configuration.definition import Definition as D; print(D.of(one.f).digest)"
    path = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
    seeds = [os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path} for seed in ("1", "2")]
    found = {subprocess.check_output([sys.executable, "-c", program], env=one, text=True) for one in seeds}
    assert len(found) == 1


def test_definition_of_a_decorated_function_is_that_of_the_user():
    assert Definition.of(with_job).is_in_file(Definition.of(with_job).digest)
    assert not Definition.of(with_job).is_in_file(Definition.of(write).digest[::-1])


@pytest.mark.parametrize("content", [None, b"def job(:\n", b"a\0b"], ids=["no file", "no Python", "no text"])
def test_a_file_that_cannot_be_read_or_compiled_has_no_function(tmp_path, content):
    path = tmp_path / "own.py"
    if content is not None:
        path.write_bytes(content)
    one = Definition.of(write)
    assert not replace(one, file=str(path)).is_in_file(one.digest)
