"""The loop of a training and its checkpoints, with a model in NumPy. `test_training.py` has trainings of frameworks."""

from __future__ import annotations

import json
import math
import re
import resource
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.algorithms.allreduce import SynchronousAllReduce
from mpi_learn.algorithms.reduction import TopFraction
from mpi_learn.errors import ConfigurationError, SavingError, TrainingError
from mpi_learn.testing.thread_ranks import run_ranks
from mpi_learn.training.callbacks import Callbacks
from mpi_learn.training.checkpoints.checkpoint_file import (
    DamagedCheckpoint,
    KeptEpoch,
    SavedTraining,
    UnusableCheckpoint,
    load_checkpoint,
    save_checkpoint,
)
from tests.mpi_learn.configurations_for_tests import NUMBERS
from tests.mpi_learn.linear_model import LinearModel
from tests.mpi_learn.models_for_tests import line


@pytest.fixture(scope="module")
def comm():
    return MPI.COMM_SELF


@pytest.fixture(scope="module", autouse=True)
def linear_model():
    """Each model is a `LinearModel`."""
    with patch("mpi_learn.training.setup.make_model", lambda *arguments: LinearModel()):
        yield


@pytest.mark.parametrize("mode", ["distributed", "master", "thread"])
def test_the_validation_of_several_ranks_is_that_of_all_samples(mode):
    data = line()
    samples = data.take_validation(slice(0, data.n_validation))
    n = data.n_validation

    def run(comm):
        result = train(NUMBERS | {"epochs": 2, "validation": {"mode": mode, "batch_size": 7}}, comm, data=data)
        return result.history["val_loss"], result.model

    found = run_ranks(3, run)
    *kernel, bias = found[0][1]
    errors = samples.x[0] @ np.array(kernel) + bias - samples.y[0]
    assert n % 3 and n > 3 * 7
    assert [losses[-1] for losses, _ in found] == pytest.approx([np.mean(errors**2)] * 3, rel=1e-5)
    assert found[0][0] == found[1][0] == found[2][0]


def test_a_result_is_shown_as_its_numbers_without_its_functions(comm):
    shown = repr(train(NUMBERS | {"epochs": 1}, comm, data=line()))
    assert "val_loss" in shown and not re.search(r"<|function|lambda|partial|load_|save_", shown)


def test_target_ends_the_training(comm):
    target = {"metric": "val_loss", "below": 0.5}
    result = train(NUMBERS | {"target": target, "epochs": 200, "batch_size": 16}, comm, data=line())
    assert result.stopped_by == "target"
    assert result.epochs < 200
    assert result.history["val_loss"][-1] <= 0.5 < min(result.history["val_loss"][:-1])


def test_callback_sees_every_epoch_and_stops_the_training(comm):
    seen = []

    def on_epoch(epoch, metrics):
        seen.append((epoch, sorted(metrics)))
        return epoch == 2

    result = train(NUMBERS | {"epochs": 9, "batch_size": 64}, comm, data=line(), on_epoch=on_epoch)
    assert seen == [(epoch, ["loss", "val_loss"]) for epoch in range(3)]
    assert (result.stopped_by, result.epochs) == ("callback", 3)


def test_validation_every_second_epoch_leaves_gaps(comm):
    result = train(NUMBERS | {"epochs": 5, "validation": {"every": 2}}, comm, data=line())
    assert np.isnan(result.history["val_loss"]).tolist() == [True, False, True, False, False]


class InterruptionError(Exception):
    pass


def test_finished_training_resumes_to_the_same_result(comm, tmp_path):
    """The last epoch has a checkpoint, too, so that nothing is left to train."""
    configuration = NUMBERS | {"epochs": 2, "checkpoint": {"path": str(tmp_path), "every": 5}}
    epochs = []
    note = lambda epoch, metrics: epochs.append(epoch)  # noqa: E731
    first, second = (train(configuration, comm, data=line(), on_epoch=note) for _ in range(2))
    assert epochs == [0, 1]
    assert first.history == second.history
    longer = train(configuration | {"epochs": 3}, comm, data=line())
    assert longer.history["loss"][:2] == first.history["loss"]
    assert len(longer.history["loss"]) == 3


