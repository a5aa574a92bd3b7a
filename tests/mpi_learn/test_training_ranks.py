"""The training loop on several ranks, as threads of one process, with a model that is a few lines of NumPy."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from mpi4py import MPI

import mpi_learn.training.train
from mpi_learn import read_configuration, train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.errors import ConfigurationError, DataError, TrainingError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.weights_only import ModelSizes, WeightsOnly
from mpi_learn.testing.thread_ranks import run_ranks
from mpi_learn.training.context import open_context
from mpi_learn.training.setup import _broadcast
from mpi_learn.training.timing import tracing

LAYOUT = FlatLayout(((3,),))
N_SUMS, N_TRAINING, N_VALIDATION = 5, 22, 9
SIZES = ModelSizes(LAYOUT, "numpy", N_SUMS, 1, 1)


class LinearModel(WeightsOnly):
    """Least squares on three numbers. Its one batch statistic is moved by each step towards the batch's mean.

    All samples of a rank have the same weight, which is below one and differs between ranks.

    Args:
        rank: Of this process.
        failing: (method, number of the call, from 0) that raises; None: none does.

    Attributes:
        averaged: The batch statistic before and after each average over the ranks.
        sums_of_steps: The sums behind each gradient: weight, loss, samples, and two zeros.
    """

    def __init__(self, rank, failing=None):
        super().__init__(SIZES, build=None)
        self.weights[:] = 0
        self.rank, self.failing, self.n_calls = rank, failing, {}
        self.samples_of_steps, self.sums_of_steps, self.averaged = [], [], []
        self.state = RecordingState(self)
        self.sample_weight = 0.001 * (rank + 1)

    def _called(self, method):
        n = self.n_calls[method] = self.n_calls.get(method, -1) + 1
        if (method, n) == self.failing:
            raise RuntimeError("boom")

    def _sums(self, x, y):
        loss = self.sample_weight * float(((x[0] @ self.weights - y[0]) ** 2).sum())
        return [self.sample_weight * len(x[0]), loss, len(x[0]), 0, 0]

    def gradient(self, x, y, weights=()):
        self._called("gradient")
        self.samples_of_steps.append(len(x[0]))
        if len(x[0]):
            self.state.statistic += 0.3 * (x[0].mean() - self.state.statistic)
        gradient = 2 * self.sample_weight * (x[0] @ self.weights - y[0]) @ x[0]
        self.sums_of_steps.append(self._sums(x, y))
        return np.concatenate([gradient, self.sums_of_steps[-1]]).astype(np.float32)

    def evaluate(self, x, y, weights=()):
        self._called("evaluate")
        return np.array(self._sums(x, y))

    def metrics(self, sums):
        self._called("metrics")
        return {"loss": float(sums[1] / (sums[0] or 1))}

    def current(self):
        return self


class RecordingState:
    """One batch statistic, at first the rank, and no integers; every call is counted."""

    def __init__(self, model):
        self.model, self.statistic = model, np.float32(model.rank)

    def floats(self):
        self.model._called("floats")
        return np.array([self.statistic])

    def set_floats(self, values):
        self.model._called("set_floats")
        self.model.averaged.append((float(self.statistic), float(values[0])))
        self.statistic = values[0]

    def integers(self):
        self.model._called("integers")
        return np.zeros(1, np.int64)

    def set_integers(self, values):
        pass

    def random_mask(self):
        return np.zeros(1, bool)

    def seed_random(self, keys):
        self.model._called("seed_random")


class CountingState(RecordingState):
    """With two integers: the number of steps, and the state of a random generator that no other run has."""

    def __init__(self, model):
        super().__init__(model)
        self.fresh = self.random = np.random.default_rng().integers(1 << 62)

    def integers(self):
        return np.array([len(self.model.samples_of_steps) + self.model.steps_before, self.random])

    def set_integers(self, values):
        self.model.steps_before, self.random = (int(value) for value in values[:2])

    def random_mask(self):
        return np.array([False, True])


class CountingModel(LinearModel):
    def __init__(self, rank):
        super().__init__(rank)
        self.steps_before, self.state = 0, CountingState(self)


def dataset():
    rng = np.random.default_rng(0)
    x = rng.normal(1, 1, (N_TRAINING + N_VALIDATION, 3)).astype(np.float32)
    samples = Samples((x,), ((x @ np.array([1, -2, 0.5])).astype(np.float32),))
    return Dataset(samples, samples, np.arange(N_TRAINING), np.arange(N_TRAINING, N_TRAINING + N_VALIDATION))


@pytest.fixture
def build(monkeypatch):
    """Makes `train` use a given function of the rank in place of the model that a configuration names."""

    def patch(make):
        def build_model(context):
            if context.worker is not None:
                return make(context.comm.rank)
            model = WeightsOnly(SIZES, None)
            model.weights[:] = 0
            return model

        monkeypatch.setattr(mpi_learn.training.train, "build_model", build_model)

    return patch


def configured(**changes):
    common = {"model": "m.py:f", "loss": "mse", "batch_size": 4, "epochs": 2, "optimizer": {"name": "sgd"}}
    return read_configuration(common | changes)


def check_averages(models, number, n_samples):
    """The average of that number is weighted by the samples of each rank."""
    before = [model.averaged[number][0] for model in models]
    assert len(set(n_samples)) > 1, "equal weights show nothing"
    expected = sum(n * value for n, value in zip(n_samples, before, strict=True)) / sum(n_samples)
    assert [model.averaged[number][1] for model in models] == pytest.approx([expected] * len(models), rel=1e-6)


def trained_models(build, **changes):
    models = {}
    build(lambda rank: models.setdefault(rank, LinearModel(rank)))
    run_ranks(3, lambda comm: train(configured(epochs=1, **changes), comm, data=dataset()))
    return [models[rank] for rank in range(3)]


def test_batch_statistics_are_averaged_by_the_samples_of_each_rank(build):
    """22 samples on three ranks with batches of four: 8, 7 and 7."""
    models = trained_models(build)
    assert [len(model.averaged) for model in models] == [1, 1, 1]
    check_averages(models, 0, [sum(model.samples_of_steps) for model in models])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_synchronized_batch_statistics_are_averaged_by_the_samples_since_the_last_exchange(build, accumulate):
    """Batches of 7, 7, 7 and 1 sample; the average at the end of the epoch changes nothing any more."""
    algorithm = {"name": "allreduce", "accumulate": accumulate}
    models = trained_models(build, batch_size=7, sync_batchnorm=True, algorithm=algorithm)
    steps = [model.samples_of_steps for model in models]
    assert len(steps[0]) == 2
    if accumulate == 1:
        check_averages(models, 1, [taken[1] for taken in steps])
    else:
        check_averages(models, 0, [sum(taken) for taken in steps])
    assert len(models[0].averaged) == 2 // accumulate + 1
    assert models[0].averaged[-1][0] == pytest.approx(models[0].averaged[-1][1], rel=1e-6)


def test_notes_on_the_model_of_the_first_worker_reach_the_caller_once(build):
    """With a master, this model is not that of rank 0."""

    def make(rank):
        model = LinearModel(rank)
        model.notes = (f"of rank {rank}",)
        return model

    build(make)
    notes = []
    algorithm = {"name": "downpour"}
    run_ranks(3, lambda comm: train(configured(algorithm=algorithm), comm, data=dataset(), on_note=notes.append))
    assert notes == ["of rank 1"]


def test_history_has_the_loss_of_the_samples_of_all_ranks(build):
    models = {}
    build(lambda rank: models.setdefault(rank, LinearModel(rank)))
    results = run_ranks(3, lambda comm: train(configured(epochs=1), comm, data=dataset()))
    weight, loss, n_samples, *_ = np.sum([sums for model in models.values() for sums in model.sums_of_steps], axis=0)
    assert n_samples == N_TRAINING
    assert [result.history["loss"] for result in results] == [[pytest.approx(loss / weight, rel=1e-5)]] * 3


TRAININGS = {
    "allreduce": {},
    "batch statistics at every step": {"sync_batchnorm": True},
    "accumulated": {"algorithm": {"name": "allreduce", "accumulate": 2}, "sync_batchnorm": True},
    "downpour": {"algorithm": "downpour"},
    "gem in groups": {"algorithm": {"name": "gem", "processes": 2}},
    "clusters": {"algorithm": {"name": "clusters", "size": 1, "exchange_every": 1}},
    "threads": {"validation": {"mode": "thread"}},
    "shards": {"batch_size": {"total": 14, "shards": 7}},
}


METHODS = ("gradient", "floats", "set_floats", "metrics", "evaluate", "integers")
FAILURES = [(name, method, 4) for name in TRAININGS for method in METHODS] + [("shards", "seed_random", 4)]
FAILURES += [(name, method, 0) for name in ("allreduce", "threads") for method in METHODS]
"""Rank 0, which writes the checkpoints, has the same program in the other trainings, or is a master."""


@pytest.mark.parametrize(("name", "method", "rank"), FAILURES)
def test_a_model_that_raises_at_any_call_ends_the_training_on_all_ranks(
    build, monkeypatch, tmp_path, name, method, rank
):
    """Also after the last exchange of an epoch, around the averages of batch statistics, and in a checkpoint."""
    n_failed = 0
    for call in range(100):

        def make(one, call=call):
            return LinearModel(one, (method, call) if one == rank else None)

        build(make)
        monkeypatch.setattr(
            "mpi_learn.training.setup._one_model", lambda context, *_, make=make: make(context.comm.rank)
        )  # a thread's
        checkpoint = {"path": str(tmp_path / f"{call}"), "every": 2 if name == "threads" else 1}
        configuration = configured(checkpoint=checkpoint, **TRAININGS[name])
        communicators = []

        def run(comm, configuration=configuration, communicators=communicators):
            communicators.append(comm)
            try:
                train(configuration, comm, data=dataset())
            except TrainingError as error:
                return error.rank, error.reason
            return "no error"

        seen = run_ranks(5, run)
        assert communicators[0].unfreed() == []
        assert communicators[0].unreceived() == []
        if seen == ["no error"] * 5:
            break
        n_failed += 1
        assert seen == [(rank, "RuntimeError: boom")] * 5
    assert n_failed > 0
    assert [one.name for one in threading.enumerate() if one.name.startswith("validation")] == []


@pytest.mark.parametrize("algorithm", ["allreduce", "downpour"])
def test_a_resume_on_fewer_ranks_continues_counters_and_begins_random_numbers_again(
    build, monkeypatch, tmp_path, algorithm
):
    """The master of `downpour`, rank 0, has no counters."""
    monkeypatch.setattr("tests.mpi_learn.test_training_ranks.SIZES", SIZES._replace(n_integers=2))
    models = {}
    build(lambda rank: models.setdefault(rank, CountingModel(rank)))

    def run(n_ranks, epochs):
        models.clear()
        configuration = configured(epochs=epochs, algorithm=algorithm, checkpoint={"path": str(tmp_path)})
        run_ranks(n_ranks, lambda comm: train(configuration, comm, data=dataset()))
        return list(models.values())

    before = len(run(4, 1)[0].samples_of_steps)
    for model in run(3, 2):
        assert model.steps_before == before > 0
        assert model.state.random == model.state.fresh


def test_a_start_from_a_checkpoint_with_a_master_takes_the_counters_of_a_worker(build, monkeypatch, tmp_path):
    """Rank 0, which was the master, is a worker now."""
    monkeypatch.setattr("tests.mpi_learn.test_training_ranks.SIZES", SIZES._replace(n_integers=2))
    models = {}
    build(lambda rank: models.setdefault(rank, CountingModel(rank)))

    def run(algorithm, checkpoint):
        models.clear()
        configuration = configured(epochs=1, algorithm=algorithm, checkpoint=checkpoint)
        run_ranks(3, lambda comm: train(configuration, comm, data=dataset()))
        return models

    before = len(run("downpour", {"path": str(tmp_path / "first")})[1].samples_of_steps)
    started = run("allreduce", {"path": str(tmp_path / "second"), "start_from": str(tmp_path / "first")})
    assert [started[rank].steps_before for rank in range(3)] == [before] * 3
    assert all(model.state.random == model.state.fresh for model in started.values())


def test_workers_of_a_resumed_training_are_compiled_as_before(build, tmp_path):
    """The master, rank 0, compiles nothing. The choice by timing could be another one."""

    def run(epochs, uses_xla):
        chosen = []

        def make(rank):
            model = LinearModel(rank)
            model.can_use_xla, model.compile_step = True, chosen.append
            model.uses_xla = uses_xla and rank > 0
            return model

        build(make)
        configuration = configured(epochs=epochs, algorithm="downpour", checkpoint={"path": str(tmp_path)})
        run_ranks(3, lambda comm: train(configuration, comm, data=dataset()))
        return chosen

    assert run(1, uses_xla=True) == []
    assert run(2, uses_xla=False) == [True, True]


def test_messages_of_the_caller_are_not_taken_by_a_training(build):
    build(LinearModel)

    def run(comm):
        if comm.rank == 1:
            comm.Isend(np.arange(3.0), 0, 13)
        train(configured(algorithm="downpour"), comm, data=dataset())
        assert comm.unfreed() == []
        found = np.zeros(3)
        if comm.rank == 0:
            comm.Improbe(1, 13, MPI.Status()).Recv(found)
        return found.tolist()

    assert run_ranks(3, run)[0] == [0, 1, 2]


DEALT = {"train": "a.h5", "features": "x", "labels": "y", "share": "dynamic", "drop_last": True}


def test_dealt_samples_respect_drop_last(build):
    """Two workers take 16 of the 22 samples, in whole batches."""
    models = {}
    build(lambda rank: models.setdefault(rank, LinearModel(rank)))
    run_ranks(3, lambda comm: train(configured(epochs=1, data=DEALT, algorithm="downpour"), comm, data=dataset()))
    assert [n for model in models.values() for n in model.samples_of_steps] == [4] * 4


@pytest.mark.parametrize("share", ["static", "dynamic"])
def test_a_training_without_a_step_is_refused(build, share):
    """Two workers with batches of 12 need 24 samples, and there are 22."""
    build(LinearModel)
    configuration = configured(batch_size=12, data=DEALT | {"share": share}, algorithm="downpour")
    with pytest.raises(ConfigurationError, match="do not fill one batch of every worker"):
        run_ranks(3, lambda comm: train(configuration, comm, data=dataset()))


@pytest.mark.parametrize("last_step", [1, 5])
def test_a_timeline_is_written_during_an_epoch_and_after_a_failure(build, monkeypatch, tmp_path, last_step):
    monkeypatch.setattr(tracing, "MOST_EVENTS", 8)
    lengths = []

    def gradient(self, x, y, weights=(), original=LinearModel.gradient):
        lengths.append(len((tmp_path / "rank-00000.jsonl").read_text().splitlines()))
        return original(self, x, y)

    monkeypatch.setattr(LinearModel, "gradient", gradient)
    build(lambda rank: LinearModel(rank, ("gradient", last_step)))
    with pytest.raises(TrainingError):
        run_ranks(1, lambda comm: train(configured(trace=str(tmp_path)), comm, data=dataset()))
    (trace,) = tracing.read_traces(tmp_path)
    names = [event[0] for event in trace.events]
    assert [names.count(name) for name in ("gradient", "exchange", "update")] == [last_step + 1, last_step, last_step]
    assert (lengths[-1] > 1) == (last_step > 1)


def test_a_timeline_has_the_ranks_of_the_last_training_only(build, tmp_path):
    build(LinearModel)
    roles = []
    for n_ranks, algorithm in ((3, "downpour"), (2, "allreduce")):
        changes = {"epochs": 1, "trace": str(tmp_path), "algorithm": algorithm}
        run_ranks(n_ranks, lambda comm, changes=changes: train(configured(**changes), comm, data=dataset()))
        roles.append([(trace.rank, trace.role) for trace in tracing.read_traces(tmp_path)])
    assert roles == [[(0, "master"), (1, "worker"), (2, "worker")], [(0, "worker"), (1, "worker")]]


def test_an_unfinished_line_of_a_timeline_is_left_out(tmp_path):
    head = json.dumps({"rank": 0, "host": "a", "role": "worker"})
    (tmp_path / "rank-00000.jsonl").write_text(head + '\n["gradient", "compute", 5, 3]\n["exch')
    assert tracing.read_traces(tmp_path)[0].events == [("gradient", "compute", 5, 3)]


@pytest.mark.parametrize("error", [None, DataError("no samples")], ids=["no error", "agreed error"])
def test_stages_and_replicas_have_communicators_that_end_with_the_training(monkeypatch, error):
    """Ranks 0 to 3 are stage 0 and 1 of the first model, then those of the second."""
    monkeypatch.setattr("mpi_learn.training.context.split", lambda comm, color: comm.Split(color))
    configuration = configured(pipeline={"stages": 2}, algorithm="allreduce")
    worlds = []

    def run(comm):
        worlds.append(comm)
        with pytest.raises(DataError) if error else nullcontext(), open_context(configuration, comm, dataset()) as own:
            assert own.chain is not None
            held = own.peers.allgather(comm.rank), own.chain.allgather(comm.rank), own.worker, own.first_with_loss
            if error:
                raise error
        return held

    found = run_ranks(4, run)
    assert worlds[0].unfreed() == []
    if error is None:
        assert found == [([0, 2], [0, 1], 0, 1), ([1, 3], [0, 1], 0, 1), ([0, 2], [2, 3], 1, 1), ([1, 3], [2, 3], 1, 1)]


def test_ranks_start_with_the_state_of_the_first_worker_and_their_own_random_numbers():
    def run(comm):
        model = CountingModel(comm.rank)
        model.weights[:] = 10 + comm.rank
        model.steps_before, model.state.random = 20 + comm.rank, 30 + comm.rank
        _broadcast(comm, model, 1)
        return [*model.weights, model.state.statistic, model.steps_before, model.state.random]

    assert run_ranks(3, run) == [[11, 11, 11, 1, 21, 30 + rank] for rank in range(3)]


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({}, [3, 3, 3]),
        ({"validation": {"mode": "master"}}, [9, 0, 0]),
        ({"algorithm": "downpour"}, [0, 4, 5]),
        ({"algorithm": "downpour", "validation": {"mode": "master"}}, [0, 9, 0]),
        ({"validation": {"mode": "thread"}}, [3, 3, 3]),
    ],
)
def test_each_validation_sample_is_evaluated_by_one_rank(build, monkeypatch, options, shares):
    """By all workers in equal shares, or by the first worker alone; a master that computes nothing has no share."""
    models, n_evaluated = {}, dict.fromkeys(range(3), 0)

    class Evaluating(LinearModel):
        def evaluate(self, x, y, weights=()):
            n_evaluated[self.rank] += len(x[0])
            return super().evaluate(x, y, weights)

    build(lambda rank: models.setdefault(rank, Evaluating(rank)))
    monkeypatch.setattr("mpi_learn.training.setup._one_model", lambda context, *_: Evaluating(context.comm.rank))
    run_ranks(3, lambda comm: train(configured(epochs=1, **options), comm, data=dataset()))
    assert [n_evaluated[rank] for rank in range(3)] == shares
