"""Steps that consist of shards, against a plain loop over them, with ranks as threads and a model in NumPy."""

from __future__ import annotations

import time

import numpy as np
import pytest

import mpi_learn.training.train
from mpi_learn import read_configuration, train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.settings import Example, ModelSettings
from mpi_learn.models.weights_only import ModelSizes, WeightsOnly
from mpi_learn.testing.thread_ranks import run_ranks
from tests.optional_packages import needs

N, TOTAL, SHARDS, EPOCHS, RATE = 37, 10, 5, 2, 1e-3
"""The last of four steps has seven samples: shards of one, one, two, one and two."""
SIZES = ModelSizes(FlatLayout(((3,),)), "numpy", 5, 1, 2)


class NoisyModel(WeightsOnly):
    """Least squares; each batch adds one random number to its inputs, and moves a statistic and a counter.

    The gradient also depends on the statistic and on the counter before the batch.
    """

    def __init__(self, rank):
        super().__init__(SIZES, build=None)
        self.weights[:] = 0
        self.rank = rank
        self.rng, self.statistic, self.counter = np.random.default_rng([rank, 12345]), np.float32(0), 0
        self.keys, self.state = [], self

    def gradient(self, x, y, weights=()):
        step = np.zeros(3 + 5, np.float32)
        if len(x[0]):
            shifted = x[0] + self.rng.normal() + self.statistic + self.counter
            self.statistic += np.float32(0.3) * (shifted.mean() - self.statistic)
            self.counter += 1
            error = shifted @ self.weights - y[0]
            step[:6] = *(2 * error @ shifted), len(error), (error**2).sum(), len(error)
        return step

    def evaluate(self, x, y, weights=()):
        return np.array([len(x[0]), 0, len(x[0]), 0, 0.0])

    def metrics(self, sums):
        return {"loss": float(sums[1] / (sums[0] or 1))}

    def current(self):
        return self

    def floats(self):
        return np.array([self.statistic])

    def set_floats(self, values):
        self.statistic = np.float32(values[0])

    def integers(self):
        return np.array([self.counter, 0])

    def set_integers(self, values):
        self.counter = int(values[0])

    def random_mask(self):
        return np.array([False, True])

    def seed_random(self, keys):
        self.keys.append(tuple(keys))
        self.rng = np.random.default_rng(keys)


def dataset():
    x = np.random.default_rng(0).normal(0, 1, (N, 3)).astype(np.float32)
    samples = Samples((x,), ((x @ np.array([1, -2, 0.5])).astype(np.float32),))
    return Dataset(samples, samples, None, np.arange(0))


def configured(**changes):
    common = {"model": "m.py:f", "loss": "mse", "epochs": EPOCHS, "optimizer": {"name": "sgd", "learning_rate": RATE}}
    common["data"] = {"train": "a.npz", "features": "x", "labels": "y", "shuffle": False}
    return read_configuration(common | {"batch_size": {"total": TOTAL, "shards": SHARDS}, "seed": 3} | changes)


@pytest.fixture
def trained(monkeypatch):
    """The models of all ranks after a training."""

    def run(n_ranks, **changes):
        models = {}
        monkeypatch.setattr(
            mpi_learn.training.train,
            "build_model",
            lambda context: models.setdefault(context.comm.rank, NoisyModel(context.comm.rank)),
        )
        results = run_ranks(n_ranks, lambda comm: train(configured(**changes), comm, data=dataset()))
        return [models[rank] for rank in range(n_ranks)], results[0].history

    return run


def plain_loop():
    """Weights, statistic, counter and losses of the same training as a loop over epochs, steps and shards."""
    samples = dataset().training
    weights, statistic, counter, losses = np.zeros(3), 0.0, 0, []
    for epoch in range(EPOCHS):
        squares = 0.0
        for step, first in enumerate(range(0, N, TOTAL)):
            n = min(TOTAL, N - first)
            gradient, statistics = np.zeros(3), 0.0
            for shard in range(SHARDS):
                start, stop = first + n * shard // SHARDS, first + n * (shard + 1) // SHARDS
                if start == stop:
                    continue
                noise = np.random.default_rng([3, epoch, step, shard]).normal()
                x = samples.x[0][start:stop] + noise + statistic + counter
                error = x @ weights - samples.y[0][start:stop]
                gradient += 2 * error @ x
                statistics += (stop - start) * (statistic + 0.3 * (x.mean() - statistic))
                squares += (error**2).sum()
            weights, statistic, counter = weights - RATE * gradient / n, statistics / n, counter + 1
        losses.append(squares / N)
    return weights, statistic, counter, losses


@pytest.mark.parametrize(("n_ranks", "n"), [(1, 37), (2, 37), (3, 37), (5, 37), (1, 34), (3, 34)])
def test_shards_train_as_a_loop_over_them_on_any_number_of_ranks(trained, monkeypatch, n_ranks, n):
    """With 34 samples, the last step of an epoch has four, and the first rank of three none."""
    monkeypatch.setattr("tests.mpi_learn.test_shards.N", n)
    weights, statistic, counter, losses = plain_loop()
    models, history = trained(n_ranks)
    for model in models:
        assert model.weights == pytest.approx(weights, rel=1e-5)
        assert model.statistic == pytest.approx(statistic, rel=1e-5)
        assert model.counter == counter == 8
    assert history["loss"] == pytest.approx(losses, rel=1e-5)


def test_random_numbers_are_set_for_each_epoch_step_and_shard_once(trained):
    models, _ = trained(3)
    keys = [key for model in models for key in model.keys]
    assert sorted(keys) == [(3, epoch, step, shard) for epoch in range(2) for step in range(4) for shard in range(5)]
    assert {shard for *_, shard in models[0].keys} == {0}
    assert {shard for *_, shard in models[2].keys} == {3, 4}