PROVISIONAL = {"every": 10**9, "provisional": True}


def test_a_provisional_checkpoint_is_written_only_at_intervals(comm, tmp_path):
    path = tmp_path / "made" / "later"
    configuration = NUMBERS | {"epochs": 4}
    section = PROVISIONAL | {"path": str(path)}
    seen = []

    def note(epoch: int, metrics: dict[str, float]) -> bool:
        seen.append((epoch, path.exists()))
        return False

    whole = train(configuration | {"checkpoint": section | {"interval_s": 1e6}}, comm, data=line(), on_epoch=note)
    assert seen == [(epoch, False) for epoch in range(4)]
    assert not path.parent.exists()  # none at the end, and no folder
    with pytest.raises(TrainingError, match="InterruptionError"):
        train(
            configuration | {"checkpoint": section | {"interval_s": 1e-6}},
            comm,
            data=line(),
            on_epoch=interrupted_at(2),
        )
    assert load_checkpoint(path).metadata["epoch"] == 2
    resumed = train(configuration | {"checkpoint": section | {"interval_s": 1e6}}, comm, data=line())
    assert resumed.epochs_before == 2
    assert resumed.history == whole.history


def interrupted_at(last: int):
    def on_epoch(epoch: int, metrics: dict[str, float]) -> bool:
        if epoch == last:
            raise InterruptionError
        return False

    return on_epoch


def test_a_training_continues_without_a_provisional_checkpoint_that_cannot_be_written(comm, tmp_path, capsys):
    (tmp_path / "file").touch()
    section = PROVISIONAL | {"path": str(tmp_path / "file" / "folder"), "interval_s": 1e-6}
    result = train(NUMBERS | {"epochs": 2, "checkpoint": section}, comm, data=line())
    assert result.epochs == 2
    assert "the training continues without it" in capsys.readouterr().out
    with pytest.raises(ConfigurationError, match="not writable"):
        train(NUMBERS | {"epochs": 2, "checkpoint": section | {"provisional": False}}, comm, data=line())


COUNTS = "algorithm.AdaptiveMoments.n_steps_of_arrays"


UNFIT = {
    "weight shapes differ": lambda saved: saved.metadata["shapes"][0].append(1),
    "arrays in another order": lambda saved: saved.metadata["arrays"].reverse(),
    "another version of MPI Learn has written this checkpoint": lambda saved: saved.arrays.pop("counters"),
    "another version of MPI Learn has written it": lambda saved: saved.arrays.pop(COUNTS),
    "a model in 2 stages": lambda saved: saved.metadata.update(n_stages=2),
    "a training with another batch_size": lambda saved: saved.metadata["training"].update(batch_size=7),
}
"""What is said of a checkpoint -> a change by which it does not fit."""


LARGEST = {"algorithm": {"name": "allreduce", "compression": "top-k"}}
"""A training whose checkpoint has an array of each rank."""


@pytest.fixture(scope="module")
def checkpoint_of(comm, tmp_path_factory):
    """A function that returns the folder of a checkpoint of one epoch of `NUMBERS`, or of `LARGEST`."""

    @cache
    def folder(has_array_of_rank: bool = False) -> Path:
        made = tmp_path_factory.mktemp("first")
        changes = LARGEST if has_array_of_rank else {}
        train(NUMBERS | changes | {"epochs": 1, "checkpoint": {"path": str(made)}}, comm, data=line())
        return made

    return folder


@pytest.fixture
def written(checkpoint_of):
    """A function that writes a checkpoint of one epoch, changed by a function, into a folder."""

    def write(folder: Path, change=lambda saved: None) -> str:
        saved = load_checkpoint(checkpoint_of())
        change(saved)
        save_checkpoint(folder, saved, [])
        return str(folder)

    return write


