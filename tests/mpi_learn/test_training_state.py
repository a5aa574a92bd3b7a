"""Early stopping, targets and the history of a training, without a model."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from mpi_learn.training.sections import EarlyStopping, Target
from mpi_learn.training.state import History, State, Stopping

NAN = math.nan
CASES = {
    "patience": ([5, 4, 6, 7, 3], {"patience": 2}, 3, 1),
    "equal values": ([4, 4, 4, 4], {"patience": 2}, 2, 0),
    "small changes": ([5, 4.9, 4.8, 4.7, 4.6], {"patience": 3, "min_delta": 0.25}, None, 3),
    "changes of min_delta": ([5, 4, 3.5, 3], {"patience": 2, "min_delta": 1.0}, None, 2),
    "larger is better": ([1, 3, 2, 2, 4], {"patience": 2, "mode": "max"}, 3, 1),
    "not a number": ([4, NAN, NAN, 3], {"patience": 2}, 2, 0),
    "epochs without validation": ([4, None, 5, None, 6, 3], {"patience": 2}, 4, 0),
}
"""Values of each epoch, options, the epoch after which the training ends, and the best one."""


def follow(stopping, values, first=0):
    """Passes epochs to `stopping`, with weights that are the number of the epoch; returns the last one, if any."""
    weights = np.zeros(3, np.float32)
    for epoch, value in enumerate(values, first):
        weights[:] = epoch
        metrics = {"loss": 0.0} if value is None else {"loss": 0.0, "val_loss": value}
        stopping.remember(epoch, metrics, weights, weights[:1])
        if stopping.reason(metrics) is not None:
            return epoch
    weights[:] = -1
    return None


@pytest.mark.parametrize(("values", "options", "last", "best"), CASES.values(), ids=CASES)
def test_training_stops_when_the_metric_no_longer_improves(values, options, last, best):
    stopping = Stopping(EarlyStopping(**options), None)
    assert follow(stopping, values) == last
    assert stopping.best_epoch == best
    assert (stopping.best_weights.tolist(), stopping.best_statistics.tolist()) == ([best] * 3, [best])


@pytest.mark.parametrize(("values", "options", "last", "best"), CASES.values(), ids=CASES)
def test_restored_early_stopping_ends_in_the_same_epoch(values, options, last, best):
    for cut in range(1, len(values) if last is None else last):
        before, after = (Stopping(EarlyStopping(**options), None) for _ in range(2))
        assert follow(before, values[:cut]) is None
        after.restore(json.loads(json.dumps(before.state())))
        assert follow(after, values[cut:], first=cut) == last
        assert after.best_epoch == best


def test_weights_are_kept_only_if_they_are_to_be_restored():
    stopping = Stopping(EarlyStopping(restore_best=False), None)
    follow(stopping, [3, 2])
    assert stopping.best_epoch == 1
    assert stopping.best_weights is None


@pytest.mark.parametrize(
    ("bound", "reached", "missed"),
    [({"above": 0.9}, [0.9, 1.0], [0.89, NAN]), ({"below": 0.1}, [0.1, 0.0], [0.11, NAN])],
)
def test_target_is_reached_at_its_value_and_beyond(bound, reached, missed):
    stopping = Stopping(None, Target(metric="val_x", **bound))
    assert [stopping.reason({"val_x": value}) for value in reached] == ["target"] * 2
    assert [stopping.reason({"val_x": value}) for value in missed] == [None] * 2
    assert stopping.reason({"x": reached[0]}) is None


def test_history_has_a_value_for_each_epoch():
    history = History()
    for metrics in ({"a": 1.0}, {"a": 2.0, "b": 3.0}, {"b": 4.0}):
        history.append(metrics)
    assert len(history) == 3
    np.testing.assert_array_equal(history.columns["a"], [1, 2, NAN])
    np.testing.assert_array_equal(history.columns["b"], [NAN, 3, 4])


def test_values_that_come_after_their_epoch_keep_all_columns_equally_long():
    """A validation in a thread ends during the next epoch."""
    history = History()
    for epoch in range(3):
        history.append({"loss": float(epoch)})
    history.replace(1, {"val_loss": 5.0, "loss": 7.0})
    history.replace(0, {"val_loss": 4.0})
    assert {name: len(column) for name, column in history.columns.items()} == {"loss": 3, "val_loss": 3}
    np.testing.assert_array_equal(history.columns["loss"], [0, 7, 2])
    np.testing.assert_array_equal(history.columns["val_loss"], [4, 5, NAN])
    history.append({"loss": 3.0, "val_loss": 6.0})
    np.testing.assert_array_equal(history.columns["val_loss"], [4, 5, NAN, 6])


@pytest.mark.parametrize("reason", ["target", "early_stopping"])
def test_an_end_is_kept_although_a_later_epoch_does_not_show_it(reason):
    """With validation in a thread, one more epoch is trained; it may be worse than the one that ended the training."""
    section = {"target": Target(metric="val_loss", below=0.1), "early_stopping": EarlyStopping(patience=9)}
    ended = State(Stopping(section["early_stopping"], section["target"]))
    ended.history.append({"val_loss": 0.5})
    ended.pause(reason, 1.0, [])
    values, arrays = ended.snapshot()
    then = {"callbacks": [], "target": {"below": 0.1}, "early_stopping": section["early_stopping"].model_dump()}

    def restored(now):
        state = State(Stopping(section["early_stopping"], section["target"]))
        state.restore(values)
        state.restore_same(values, arrays, then, now)
        return state.ended_by

    assert restored(then) == reason
    assert restored(then | {reason: {"below": 0.01, "patience": 20}}) is None
