"""A training that continues on other ranks from the last epoch that one of them keeps in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mpi_learn.training.train
from mpi_learn import train
from mpi_learn.errors import TrainingError
from mpi_learn.testing.thread_ranks import run_ranks
from mpi_learn.training.checkpoints.checkpoint_file import KeptEpoch
from tests.mpi_learn.test_shards import NoisyModel, configured, dataset

EPOCHS = 4
OPTIMIZER = {"name": "adam", "learning_rate": 0.01, "schedule": {"name": "plateau", "metric": "loss", "patience": 1}}


class Interrupted(Exception):
    pass


@pytest.fixture
def trained(monkeypatch):
    """Trains on ranks that keep their epochs in `kept`, until the epoch `until` has ended; returns result and model.

    If a rank fails then, that epoch is lost. If the training leaves, it is kept.
    """

    def run(kept, until=None, *, leaves=False, **changes):
        models = {}
        monkeypatch.setattr(
            mpi_learn.training.train,
            "build_model",
            lambda context: models.setdefault(context.comm.rank, NoisyModel(context.comm.rank)),
        )
        seen = []

        def on_rank(comm):
            def on_epoch(epoch, metrics):
                if comm.rank == 0:
                    seen.append(epoch)
                kept[comm.rank].is_left = leaves and epoch == until
                if epoch == until and not leaves:
                    raise Interrupted

            settings = configured(epochs=EPOCHS, optimizer=OPTIMIZER, **changes)
            try:
                return train(settings, comm, data=dataset(), on_epoch=on_epoch, kept=kept[comm.rank])
            except TrainingError:
                assert until is not None
                return None

        results = run_ranks(len(kept), on_rank)
        return results[0], models[0], seen

    return run


def fresh(n):
    return [KeptEpoch() for _ in range(n)]


@pytest.mark.parametrize("n_then", [1, 2, 5])
def test_a_training_continues_on_other_ranks_as_if_it_had_not_been_interrupted(trained, n_then):
    calm, model, _ = trained(fresh(1))
    kept = fresh(3)
    assert trained(kept, until=2)[2] == [0, 1, 2]
    assert [one.n_epochs for one in kept] == [2, 2, 2]
    # only one of the ranks was there before
    continued, other, seen = trained([*fresh(n_then - 1), kept[2]])
    assert seen == [2, 3]
    assert continued.history["loss"] == pytest.approx(calm.history["loss"], rel=1e-6)
    assert other.weights == pytest.approx(model.weights, rel=1e-6)
    assert (other.statistic, other.counter) == (pytest.approx(model.statistic, rel=1e-6), model.counter)
    assert continued.epochs == EPOCHS


def test_the_newest_epoch_continues(trained):
    older, newer = fresh(2), fresh(2)
    trained(older, until=1)
    trained(newer, until=3)
    assert trained([older[0], newer[1]])[2] == [3]


def test_a_kept_epoch_does_not_change_when_the_training_goes_on(trained):
    kept = fresh(1)
    trained(kept, until=2)
    before = {name: array.copy() for name, array in kept[0].saved.arrays.items()}
    history = {name: list(values) for name, values in kept[0].history.items()}
    saved = kept[0].saved
    trained(kept)
    assert saved is not kept[0].saved
    for name, array in before.items():
        assert np.array_equal(saved.arrays[name], array), name
    assert saved.metadata["history"] == history


def test_a_training_whose_last_epoch_is_kept_trains_nothing_more(trained):
    kept = fresh(2)
    whole, _, _ = trained(kept)
    again, _, seen = trained([kept[0]])
    assert seen == []
    assert again.history == whole.history


def test_a_kept_epoch_is_newer_than_the_checkpoint_in_a_file(trained, tmp_path):
    kept, checkpoint = fresh(2), {"path": str(tmp_path), "every": 2}
    trained(kept, until=3, checkpoint=checkpoint)
    assert trained(fresh(1), checkpoint=checkpoint)[2] == [2, 3]
    assert trained([kept[1]], checkpoint=checkpoint)[2] == [3]


@pytest.mark.parametrize("is_own_checkpoint", [False, True])
def test_a_kept_epoch_knows_the_epochs_of_the_training_with_which_its_own_began(trained, tmp_path, is_own_checkpoint):
    """As a trial that resumes from another one, and whose ranks are lost once or twice."""
    own = {"path": str(tmp_path / "own"), "start_from": str(tmp_path / "first"), "every": 1}
    trained(fresh(1), until=2, checkpoint={"path": str(tmp_path / "first"), "every": 1})
    kept = fresh(2)
    assert trained(kept, until=3, checkpoint=own)[2] == [2, 3]
    assert (kept[0].began, kept[0].n_epochs) == (2, 3)
    later = fresh(1) if is_own_checkpoint else [kept[1]]
    assert trained(later, checkpoint=own)[2] == [3]
    assert (later[0].began, later[0].n_epochs) == (2, 4)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    widths=st.lists(st.integers(1, 5), min_size=EPOCHS, max_size=EPOCHS),
    first=st.integers(0, 4),
)
def test_a_training_may_have_another_number_of_ranks_in_each_epoch(trained, widths, first):
    """Ranks join and leave after each epoch; of the ranks that continue, at least one has the last epoch."""
    calm, model, _ = trained(fresh(1))
    kept, epochs = fresh(widths[0]), []
    for until, width in enumerate(widths):
        kept = [kept[first % len(kept)], *fresh(width - 1)]
        result, other, seen = trained(kept, until, leaves=True)
        assert (result.stopped_by == "left") == (until + 1 < EPOCHS)
        epochs += seen
    assert epochs == list(range(EPOCHS))
    assert (result.stopped_by, result.epochs) == (calm.stopped_by, EPOCHS)
    assert {name: pytest.approx(column, rel=1e-5) for name, column in calm.history.items()} == result.history
    assert other.weights == pytest.approx(model.weights, rel=1e-5)
    assert other.statistic == pytest.approx(model.statistic, rel=1e-5)


@pytest.mark.parametrize("name", ["has_custom_loss", "divides_by_weights", "synchronizes_statistics"])
def test_a_model_that_may_be_refused_on_several_ranks_gets_no_more_than_one(trained, monkeypatch, name):
    monkeypatch.setattr(NoisyModel, name, True)
    alone, together = fresh(1), fresh(2)
    trained(alone)
    trained(together)
    assert alone[0].is_bound
    assert not together[0].is_bound, "it was checked"