@pytest.mark.parametrize("said", UNFIT)
def test_a_checkpoint_that_does_not_fit_is_unusable_but_not_damaged(comm, written, tmp_path, said):
    section = {"path": written(tmp_path, UNFIT[said])}
    with pytest.raises(UnusableCheckpoint, match=said) as caught:
        train(NUMBERS | {"checkpoint": section}, comm, data=line())
    assert not isinstance(caught.value, DamagedCheckpoint)
    assert str(tmp_path) in caught.value.where


@pytest.mark.parametrize(
    "end", [{"target": {"metric": "val_loss", "below": 0.5}}, {"early_stopping": {"metric": "val_loss", "patience": 2}}]
)
def test_a_finished_training_is_not_continued(comm, tmp_path, end):
    configuration = NUMBERS | {"epochs": 200, "batch_size": 8, "checkpoint": {"path": str(tmp_path)}}
    configuration |= {"optimizer": {"name": "sgd", "learning_rate": 0.3}} | end
    first, second = (train(configuration, comm, data=line()) for _ in range(2))
    assert first.epochs < 200
    assert (second.history, second.stopped_by, second.best_epoch) == (
        first.history, first.stopped_by, first.best_epoch,
    )  # fmt: skip
    np.testing.assert_array_equal(second.model, first.model)
    without = {key: value for key, value in configuration.items() if key not in end}
    assert train(without | {"epochs": first.epochs + 1}, comm, data=line()).epochs == first.epochs + 1


def test_checkpoint_of_another_training_is_refused_unless_started_from(comm, tmp_path):
    first = NUMBERS | {"epochs": 2, "checkpoint": {"path": str(tmp_path / "a")}}
    train(first, comm, data=line())
    other = first | {"optimizer": {"name": "adam", "learning_rate": 0.5}, "epochs": 3}
    with pytest.raises(ConfigurationError, match=r"another optimizer\.learning_rate: 0\.02, now 0\.5\n") as caught:
        train(other, comm, data=line())
    assert "checkpoint.start_from" in caught.value.cure
    start = {"path": str(tmp_path / "b"), "start_from": str(tmp_path / "a")}
    result = train(other | {"checkpoint": start}, comm, data=line())
    assert len(result.history["loss"]) == 3


def test_folder_without_a_checkpoint_to_start_from_is_refused(comm, tmp_path):
    checkpoint = {"path": str(tmp_path / "a"), "start_from": str(tmp_path / "b")}
    with pytest.raises(ConfigurationError, match=r"no checkpoint in this folder\n.*checkpoint\.path of an earlier"):
        train(NUMBERS | {"checkpoint": checkpoint}, comm, data=line())


def test_validation_by_a_thread_stops_an_epoch_late_and_restores_the_best(comm):
    target = {"metric": "val_loss", "below": 0.5}
    common = NUMBERS | {"target": target, "epochs": 200, "batch_size": 16, "early_stopping": {"patience": 50}}
    plain = train(common, comm, data=line())
    late = train(common | {"validation": {"mode": "thread"}}, comm, data=line())
    assert late.stopped_by == "target"
    assert late.epochs == plain.epochs + 1
    assert late.history["val_loss"][:-1] == plain.history["val_loss"]


def test_target_that_a_thread_noticed_an_epoch_late_also_ends_the_resumed_training(comm, tmp_path):
    """The epoch that was trained meanwhile may miss the target again."""
    losses = train(ENDED_EARLY | {"epochs": 12}, comm, data=line()).history["val_loss"]
    reached = next(i for i in range(1, 11) if losses[i] <= min(losses[:i]) and losses[i + 1] > losses[i])
    configuration = ENDED_EARLY | {"epochs": 12, "validation": {"mode": "thread"}}
    configuration |= {"target": {"metric": "val_loss", "below": losses[reached]}}
    configuration |= {"checkpoint": {"path": str(tmp_path), "every": 100}}
    first, second = (train(configuration, comm, data=line()) for _ in range(2))
    assert (first.stopped_by, first.epochs) == ("target", reached + 2)
    assert (second.stopped_by, second.epochs) == ("target", reached + 2)
    lower = configuration | {"target": {"metric": "val_loss", "below": 0.0}}
    assert train(lower, comm, data=line()).epochs == 12
    reached_already = configuration | {"target": {"metric": "val_loss", "below": 1e9}, "epochs": 13}
    assert train(reached_already, comm, data=line()).epochs == 12


