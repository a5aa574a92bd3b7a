"""The folds of a trial continue on another number of ranks, one after the other or at the same time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import mpi_learn.training.train
from mpi_learn import read_configuration
from mpi_learn.testing.thread_ranks import run_ranks
from mpi_opt.core.objective import TrialSettings
from mpi_opt.core.trial import Proposal, Reporter
from mpi_opt.messages.messages import Assignment
from mpi_opt.objectives.training_objective import TrainingObjective
from mpi_opt.worker.block import Block
from tests.mpi_learn.test_shards import NoisyModel, dataset
from tests.mpi_opt.test_block import NoWatchdog

FOLDS, EPOCHS, TOTAL = 3, 3, 10
TRAINING = {
    "model": "m.py:f",
    "loss": "mse",
    "epochs": EPOCHS,
    "optimizer": {"name": "adam", "learning_rate": 0.01},
    "data": {"train": "a.npz", "features": "x", "labels": "y"},
    "batch_size": {"total": TOTAL, "shards": 5},
}
SETTINGS = TrialSettings(7, FOLDS, is_elastic=True)


class Leaving(Reporter):
    """Lets each fold leave after `stay` epochs, and records the progress."""

    def __init__(self, stay: int, heard: list[float]) -> None:
        self.stay, self.heard, self.n_epochs = stay, heard, 0

    def report(self, number, fold, step, value):
        pass

    def progress(self, number, done, total, most_ranks, elapsed_s):
        assert (total, most_ranks) == (EPOCHS, 5 * FOLDS)
        self.heard.append(done)

    def is_stopped(self, number):
        return False

    def must_leave(self, number):
        self.n_epochs += 1
        return self.n_epochs >= self.stay


@pytest.fixture
def attempt(monkeypatch):
    """Runs an attempt of a trial on ranks with these objectives, each fold for `stay` epochs."""
    monkeypatch.setattr("mpi_opt.worker.block.communicators.split", lambda comm, color, key: comm.Split(color, key))
    monkeypatch.setattr(
        mpi_learn.training.train, "build_model", lambda context: NoisyModel(context.comm.rank), raising=False
    )

    def run(objectives, stay):
        """The outcome, the numbers of epochs that the ranks have counted, and the progress."""
        heard: list[float] = []
        reporters = [Leaving(stay, heard) for _ in objectives]

        def on_rank(comm):
            one, reporter = objectives[comm.rank], reporters[comm.rank]
            block = Block(comm, 0, one, SETTINGS, reporter=reporter, watchdog=NoWatchdog())
            return block.run(Assignment(Proposal(0, {})))

        outcome = run_ranks(len(objectives), on_rank, timeout_s=60)[0]
        assert outcome.state in ("complete", "queued"), outcome.error
        return outcome, sum(one.n_epochs for one in reporters), heard

    return run


def fresh(n: int) -> list[TrainingObjective]:
    made = []
    for _ in range(n):
        one = TrainingObjective(TRAINING, "loss", Path(), n_folds=FOLDS, is_elastic=True)
        data = dataset()
        one._loaded = lambda configuration, comm, data=data: data
        one.configuration = lambda parameters, changes=None: read_configuration(
            TRAINING | (changes or {}), is_fold=True
        )
        made.append(one)
    return made


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(0, 6)), min_size=1, max_size=6),
)
@example([(5, 1, 0), (2, 1, 4), (1, 1, 1)])  # the last rank was not there when later folds had their first epochs
def test_folds_on_any_numbers_of_ranks_end_alike_and_train_no_epoch_twice(attempt, schedule):
    """Of the ranks of each attempt, at least one was there before."""
    calm, n_calm, _ = attempt(fresh(1), 100)
    assert n_calm == FOLDS * EPOCHS
    ranks, n_epochs, outcome = fresh(1), 0, None
    for width, stay, kept in [*schedule, (2, 100, 0)]:
        first = kept % len(ranks)
        survivors = ranks[first : first + width]
        ranks = survivors + fresh(width - len(survivors))
        outcome, n_new, _ = attempt(ranks, stay)
        n_epochs += n_new
        if outcome.state == "complete":
            break
    assert n_epochs == n_calm
    for one, other in zip(outcome.folds, calm.folds, strict=True):
        assert one.figure_of_merit == pytest.approx(other.figure_of_merit, rel=1e-5)
        assert one.history["loss"] == pytest.approx(other.history["loss"], rel=1e-5)


def test_the_fold_with_the_most_epochs_left_tells_how_much_of_the_trial_is_done(attempt):
    ranks = fresh(1)
    _, _, heard = attempt(ranks, 4)
    assert heard == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3]), "in turn, in epochs of all folds"
    # at the same time: the first fold is complete, the second one has an epoch, the third one begins
    assert attempt([*fresh(2), ranks[0]], 1)[2] == [1]


def test_the_time_in_which_ranks_share_epochs_is_a_part_of_the_attempt(attempt, monkeypatch):
    """It is a cost of the change of ranks."""
    clock, late_s, elapsed_s = time.perf_counter, [], []

    def share(self, comm, study, number):
        late_s.append(1000.0)
        comm.allgather(0)  # each rank goes on after all have added their time

    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(late_s))
    monkeypatch.setattr(TrainingObjective, "share", share)
    monkeypatch.setattr(Leaving, "progress", lambda self, *progress: elapsed_s.append(progress[-1]))
    attempt(fresh(FOLDS), 1)
    assert min(elapsed_s) >= 1000.0
