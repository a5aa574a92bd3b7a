"""Checkpoints of trials: each study has its own, and those that no later trial resumes from are removed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mpi_learn
from mpi_learn.training.result import Result
from mpi_opt.api import run_study
from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.read_study import read_study
from mpi_opt.core.search_space.space import Real, Space
from mpi_opt.core.trial import Failed
from mpi_opt.objectives.make_objective import make_objective
from mpi_opt.strategies import make_strategy
from mpi_opt.study.study import Study

SPACE = Space({"x": Real(0, 1)})
CASES = [
    ("halving", {"max_budget": 16, "min_budget": 1, "factor": 2, "proposer": "random"}),
    ("halving", {"max_budget": 9, "min_budget": 1, "factor": 3, "proposer": "random", "brackets": 3}),
    ("halving", {"max_budget": 8, "min_budget": 1, "factor": 2, "proposer": "random", "reproducible": True}),
    ("population", {"population": 5, "max_budget": 6}),
    ("population", {"population": 4}),
    ("population", {"population": 5, "max_budget": 6, "reproducible": True}),
    ("random", {}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("n_blocks", [1, 3, 8])
def test_every_checkpoint_that_a_trial_resumes_from_is_still_there(name, options, n_blocks):
    """Trials of random length, of which some fail, blocks that are added, and a search that is started again."""
    rng = np.random.default_rng(3)
    strategy = make_strategy(name, SPACE, seed=1, options=options)
    kept, running, told, n_largest = set(), [], [], 0
    for step in range(300):
        if step % 60 == 59:  # the strategy of the next search gets the outcomes
            strategy = make_strategy(name, SPACE, seed=1, options=options)
            strategy.resume(told, running)
            kept.difference_update(strategy.obsolete())
        n_free = (n_blocks if step < 150 else 2 * n_blocks + 5) - len(running)
        running += strategy.ask(n_free)
        if not running:
            break
        for proposal in running:
            assert proposal.resume_from is None or proposal.resume_from in kept
        proposal = running.pop(int(rng.integers(len(running))))
        outcome = Failed("no") if rng.random() < 0.1 else float(rng.random())
        if proposal.budget is not None:
            kept.add(proposal.number)
        strategy.tell(proposal, outcome)
        told.append((proposal, outcome))
        obsolete = strategy.obsolete()
        assert len(obsolete) == len(set(obsolete))
        kept.difference_update(obsolete)
        n_largest = max(n_largest, len(kept))
    assert len(told) > 20
    if name == "halving" and "reproducible" not in options:  # which receives outcomes later
        assert kept.isdisjoint(proposal.number for proposal, outcome in told if isinstance(outcome, Failed))
    assert len(kept) < 0.8 * len(told)
    if name == "random":
        assert not n_largest


@pytest.fixture
def study_file(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "data.npz", X=np.zeros((100, 2), np.float32), y=np.arange(100) % 2)
    (tmp_path / "model.py").write_text("def build(x):\n    raise AssertionError\n")
    (tmp_path / "space.yaml").write_text("""
study: test
store: sqlite:///test.db
space: {x: {type: real, low: 0.0, high: 1.0}}
search: {strategy: halving, trials: 20, seed: 1, options: {min_budget: 1, max_budget: 4, factor: 2, proposer: random}}
training:
  model: model.py:build
  data: {train: [data.npz], validation_fraction: 0.2, features: X, labels: y}
  loss: sparse_categorical_crossentropy
  epochs: 4
""")
    return tmp_path / "space.yaml"


@pytest.fixture
def trained(monkeypatch) -> list[tuple[Path, Path | None]]:
    """Replaces trainings by ones that do nothing but write a checkpoint; lists where, and what they resume from."""
    seen = []

    def train(configuration, comm, *, data, on_epoch, **_):
        section = configuration.checkpoint
        assert not (section.path / "checkpoint.npz").exists(), "another training was there before"
        if section.start_from is not None:
            assert (section.start_from / "checkpoint.npz").exists()
        section.path.mkdir(parents=True)
        (section.path / "checkpoint.npz").write_text("weights")
        seen.append((section.path, section.start_from))
        x = configuration.parameters["x"]
        return Result({"val_loss": [x]}, {}, 1.0, 1.0, 1, "epochs", None, None, None, None, None)

    monkeypatch.setattr(mpi_learn, "train", train, raising=False)
    monkeypatch.setattr(mpi_learn, "rehearse", lambda *arguments, **options: (), raising=False)
    return seen


def search(path: Path, **overrides) -> Study:
    configuration = read_study(path, overrides)
    directory = path.resolve().parent
    return run_study(Plan(configuration, directory, make_objective(configuration, directory)), None)


def folders(path: Path) -> set[str]:
    return {one.parent.parent.name for one in path.rglob("checkpoint.npz")}


def test_a_fresh_store_does_not_resume_the_trainings_of_an_older_study(study_file, trained, tmp_path):
    search(study_file)
    n_before = len(trained)
    (tmp_path / "test.db").unlink()
    search(study_file)
    search(study_file, study="other")
    search(study_file, **{"store": "sqlite:///other.db", "search.seed": 2})
    assert len(trained) == 4 * n_before
    assert len({path for path, _ in trained}) == 4 * n_before


def test_checkpoints_that_no_trial_resumes_from_are_removed(study_file, trained, tmp_path):
    study = search(study_file)
    resumed = {trial.resume_from for trial in study.trials} - {None}
    assert resumed
    left = folders(tmp_path / "test.checkpoints")
    assert left.isdisjoint(f"trial-{number:05d}" for number in resumed)
    assert left.isdisjoint(f"trial-{trial.number:05d}" for trial in study.trials if trial.budget == 4)
    first = next(path for path in (tmp_path / "test.checkpoints").rglob("trial-*"))
    (leftover := first.with_name(f"trial-{min(resumed):05d}")).mkdir()  # the search was killed before it was removed
    more = search(study_file, **{"search.trials": 30})  # resumes from some that are left
    assert {trial.resume_from for trial in more.trials[20:]} & {int(name[6:]) for name in left}
    assert not leftover.exists()


def test_checkpoints_in_a_folder_of_the_users_stay(study_file, trained, tmp_path):
    search(study_file, **{"training.checkpoint": {"path": "mine"}})
    assert len(folders(tmp_path / "mine")) == 20