def test_plateau_schedule_of_a_resumed_training_is_that_of_one_never_stopped(comm, tmp_path):
    schedule = {"name": "plateau", "patience": 1, "factor": 0.1, "min_delta": 0.5}
    optimizer = {"name": "sgd", "learning_rate": 0.05, "schedule": schedule}
    lowered = NUMBERS | {"optimizer": optimizer, "batch_size": 32}
    checkpoint = {"checkpoint": {"path": str(tmp_path)}}
    whole = train(lowered | {"epochs": 6}, comm, data=line())
    train(lowered | {"epochs": 4} | checkpoint, comm, data=line())
    resumed = train(lowered | {"epochs": 6} | checkpoint, comm, data=line())
    assert resumed.history == whole.history
    constant = train(lowered | {"epochs": 6, "optimizer": optimizer | {"schedule": {}}}, comm, data=line())
    assert constant.history["loss"][0] == whole.history["loss"][0]
    assert constant.history["loss"][-1] < whole.history["loss"][-1]


def test_checkpoints_do_not_change_a_plateau_schedule_with_validation_in_a_thread(comm, tmp_path):
    """A checkpoint waits for the validation, whose result must not lower the rate earlier than without checkpoint."""
    schedule = {"name": "plateau", "patience": 1, "factor": 0.1, "min_delta": 0.5}
    optimizer = {"name": "sgd", "learning_rate": 0.05, "schedule": schedule}
    lowered = NUMBERS | {"optimizer": optimizer, "batch_size": 32, "validation": {"mode": "thread"}}
    without = train(lowered | {"epochs": 6}, comm, data=line())
    saved = lowered | {"checkpoint": {"path": str(tmp_path), "every": 2}}
    assert train(saved | {"epochs": 6}, comm, data=line()).history == without.history
    resumed = saved | {"checkpoint": {"path": str(tmp_path / "b")}}
    train(resumed | {"epochs": 3}, comm, data=line())
    assert train(resumed | {"epochs": 6}, comm, data=line()).history == without.history


ENDED_EARLY = NUMBERS | {"batch_size": 8, "optimizer": {"name": "sgd", "learning_rate": 0.3}}
"""A training whose loss rises after a few epochs."""


def test_training_that_continues_without_early_stopping_ends_with_its_last_weights(comm, tmp_path):
    common = ENDED_EARLY | {"checkpoint": {"path": str(tmp_path)}}
    first = train(common | {"epochs": 200, "early_stopping": {"patience": 2}}, comm, data=line())
    assert first.best_epoch is not None
    for end in ({}, {"early_stopping": {"patience": 100, "restore_best": False}}):
        longer = train(common | {"epochs": first.epochs + 2} | end, comm, data=line())
        whole = train(ENDED_EARLY | {"epochs": first.epochs + 2}, comm, data=line())
        assert longer.best_epoch is None
        np.testing.assert_array_equal(longer.model, whole.model)


def test_schedule_continues_at_its_epoch_with_other_batches(comm, tmp_path):
    """The rate falls to zero after epoch 6. The 40 steps per epoch before count as 20 steps now."""
    schedule = {"name": "step", "every": 6, "factor": 1e-9}
    common = NUMBERS | {"optimizer": {"name": "sgd", "learning_rate": 0.01, "schedule": schedule}, "epochs": 8}
    first = common | {"batch_size": 5, "checkpoint": {"path": str(tmp_path / "a")}}
    train(first, comm, data=line(), on_epoch=lambda epoch, metrics: epoch == 3)
    start = {"path": str(tmp_path / "b"), "start_from": str(tmp_path / "a")}
    losses = train(common | {"batch_size": 10, "checkpoint": start}, comm, data=line()).history["val_loss"]
    changes = np.abs(np.diff(losses)) > 1e-6
    assert changes.tolist() == [True] * 5 + [False] * 2


