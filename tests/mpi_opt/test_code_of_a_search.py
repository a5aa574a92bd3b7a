"""The user's code in a search: fixed at its start, and recorded in the store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from mpi_opt.coordinator import code_watch
from mpi_opt.store import Store
from tests.in_process import in_process
from tests.world import in_world

OBJECTIVE = """
import layers

def objective(trial):
    import late
    return layers.VALUE + late.VALUE
"""

STRATEGY = '''
from pathlib import Path
from mpi_opt.strategies.random_search import RandomSearch

class Editing(RandomSearch):
    """Damages all files of the objective before the first worker has read one."""

    def __init__(self, space, seed=0, options=None):
        super().__init__(space, seed, options)
        for name in ("objective.py", "layers.py", "late.py", "used_by_strategy.py"):
            Path(name).write_text("no Python (")

    def ask(self, count):
        import used_by_strategy
        return super().ask(count)
'''

STUDY = {
    "study": "one",
    "store": "sqlite:///one.db",
    "objective": "objective.py:objective",
    "space": {"x": {"type": "real", "low": 0.0, "high": 1.0}},
    "search": {"strategy": "random", "trials": 3, "seed": 5},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("layers", "late", "used_by_strategy"):
        sys.modules.pop(name, None)
        (tmp_path / f"{name}.py").write_text("VALUE = 1.0")
    (tmp_path / "objective.py").write_text(OBJECTIVE)
    (tmp_path / "strategy.py").write_text(STRATEGY)
    write_study(tmp_path)
    return tmp_path


def write_study(folder: Path, **search: object) -> None:
    (folder / "one.yaml").write_text(yaml.safe_dump(STUDY | {"search": STUDY["search"] | search}))


def figures(study: str = "one") -> list[float | None]:
    with Store.open("one.db", read_only=True) as store:
        return [trial.figure_of_merit for trial in store.trials(store.study(study).id)]


def events(kind: str, study: str = "one") -> list[str]:
    with Store.open("one.db", read_only=True) as store:
        return [event.detail for event in store.events(store.study(study).id) if event.kind == kind]


EDITING = """
import pathlib, time, layers

def objective(trial):
    import late
    if trial.number == 1:
        for name in ("objective", "late"):
            pathlib.Path(f"{name}.py").write_text("no Python (")
        time.sleep(0.3)
    return layers.VALUE + late.VALUE
"""


def test_edit_during_a_search_applies_to_the_next_one_and_is_noted_once(folder, monkeypatch):
    monkeypatch.setattr(code_watch, "INTERVAL_S", 0.05)
    (folder / "objective.py").write_text(EDITING)
    done = in_process("search", "one.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert figures() == [2.0, 2.0, 2.0]
    (note,) = events("code_changed")
    assert f"{folder}/objective.py" in note and f"{folder}/late.py" in note and "layers.py" not in note
    assert note in done.stdout
    (folder / "objective.py").write_text(OBJECTIVE.replace("+ late.VALUE", "+ late.VALUE + 10"))
    (folder / "late.py").write_text("VALUE = 2.0")
    done = in_process("search", "one.yaml", "--study", "two", cwd=folder)
    assert figures("two") == [13.0, 13.0, 13.0], done.stderr


@pytest.mark.mpi
def test_all_ranks_run_the_files_as_rank_0_has_read_them(folder):
    write_study(folder, strategy="strategy.py:Editing")
    done = in_world(3, "-m", "mpi_opt", "search", "one.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert figures() == [2.0, 2.0, 2.0]
