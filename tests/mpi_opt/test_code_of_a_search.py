"""The user's code in a search: fixed at its start, and recorded in the store."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from mpi_learn.settings.validation import validated
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.configuration.plan import Plan
from mpi_opt.coordinator import code_watch
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.trial import Proposal
from mpi_opt.store import Store
from mpi_opt.study import user_code as code_of_study
from mpi_opt.study.study import Study
from mpi_opt.study.user_code import code_record, git_commit
from mpi_opt.views.page.report import report
from tests.in_process import in_process
from tests.mpi_opt.outcomes import an_end, an_outcome
from tests.world import in_world

OBJECTIVE = """
import layers

def objective(trial):
    import late
    return layers.VALUE + late.VALUE
"""

STRATEGY = '''
from pathlib import Path
from mpi_opt.strategies.designs.random_search import RandomSearch

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
    if trial.number:
        for name in ("objective", "late"):
            pathlib.Path(f"{name}.py").write_text("no Python (" * trial.number)
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


def test_study_that_continues_with_changed_code_says_what_changed_and_which_trials_ran_with_it(folder, monkeypatch):
    assert in_process("search", "one.yaml", cwd=folder).returncode == 0
    (folder / "layers.py").write_text("VALUE = 5.0")
    versions = code_of_study.version_of
    monkeypatch.setattr(code_of_study, "version_of", lambda name: "99.1" if name == "numpy" else versions(name))
    done = in_process("search", "one.yaml", "--trials", "5", cwd=folder)
    (detail,) = events("code_changed")
    assert detail.startswith("layers.py has changed; numpy ") and detail.endswith(", now 99.1"), detail
    assert f"it continues with changed code: {detail}" in done.stdout
    assert "3 of 5 trials finished before, 2 will run" in done.stdout
    study = Study.open("one.db", "one")
    assert [trial.code for trial in study.trials] == [1, 1, 1, 2, 2]
    assert [attempt.code for attempt in study.attempts()] == [1, 1, 1, 2, 2]
    assert [code.packages["numpy"] == "99.1" for code in study.codes()] == [False, True]
    assert set(study.codes()[0].files) == {"objective.py", "layers.py", "late.py"}
    shown = in_process("results", "--study", "one", cwd=folder).stdout
    heading, *rows = shown.split("\n\n")[0].splitlines()
    place = heading.split().index("code")
    assert {row.split()[0]: row.split()[place] for row in rows} == {"0": "1", "1": "1", "2": "1", "3": "2", "4": "2"}
    assert "code 2" in shown and "layers.py has changed" in shown
    page = report(study)  # the versions are those of the trials
    assert "numpy 99.1" in page and "layers.py has changed" in page


def test_study_with_one_code_has_no_column_for_it(folder):
    in_process("search", "one.yaml", cwd=folder)
    assert "code" not in in_process("results", "--study", "one", cwd=folder).stdout
    assert [trial.code for trial in Study.open("one.db", "one").trials] == [1, 1, 1]


def test_code_that_a_study_had_before_is_not_a_new_one(folder):
    for n_trials, value in (("3", 1.0), ("4", 5.0), ("5", 1.0), ("6", 1.0)):
        (folder / "layers.py").write_text(f"VALUE = {value}")
        in_process("search", "one.yaml", "--trials", n_trials, cwd=folder)
    assert [trial.code for trial in Study.open("one.db", "one").trials] == [1, 1, 1, 2, 1, 1]
    assert events("code_changed") == ["layers.py has changed"] * 2


def test_moved_folder_is_no_change_of_the_code(folder, monkeypatch):
    in_process("search", "one.yaml", cwd=folder)
    moved = folder.rename(folder.with_name("moved"))
    monkeypatch.chdir(moved)
    for name in ("layers", "late"):  # as in another process
        sys.modules.pop(name, None)
    in_process("search", "one.yaml", "--trials", "4", cwd=moved)
    assert events("code_changed") == []


def test_finished_study_says_so_and_that_its_code_has_changed(folder):
    in_process("search", "one.yaml", cwd=folder)
    (folder / "layers.py").write_text("VALUE = 5.0")
    done = in_process("search", "one.yaml", cwd=folder)
    assert "study one in sqlite:///one.db is finished: 3 trials, none run" in done.stdout
    assert "its trials ran with other code: layers.py has changed" in done.stdout
    assert len(Study.open("one.db", "one").codes()) == 1


DATA = {"train": ["part*.npz"], "features": "X", "labels": "y"}


def test_data_that_were_written_again_are_a_change(folder):
    """Data are compared by size and time, without reading them."""
    plan = STUDY | {"training": {"model": "objective.py:objective", "data": DATA}}
    (folder / "one.yaml").write_text(yaml.safe_dump(plan))
    (folder / "part1.npz").write_bytes(b"1234")
    in_process("search", "one.yaml", cwd=folder)
    (folder / "part2.npz").write_bytes(b"567")
    in_process("search", "one.yaml", "--trials", "4", cwd=folder)
    (detail,) = events("code_changed")
    assert detail.startswith("data part*.npz: 4 bytes of 20") and ", now 7 bytes in 2 files of 20" in detail


def test_trials_of_a_workload_system_have_their_code(folder):
    in_process("ask", "one.yaml", cwd=folder)
    (folder / "layers.py").write_text("VALUE = 5.0")
    in_process("ask", "one.yaml", cwd=folder)
    assert [trial.code for trial in Study.open("one.db", "one").trials] == [1, 2]
    assert events("code_changed") == ["layers.py has changed"]


def test_commit_is_read_without_git(tmp_path):
    commit, other = "a" * 40, "b" * 40
    git, folder = tmp_path / ".git", tmp_path / "analysis"
    (git / "refs/heads").mkdir(parents=True)
    folder.mkdir()
    assert git_commit(folder) is None
    (git / "HEAD").write_text(f"{commit}\n")
    assert git_commit(folder) == commit
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{other} refs/heads/maintenance\n{commit} refs/heads/main\n")
    assert git_commit(folder) == commit
    (git / "refs/heads/main").write_text(f"{other}\n")
    assert git_commit(folder) == other
    worktree = git / "worktrees/one"
    worktree.mkdir(parents=True)
    (worktree / "HEAD").write_text("ref: refs/heads/main\n")
    (worktree / "commondir").write_text("../..\n")
    (folder / ".git").write_text(f"gitdir: {worktree}\n")
    assert git_commit(folder) == other


TRAINING = {
    "model": "model.py:build",
    "data": {"train": ["data.npz"], "validation_fraction": 0.5, "features": "X", "labels": "y"},
    "loss": "mse",
}


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with a study of a training, of which `code_record` has recorded the code, and one trial."""
    (tmp_path / "net.py").write_text("WIDTH = 2")
    (tmp_path / "model.py").write_text("from net import WIDTH\ndef build(units):\n    pass\n")
    np.savez(tmp_path / "data.npz", X=np.zeros((4, 2)), y=np.zeros(4))
    space = {"units": {"type": "integer", "low": 1, "high": 9}}
    content = {"study": "one", "store": "sqlite:///one.db", "space": space, "training": TRAINING}
    with contextlib.chdir(tmp_path):
        plan = Plan(validated(StudyConfiguration, content, "one.yaml"), tmp_path)
        with Store.open("one.db") as store:
            study = store.create_study("one", strategy="random", seed=1, configuration=plan.record, space=plan.space)
            number = code_of_study.use_code(store, study.id, code_record(plan, plan.read_code()))
            store.start(study.id, [Attempt(Proposal(0, {"units": 3}), 1, 0, "1", "host", number)])
            store.finish(study.id, [an_end(an_outcome(0, "complete", 0.5), 1, 0)])
    return tmp_path