def test_reported_times_of_epochs_do_not_overlap_with_validation_in_a_thread(comm):
    reports = []
    configuration = NUMBERS | {"epochs": 5, "batch_size": 4, "validation": {"mode": "thread"}}
    result = train(configuration, comm, data=line(), progress=reports.append)
    assert len(reports) == 5
    assert 0 < sum(report.seconds for report in reports) <= result.seconds


def test_a_training_that_cannot_begin_closes_its_algorithm(comm, monkeypatch):
    closed = []

    def refuse(self):
        raise ConfigurationError("the rate is fixed", where="callbacks", cure="leave it out")

    monkeypatch.setattr(SynchronousAllReduce, "close", lambda algorithm: closed.append(algorithm))
    monkeypatch.setattr(Callbacks, "check_rate", refuse)
    with pytest.raises(ConfigurationError, match="the rate is fixed"):
        train(NUMBERS | {"epochs": 1}, comm, data=line())
    assert len(closed) == 1


@pytest.mark.parametrize("kind", [str, Path])
def test_train_reads_a_file(comm, tmp_path, kind):
    path = tmp_path / "training.yaml"
    path.write_text(json.dumps(NUMBERS | {"epochs": 1}))
    assert train(kind(path), comm, data=line()).epochs == 1
    path.write_text(json.dumps(NUMBERS | {"epoch": 1}))
    with pytest.raises(ConfigurationError, match=r"training\.yaml: epoch: unknown key"):
        train(kind(path), comm, data=line())


def test_seconds_and_speed_include_the_runs_before(comm, tmp_path):
    configuration = NUMBERS | {"epochs": 3, "checkpoint": {"path": str(tmp_path)}}
    first, again = (train(configuration, comm, data=line()) for _ in range(2))
    assert first.seconds * 0.5 < again.seconds
    assert again.samples_per_second == pytest.approx(first.samples_per_second)
    longer = train(configuration | {"epochs": 6}, comm, data=line())
    assert longer.seconds > again.seconds


def test_checkpoint_without_an_array_of_a_rank_is_refused(comm, checkpoint_of, tmp_path):
    configuration = NUMBERS | LARGEST | {"checkpoint": {"path": str(tmp_path)}}
    save_checkpoint(tmp_path, load_checkpoint(checkpoint_of(has_array_of_rank=True)), [(0, {"older": np.zeros(1)})])
    with pytest.raises(ConfigurationError, match="another version of MPI Learn has written it: it has no held_back"):
        train(configuration, comm, data=line())