def test_scaled_learning_rates_refer_to_the_total_batch(trained):
    optimizer = {"name": "sgd", "learning_rate": 1e-4, "schedule": {"scale": "linear"}}
    (alone, *_), _ = trained(1, optimizer=optimizer)
    for model in trained(3, optimizer=optimizer)[0]:
        assert model.weights == pytest.approx(alone.weights, rel=1e-6)


@pytest.mark.parametrize("shards", [{"shards": SHARDS}, {}])
def test_a_slow_rank_gets_a_smaller_share_of_the_next_epoch_and_the_result_is_the_same(trained, monkeypatch, shards):
    """Rank 2 takes nine times as long for a sample as the others."""
    seen = {rank: [] for rank in range(3)}
    gradient = NoisyModel.gradient

    def slowly(model, x, y, weights=()):
        seen[model.rank].append(len(x[0]))
        time.sleep(len(x[0]) * (0.018 if model.rank == 2 else 0.002))
        if not shards:
            model.rng, model.statistic, model.counter = np.random.default_rng(0), np.float32(0), 0
        return gradient(model, x, y, weights)

    (alone, *_), _ = trained(1)
    monkeypatch.setattr(NoisyModel, "gradient", slowly)
    batch = {"total": TOTAL, "balance": True} | shards
    models, _ = trained(3, batch_size=batch)
    for model in models if shards else ():
        assert model.weights == pytest.approx(alone.weights, rel=1e-5)
    if shards:  # of five: one, two and two at first, then two, two and one
        assert models[2].keys[0][3] == 3
        assert {key[3] for key in models[2].keys if key[1] == 1} == {4}
    else:
        per_step = np.array([seen[rank] for rank in range(3)])
        assert sorted(per_step[:, 0]) == [3, 3, 4]
        assert per_step[2, 4] == 1
        assert per_step[:, 4:].sum() == N


@pytest.mark.parametrize("balance", [False, True])
def test_steps_whose_time_is_measured_end_before_the_next_one_is_sent_to_a_gpu(trained, monkeypatch, balance):
    """A step that stays on a GPU has only been launched when the host reads its clock."""
    kept = []
    monkeypatch.setattr(NoisyModel, "keep_on_device", lambda model: kept.append(model))
    trained(2, batch_size={"total": TOTAL, "balance": balance})
    assert len(kept) == (0 if balance else 2)


def test_balance_may_leave_too_few_samples_only_on_several_ranks_without_shards(trained, monkeypatch):
    monkeypatch.setattr(NoisyModel, "least_samples", 2)
    batch = {"total": 4, "balance": True}
    samples = dataset().training.take(slice(36))
    monkeypatch.setattr(f"{__name__}.dataset", lambda: Dataset(samples, samples, None, np.arange(0)))
    with pytest.raises(ConfigurationError, match="may become 1 sample, the model needs 2") as refused:
        trained(2, batch_size=batch)
    assert refused.value.where == "batch_size.balance" and "shards" in refused.value.cure
    trained(2, batch_size=batch | {"shards": 2})
    trained(1, batch_size=batch)


@pytest.mark.parametrize(("batch", "parts"), [({"total": 10, "shards": 2}, "2 shards"), ({"total": 2}, "2 samples")])
def test_more_ranks_than_parts_of_a_step_are_refused(trained, batch, parts):
    with pytest.raises(ConfigurationError, match=f"a step has {parts}, which 3 ranks cannot share"):
        trained(3, batch_size=batch)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"batch_size": {"total": 10, "shards": 3}}, "10 samples cannot be divided into 3 equal shards"),
        ({"batch_size": {"total": 0}}, "expected 1 or more, found 0"),
        ({"batch_size": 0}, "expected 1 or more, found 0"),
        ({"batch_size": "large"}, "expected an integer, found 'large'"),
        ({"batch_size": {"shards": 2}}, "this key is required"),
        ({"batch_size": {"total": 4, "shard": 2}}, "unknown key"),
        ({"batch_size": {"total": 4}, "algorithm": "easgd"}, "batch_size.total needs allreduce, .* is easgd"),
        ({"algorithm": {"name": "allreduce", "accumulate": 2}}, "both divide a step into parts"),
        ({"algorithm": {"name": "allreduce", "compression": "float16"}}, "float16 depends on how the shards"),
    ],
)
def test_batch_sizes_that_have_no_meaning_are_refused(changes, problem):
    with pytest.raises(ConfigurationError, match=problem):
        configured(**changes)


@pytest.mark.parametrize(
    "specification",
    [
        pytest.param("tests.mpi_learn.models_for_tests:build_model", marks=needs("keras")),
        pytest.param("tests.mpi_learn.torch_models_for_tests:build_classes", marks=needs("torch")),
    ],
)
def test_dropout_depends_on_the_keys_of_a_shard_alone(specification):
    """Also on two models of ranks with other streams of random numbers, of which one has made a step before."""
    loss = "cross_entropy" if "torch" in specification else "sparse_categorical_crossentropy"
    wanted = ModelConfiguration(model=specification, parameters={"dropout": 0.5, "units": 64}, loss=loss)
    x = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    batch = (x,), (np.arange(8),)
    models = [make_model(ModelSettings(wanted, stream=stream), Example(*batch)) for stream in range(2)]
    models[1].gradient(*batch)

    def gradient(model, *keys):
        model.state.seed_random(keys)
        return model.gradient(*batch).copy()

    first = gradient(models[0], 5, 0, 1, 2)
    assert np.array_equal(gradient(models[1], 5, 0, 1, 2), first)
    assert np.array_equal(gradient(models[0], 5, 0, 1, 2), first)
    assert not np.allclose(gradient(models[0], 5, 0, 1, 3), first)
