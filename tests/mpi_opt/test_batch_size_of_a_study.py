"""`batch_size: auto` in a search: one number for all trials of a study, which later searches and `best` use."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import yaml
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.testing.thread_ranks import run_ranks
from mpi_learn.training.timing import timed_choices
from mpi_opt import Study
from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.coordinator import Coordinator
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.limits import SearchLimits
from mpi_opt.core.objective import Choice
from mpi_opt.messages.messages import Assignment, Join, Ready
from mpi_opt.objectives.training_objective import TrainingObjective
from mpi_opt.store import Store
from tests.in_process import in_process
from tests.mpi_learn.linear_model import LinearModel
from tests.mpi_opt.fakes import ListedStore, ListedStrategy, ScriptedLink
from tests.mpi_opt.outcomes import an_outcome

SPACE = """
study: lines
store: sqlite:///lines.db
space: {rate: {type: real, low: 0.001, high: 0.1}}
search: {trials: 3, strategy: random, seed: 3, keep: all}
training:
  model: model.py:build
  data: {train: [data.npz], validation_fraction: 0.2, features: X, labels: y}
  loss: mse
  optimizer: {name: adam, learning_rate: $rate}
  batch_size: auto
  epochs: 2
"""
STORE = "sqlite:///lines.db"


class SavableModel(LinearModel):
    def save(self, path):
        np.save(path.with_suffix(".npy"), self.weights)
        return path.with_suffix(".npy")


class MeasuringLink(ScriptedLink):
    """Each block measures another number, unless it has received one. `sent` has the choices of all messages."""

    def __init__(self):
        super().__init__(lambda assignment: an_outcome(assignment.number, "complete", 1.0, None, 1.0))
        self.sent = []

    def send(self, rank, message):
        super().send(rank, message)
        if isinstance(message, Join):
            self.sent.append(("join", message.choice))
            if message.choice is None:
                mine = Choice({"batch_size": 32 * rank}, f"{32 * rank} samples: the best")
                self.waiting = [
                    (to, Ready(one.block, one.hosts, choice=mine) if to == rank else one) for to, one in self.waiting
                ]
        elif isinstance(message, Assignment):
            self.sent.append(("trial", message.choice))


def coordinated(choice=None):
    link, store = MeasuringLink(), ListedStore()
    pool = BlockPool(link, BlockMembership.of(BlockLayout(4, 1)))
    if choice is not None:
        pool.choose(choice)
    Coordinator(pool, ListedStrategy(), store, 1, SearchSettings(SearchLimits(6))).run()
    return link.sent, store


def test_all_blocks_use_the_number_of_the_block_that_is_ready_first():
    sent, store = coordinated()
    first = Choice({"batch_size": 32}, "32 samples: the best")
    assert sent == [("join", None)] * 3 + [("trial", first)] * 6
    assert store.chosen == [{"batch_size": 32}]
    chosen = [at for at, kind in enumerate(store.events) if kind == "batch_size_chosen"]
    assert [store.details[at] for at in chosen] == ["32 samples: the best"]


def test_a_search_with_a_recorded_number_asks_no_block_to_measure():
    recorded = Choice({"batch_size": 96})
    sent, store = coordinated(recorded)
    assert sent == [("join", recorded)] * 3 + [("trial", recorded)] * 6
    assert store.chosen == []
    assert "batch_size_chosen" not in store.events


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A search of linear regressions; `batch_size: auto` measures 48, and says for which learning rates."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).astype(np.float32)
    np.savez(tmp_path / "data.npz", X=x, y=x @ np.array([1, -2, 0.5], np.float32))
    (tmp_path / "model.py").write_text("def build():\n    raise AssertionError\n")
    (tmp_path / "space.yaml").write_text(SPACE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mpi_learn.training.setup.make_model", lambda *arguments: SavableModel())
    monkeypatch.setattr("mpi_learn.training.train.NAMES", {"numpy": "NumPy"})
    return tmp_path


@pytest.fixture
def measured(monkeypatch):
    calls = []

    def measure(context):
        calls.append(context.configuration.optimizer.learning_rate)
        return 48, "48 samples per worker and step, 1000 samples/s: larger batches are at most 5 % faster"

    monkeypatch.setattr(timed_choices, "_measured", measure)
    return calls


def test_a_block_measures_until_it_has_the_choice_of_the_search(folder, measured):
    """A rank that has measured before may be in a block with ranks that have not: they all measure together."""

    def run(comm):
        objective = TrainingObjective(yaml.safe_load(SPACE)["training"], "val_loss", folder)
        if comm.rank == 0:
            objective.prepare(MPI.COMM_SELF, {"rate": 0.03})
        objective.prepare(comm, {"rate": 0.01})
        own = objective.choice
        objective.choose(Choice({"batch_size": 16}))
        objective.prepare(comm, {"rate": 0.02})
        return own, objective.choice, objective.configuration({"rate": 0.02}).batch_size

    for own, later, of_search in run_ranks(2, run):
        assert own.values == {"batch_size": 48}
        assert (later, of_search) == (None, 16)
    assert sorted(measured) == [0.01, 0.01, 0.03]


@pytest.mark.parametrize("changes", [{"blocks": {"size": "measured"}}, {"blocks": {"elastic": True}}])
def test_numbers_of_ranks_that_vary_are_refused_with_auto(folder, changes):
    (folder / "space.yaml").write_text(yaml.dump(yaml.safe_load(SPACE) | changes))
    done = in_process("search", "space.yaml", cwd=folder)
    assert done.returncode == 2
    assert "write training.batch_size: {total: …}" in done.stderr


def test_a_study_has_one_number_that_best_prints_and_the_next_search_uses(folder, measured):
    first = in_process("search", "space.yaml", cwd=folder)
    assert first.returncode == 0, first.stderr
    assert len(measured) == 1
    assert "batch size chosen: 48 samples per worker and step" in first.stdout
    more = in_process("search", "space.yaml", "--trials", "5", cwd=folder)
    assert more.returncode == 0, more.stderr
    assert len(measured) == 1
    study = Study.open(STORE, "lines")
    assert len(study.trials) == 5
    for number in range(5):
        text = in_process("best", "--store", STORE, "--trial", str(number), cwd=folder).stdout
        content = yaml.safe_load(text)
        assert content["batch_size"] == 48
        again = train(content, MPI.COMM_SELF)
        assert again.history["val_loss"][-1] == study.trials[number].figure_of_merit
    saved = list((folder).glob("**/training.yaml"))
    assert {yaml.safe_load(file.read_text())["batch_size"] for file in saved} == {48}
    assert len(saved) == 5
    with Store.open(STORE, read_only=True) as store:
        (record,) = store.studies()
        assert [event.kind for event in store.events(record.id)].count("batch_size_chosen") == 1


def test_a_study_with_a_chosen_number_is_shown_and_continued_as_any_other(folder, measured):
    assert in_process("search", "space.yaml", cwd=folder).returncode == 0
    Study.open(STORE, "lines").add_trial({"rate": 0.05}, 7.0)
    assert Study.open(STORE, "lines").ask(1) == []  # all trials were run
    report = in_process("report", "--store", STORE, "-o", "report.html", cwd=folder)
    assert report.returncode == 0, report.stderr
    page = (folder / "report.html").read_text()
    assert "batch_size: 48" in page
    assert "chosen:" not in page
    number = SPACE.replace("auto", "48")
    (folder / "other.yaml").write_text(number)
    other = in_process("search", "other.yaml", "--trials", "9", cwd=folder)
    assert other.returncode == 2
    assert "'auto', now 48" in other.stderr


def test_check_names_the_number_that_it_would_measure(folder, measured):
    with patch("mpi_learn.training.train.why_unsavable", lambda model: None):
        checked = in_process("check", "space.yaml", cwd=folder)
    assert checked.returncode == 0, checked.stderr
    assert "batch_size: auto: 48 samples per worker and step" in checked.stdout