def damaged_array_of_a_rank(content: bytes) -> bytes:
    place = content.index(b"rank.0.held_back") + 300
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGED = {
    "empty": lambda content: b"",
    "text": lambda content: b"nothing",
    "first half": lambda content: content[: len(content) // 2],
    "array of a rank": damaged_array_of_a_rank,
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_damaged_checkpoint_is_refused(comm, checkpoint_of, tmp_path, damaged):
    """Not with NumPy's advice to load a file unsafely that it does not know."""
    configuration = NUMBERS | LARGEST | {"checkpoint": {"path": str(tmp_path)}}
    (file,) = checkpoint_of(has_array_of_rank=True).iterdir()
    (tmp_path / file.name).write_bytes(damaged(file.read_bytes()))
    with pytest.raises(
        DamagedCheckpoint, match=r"checkpoint\.npz: this is not a checkpoint, or it is damaged"
    ) as caught:
        train(configuration | {"epochs": 2}, comm, data=line())
    assert "remove it" in caught.value.cure
    assert "trust" not in str(caught.value)


@pytest.mark.parametrize("name", ["batch_statistics", "counters"])
@pytest.mark.parametrize("key", ["path", "start_from"])
def test_checkpoint_of_an_earlier_format_is_refused(comm, written, tmp_path, key, name):
    def rename(saved: SavedTraining) -> None:
        saved.arrays["moving"] = saved.arrays.pop(name)

    section = {"path": str(tmp_path / "second")} | {key: written(tmp_path / "first", rename)}
    with pytest.raises(ConfigurationError, match="another version of MPI Learn has written this checkpoint"):
        train(NUMBERS | {"epochs": 1, "checkpoint": section}, comm, data=line())


def test_checkpoint_with_state_of_another_shape_is_refused(comm, written, tmp_path):
    configuration = NUMBERS | {"checkpoint": {"path": str(tmp_path)}}
    other = {"algorithm.AdaptiveMoments.mean": np.ones(1, np.float32)}
    written(tmp_path, lambda saved: saved.arrays.update(other))
    with pytest.raises(ConfigurationError, match=r"it has no algorithm\.AdaptiveMoments\.mean of shape"):
        train(configuration | {"epochs": 2}, comm, data=line())


def test_checkpoint_that_cannot_be_written_leaves_the_last_one(written, tmp_path):
    written(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        with pytest.raises(SavingError, match="the checkpoint cannot be written: File too large\nthe same command"):
            save_checkpoint(tmp_path, load_checkpoint(tmp_path), [(0, {"more": np.zeros(1000)})])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.npz"]
    assert load_checkpoint(tmp_path).metadata["epoch"] == 1


def test_checkpoint_without_an_array_of_the_optimizer_is_refused(comm, written, tmp_path):
    """Earlier versions had other names. The optimizer's state would be reset, and the losses would differ."""

    def rename(saved: SavedTraining) -> None:
        saved.arrays["algorithm.mean"] = saved.arrays.pop("algorithm.AdaptiveMoments.mean")

    configuration = NUMBERS | {"checkpoint": {"path": written(tmp_path / "a", rename)}}
    with pytest.raises(ConfigurationError, match=r"it has no algorithm\.AdaptiveMoments\.mean") as caught:
        train(configuration | {"epochs": 2}, comm, data=line())
    assert "checkpoint.start_from" in str(caught.value)
    start = {"path": str(tmp_path / "b"), "start_from": str(tmp_path / "a")}
    assert train(configuration | {"epochs": 2, "checkpoint": start}, comm, data=line()).epochs == 2


def test_start_from_leaves_out_state_of_another_shape(comm, written, tmp_path):
    name, losses = "algorithm.AdaptiveMoments.mean", []
    changes = lambda saved: saved.arrays.pop(name), lambda saved: saved.arrays.update({name: np.ones(1, np.float32)})
    for number, change in enumerate(changes):
        start = {"path": str(tmp_path / str(number)), "start_from": written(tmp_path / "changed", change)}
        losses.append(train(NUMBERS | {"epochs": 2, "checkpoint": start}, comm, data=line()).history["loss"])
    assert losses[0] == losses[1]


def drop_first_element(reduction, comm, step) -> None:
    """In place of a compression, which changes nothing on a single rank."""
    step[0] = 0


def test_exact_steps_are_counted_from_the_start_of_a_training_also_on_another_number_of_ranks(
    comm, tmp_path, monkeypatch
):
    monkeypatch.setattr(TopFraction, "sum", drop_first_element)
    n_steps = 2 * math.ceil(line().n_training / 16)
    largest = {"name": "allreduce", "compression": "top-k", "fraction": 0.05}

    def losses(algorithm, epochs, folder, **changes):
        checkpoint = {"path": str(tmp_path / folder)} | changes
        configuration = NUMBERS | {"batch_size": 16, "algorithm": algorithm, "epochs": epochs, "checkpoint": checkpoint}
        return train(configuration, comm, data=line()).history["loss"]

    exact_first = largest | {"exact_steps": n_steps}
    assert losses(exact_first, 2, "a") == losses({"name": "allreduce"}, 2, "b")
    expected = losses(largest, 4, "c", start_from=str(tmp_path / "b"))
    assert expected != losses({"name": "allreduce"}, 4, "e")
    assert losses(exact_first, 4, "d", start_from=str(tmp_path / "a")) == expected
    checkpoint = load_checkpoint(tmp_path / "a")
    checkpoint.arrays["counters"] = checkpoint.arrays["counters"].repeat(2, axis=0)
    save_checkpoint(tmp_path / "a", checkpoint, [])
    assert losses(exact_first, 4, "a") == expected


def test_speed_after_a_start_from_other_data_is_that_of_the_samples_that_were_trained(comm, written, tmp_path):
    before = written(tmp_path / "a", lambda saved: saved.metadata.update(steps_s=1000.0, n_samples=5000))
    start = {"path": str(tmp_path / "b"), "start_from": before}
    continued = train(NUMBERS | {"epochs": 2, "checkpoint": start}, comm, data=line())
    assert continued.samples_per_second == pytest.approx((5000 + line().n_training) / 1000, rel=0.01)
    assert load_checkpoint(tmp_path / "b").metadata["n_samples"] == 5000 + line().n_training


def test_speed_counts_only_the_samples_that_drop_last_leaves(comm, tmp_path):
    left = {"train": "a.h5", "features": "x", "labels": "y", "drop_last": True}
    configuration = NUMBERS | {"epochs": 1, "batch_size": 150, "data": left, "checkpoint": {"path": str(tmp_path)}}
    reports = []
    result = train(configuration, comm, data=line(), progress=reports.append)
    assert line().n_training % 150
    assert load_checkpoint(tmp_path).metadata["n_samples"] == line().n_training // 150 * 150
    assert reports[0].samples_per_second == pytest.approx(result.samples_per_second)


@pytest.mark.parametrize("mode", ["distributed", "thread"])
def test_training_that_ends_early_is_validated_with_its_final_weights(comm, mode):
    def stopped(epoch, metrics):
        return epoch == 5

    sparse = NUMBERS | {"epochs": 9, "validation": {"every": 4, "mode": mode}}
    every = train(NUMBERS | {"epochs": 9}, comm, data=line()).history["val_loss"]
    found = train(sparse, comm, data=line(), on_epoch=stopped).history["val_loss"]
    np.testing.assert_array_equal(np.isnan(found)[:4], [True, True, True, False])
    assert (len(found), found[-1]) == ((6, every[5]) if mode == "distributed" else (7, every[6]))


def test_best_epoch_without_validation_is_validated(comm):
    common = ENDED_EARLY | {"epochs": 6, "early_stopping": {"metric": "loss", "patience": 2}}
    every = train(common, comm, data=line())
    found = train(common | {"validation": {"every": 5}}, comm, data=line())
    assert found.history["val_loss"][found.best_epoch] == every.history["val_loss"][every.best_epoch]


@pytest.mark.parametrize(
    ("asked_at", "stops_at", "stopped_by", "n_epochs"),
    [(1, None, "left", 3), (3, None, "epochs", 5), (1, 2, "callback", 3)],
    ids=["in the middle", "before the last epoch", "callback in the epoch that trains meanwhile"],
)
def test_a_training_that_is_over_does_not_leave_its_ranks(comm, asked_at, stops_at, stopped_by, n_epochs):
    kept = KeptEpoch()

    def on_epoch(epoch, metrics):
        kept.is_left = epoch == asked_at
        return epoch == stops_at

    configuration = NUMBERS | {"epochs": 5, "validation": {"mode": "thread"}}
    result = train(configuration, comm, data=line(), on_epoch=on_epoch, kept=kept)
    assert result.stopped_by == stopped_by
    assert len(result.history["loss"]) == n_epochs