def notes_of_best(folder: Path, *options: str) -> str:
    done = in_process("best", *options, "--store", str(folder / "one.db"), cwd=folder)
    assert "changed" not in done.stdout, "the YAML has no note"
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_best_says_which_file_has_changed_since_the_trial_ran(trained):
    assert notes_of_best(trained) == ""
    (trained / "net.py").write_text("WIDTH = 3")
    note = "mpi-opt: since trial 0 ran: net.py has changed; a new training may give another result\n"
    assert notes_of_best(trained) == note
    (trained / "net.py").write_text("WIDTH = 2")
    assert notes_of_best(trained) == ""
    size = (trained / "data.npz").stat().st_size
    np.savez(trained / "data.npz", X=np.ones((8, 2)), y=np.zeros(8))
    assert f"since trial 0 ran: data data.npz: {size:,} bytes of " in notes_of_best(trained)
    (trained / "model.py").unlink()  # not at hand
    (trained / "data.npz").unlink()
    assert notes_of_best(trained) == ""


def test_a_kept_model_depends_on_the_python_files_alone(trained):
    key = Study.open(str(trained / "one.db"), "one").record.unique_name
    ModelFolder(trained / "one.models").of_trial(key, 0).joinpath("fold-0").mkdir(parents=True)
    np.savez(trained / "data.npz", X=np.ones((8, 2)), y=np.zeros(8))
    assert notes_of_best(trained, "--model") == ""
    (trained / "model.py").write_text("def build(units):\n    pass\n")
    assert notes_of_best(trained, "--model") == "mpi-opt: since trial 0 ran: model.py has changed\n"
