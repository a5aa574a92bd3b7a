"""The gradient of a step of shards, their shares by the speeds of ranks, and whether a model needs shards."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from mpi_learn.algorithms.allreduce import mean_statistics, weighted_statistics
from mpi_learn.data.samples.make_batches import Shards
from mpi_learn.models.model import Model
from mpi_learn.models.settings import Example

UNSETTABLE_RANDOM = (
    "a layer, loss or metric draws random numbers with tf.random, or on PyTorch with keras.random without a "
    "SeedGenerator. Their state cannot be set for each shard: results depend on the number of ranks. Use keras.random "
    "with a keras.random.SeedGenerator"
)
COMPRESSED = (
    "each rank has compression errors of its own, so that results depend on the number of ranks: leave compression out "
    "for the same results on any number"
)


class ShardedGradient:
    """Computes the gradient of this rank's shards one after the other, as if each had a rank and a model of its own.

    Gradients are summed in float64, here and by the algorithm: in float32, the sum would depend on how the shards are
    divided among the ranks, and Adam makes large steps of the rounding errors of small gradients.

    All shards of a step begin with the same batch statistics. The random numbers of a shard depend on the seed, the
    epoch, the step and the number of the shard alone. At the end, the model has the mean statistics of the rank's
    shards; the algorithm averages those of the ranks in every step.

    Args:
        seed: The seed of the training.
    """

    def __init__(self, model: Model, seed: int) -> None:
        self.model, self.seed = model, seed
        self._total = np.zeros(model.layout.size + model.n_sums)
        self._has_statistics = model.state.floats().size > 0
        self._has_counters = bool((~model.state.random_mask()).any())

    def __call__(self, epoch: int, step: int, shards: Shards) -> np.ndarray:
        """The step vector of a rank, as `Model.gradient` returns that of a batch, in float64."""
        state = self.model.state
        # an empty shard changes nothing; one is computed if there is no other, because a GAN counts its steps
        numbered = [(number, batch) for number, batch in enumerate(shards.batches, shards.first) if len(batch)]
        numbered = numbered or [(shards.first, shards.batches[0])]
        floats, integers = state.floats(), state.integers()
        statistics = np.zeros(floats.size + 1)
        self._total[:] = 0
        for index, (number, batch) in enumerate(numbered):
            if index and self._has_statistics:
                state.set_floats(floats)
            if index and self._has_counters:
                state.set_integers(integers)
            state.seed_random((self.seed, epoch, step, number))
            self._total += self.model.gradient(batch.x, batch.y, batch.weights)
            if self._has_statistics and len(numbered) > 1:
                statistics += weighted_statistics(state, float(len(batch)))
        if self._has_statistics and len(numbered) > 1:
            state.set_floats(mean_statistics(statistics))
        return self._total

    def counters(self, n_ranks: int) -> np.ndarray | None:
        """The integers of the model, of which all ranks use those of the last one; None if ranks cannot differ.

        In the last step of an epoch, all shards of a rank may be empty: its layers then do not count the step. The last
        shard, which the last rank computes, is never empty.
        """
        return self.model.state.integers() if n_ranks > 1 and self._has_counters else None

    def use_counters(self, of_last: np.ndarray) -> None:
        """Takes the integers of the last rank, except random states, which each shard seeds."""
        state = self.model.state
        state.set_integers(np.where(state.random_mask(), state.integers(), of_last))


def dependence_on_ranks(model: Model, example: Example, *, has_shards: bool) -> str:
    """A sentence if a training of `model` with a total batch depends on the number of ranks; empty if it does not.

    Without shards, one step on the example shows whether the model draws random numbers or has batch statistics. The
    model is as before.
    """
    if has_shards:
        return UNSETTABLE_RANDOM if model.has_unsaved_random else ""
    if len(example) < model.least_samples:
        return ""
    state = model.state
    before = state.floats(), state.integers()
    with model.repeatable():
        floats, random = state.floats(), state.integers()[state.random_mask()]
        model.gradient(example.x, example.y, example.weights)
        has_statistics = not np.array_equal(floats, state.floats(), equal_nan=True)
        is_random = model.has_unsaved_random or not np.array_equal(random, state.integers()[state.random_mask()])
    state.set_floats(before[0])
    state.set_integers(before[1])  # also what no network holds, such as the place of a GAN in its round
    reasons = ["draws random numbers"] * is_random + ["has batch statistics"] * has_statistics
    if not reasons:
        return ""
    return (
        f"the model {' and '.join(reasons)} in each rank's share of a step, so that results depend on the number of "
        "ranks: write batch_size: {total: …, shards: …} for the same results on any number"
    )


def speeds(measured: Sequence[tuple[int, float]]) -> list[float]:
    """The speed of each rank in samples per second; the median one for a rank without a measurement.

    Args:
        measured: Of each rank, the samples of an epoch and the seconds in which it computed their gradients.
    """
    known = [n / seconds for n, seconds in measured if n and seconds > 0]
    typical = median(known) if known else 1.0
    return [n / seconds if n and seconds > 0 else typical for n, seconds in measured]
