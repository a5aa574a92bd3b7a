"""Every example of the documentation runs, or passes the checks of the programs."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import typer

from mpi_learn.cli.commands import app as mpi_learn_app
from mpi_learn.settings.yaml_file import parsed
from mpi_learn.training.configuration import TrainingConfiguration, read_configuration
from mpi_opt.cli.main import _app as mpi_opt_app
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.read_study import read_study
from mpi_opt.store import Store
from mpi_opt.strategies import make_strategy
from tests.docs.pages import CONTINUES, ROOT, Example, examples, write_files
from tests.docs.running import run_here
from tests.mpirun import run as run_process
from tests.optional_packages import needs
from tests.shared_data import ATLAS, needs_shared

APPS = {"mpi_opt": mpi_opt_app(), "mpi_learn": mpi_learn_app}
OUTSIDE = {"sbatch", "export", "pytest"}
A_TRAINING = {
    "model": "model.py:build_model",
    "data": {"train": ["digits.h5"], "validation_fraction": 0.2, "features": "X", "labels": "y"},
    "loss": "sparse_categorical_crossentropy",
}
WITH_TOTAL = A_TRAINING | {"batch_size": {"total": 64}}  # as elastic blocks need
A_STUDY = {"space": {"units": {"type": "integer", "low": 1, "high": 9}}, "training": WITH_TOTAL}


def _ids(example: Example) -> str:
    return str(example)


@pytest.mark.parametrize("example", examples("yaml"), ids=_ids)
def test_yaml_example_is_valid(example):
    content = parsed(example.code)
    if example.title:
        read_study(content) if "space" in content else read_configuration(content)
        return
    study = set(content) & set(StudyConfiguration.model_fields)
    training = set(content) & set(TrainingConfiguration.model_fields)
    assert study | training == set(content), "a key of neither file"
    read_configuration(A_TRAINING | {key: content[key] for key in training})
    checked = read_study(A_STUDY | {key: content[key] for key in study})
    make_strategy(checked.search.strategy, checked.search_space(), options=checked.search.options)


@pytest.mark.parametrize("example", examples("bash"), ids=_ids)
def test_commands_have_these_options(example):
    for words in example.commands():
        _check_command(words, example.page)


def _check_command(words: list[str], page: str) -> None:
    words = words[: words.index(">")] if ">" in words else words
    if words[0] == "mpirun":
        words = words[next(i for i, word in enumerate(words) if word == "python") :]
    if words[:2] == ["python", "-m"]:
        words = words[2:]
    program = words[0].replace("-", "_")
    if program in APPS:
        _parse(APPS[program], words[1:])
    elif program == "pip":
        _check_extras(words)
    elif program == "python":
        titles = [example.title for name in (page, CONTINUES.get(page)) for example in examples(page=name)]
        assert words[1] in titles, f"{words[1]} is no file of this page"
    else:
        assert program in OUTSIDE, words


def _parse(app: typer.Typer, arguments: list[str]) -> None:
    """Raises the program's error for a wrong option or value; runs nothing."""
    group = typer.main.get_command(app)
    group.commands[arguments[0]].make_context(arguments[0], list(arguments[1:]))


def _check_extras(words: list[str]) -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = re.findall(r"\[(.+?)\]", " ".join(words))
    assert named
    for extra in ",".join(named).split(","):
        assert extra in setup["options.extras_require"]


RUN_AT_ONCE = [
    one for one in examples("python") if one.title in ("branin.py", "long.py") or one.page == "coming-from.md"
]


@pytest.mark.parametrize("example", RUN_AT_ONCE, ids=_ids)
def test_python_example_runs(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(example.code, str(example), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_every_python_example_is_python():
    for example in examples("python"):
        compile(example.code, str(example), "exec")


@pytest.fixture(scope="module")
def small_study(tmp_path_factory):
    """The study of the SQL page."""
    folder = tmp_path_factory.mktemp("sql")
    write_files(folder, "sql.md")
    with contextlib.chdir(folder):
        runpy.run_path("make_study.py")
    return folder


@pytest.mark.parametrize("example", examples("sql"), ids=_ids)
def test_query_runs_on_a_study(example, small_study):
    with Store.open(f"sqlite:///{small_study}/digits.db", read_only=True) as store:
        columns, rows = store.sql(example.code)
    assert columns
    if "attempts > 1" not in example.code and "FROM events" not in example.code:
        assert rows


def test_python_of_the_store_page_reads_the_study(small_study, monkeypatch, capsys):
    monkeypatch.chdir(small_study)
    example = next(one for one in examples("python", page="store.md"))
    exec(compile(example.code, str(example), "exec"), {"__name__": "__main__"})
    assert " folds, 25 attempts," in capsys.readouterr().out


def test_store_page_names_every_column():
    from mpi_opt.store.schema import metadata

    page = (ROOT / "docs/store.md").read_text()
    for table in metadata.sorted_tables:
        shown = [column.name for column in table.columns if (table.name, column.name) != ("events", "id")]
        section = page.split(f"### `{table.name}`")[1].split("\n## ")[0].split("\n### ")[0]
        assert [name for name in shown if f"`{name}`" not in section] == [], table.name


thorough = pytest.mark.thorough  # pages that train several models; test_readme runs the commands of index.md
TUTORIAL = pytest.param("tutorial.md", marks=[needs("matplotlib", "pandas"), thorough])
MODELS = pytest.param("models.md", marks=[needs("torch"), thorough])
FUNCTIONS = pytest.param("functions.md", marks=thorough)
INDEX = pytest.param("index.md", marks=thorough)
PAGES = [TUTORIAL, MODELS, FUNCTIONS, INDEX, "workload-systems.md"]


def runnable(page: str) -> list[Example]:
    """The commands and scripts of a page, in order."""
    left_out = ("pip install", "atlas")
    found = [one for one in examples("bash", "python", page=page) if not one.title]
    return [one for one in found if not any(words in one.code for words in left_out)]


@pytest.mark.mpi
@pytest.mark.parametrize("page", PAGES)
def test_page_runs_from_top_to_bottom(page, tmp_path):
    write_files(tmp_path, page)
    for example in runnable(page):
        run_here(example, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES)
def test_page_runs_from_top_to_bottom_as_typed(page, tmp_path):
    write_files(tmp_path, page)
    for example in runnable(page):
        ended = (_python if example.language == "python" else _bash)(example.code, tmp_path)
        assert ended.returncode == 0, f"{example}\n{ended.stdout}\n{ended.stderr}"


@needs_shared
@pytest.mark.thorough
def test_higgs_examples_run(tmp_path):
    (tmp_path / "atlas-higgs-challenge-2014-v2.csv.gz").symlink_to(ATLAS)
    for page in ("tutorial.md", "figure-of-merit.md"):
        write_files(tmp_path, page)
        for example in examples("bash", page=page):
            if "atlas" in example.code or page == "figure-of-merit.md":
                ended = _bash(example.code, tmp_path)
                assert ended.returncode == 0, f"{example}\n{ended.stdout}\n{ended.stderr}"


def _bash(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return run_process(["bash", "-euo", "pipefail", "-c", code], timeout=280, cwd=folder, env={"PATH": path})


def _python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_process([sys.executable, "-c", code], timeout=120, cwd=folder)
