"""Whether a loss is a mean over the samples of a batch: only then do several ranks train like one."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from mpi_learn.flat_layout import LOSS, WEIGHT
from mpi_learn.models.model import Model
from mpi_learn.models.settings import Example

COMPARES_SAMPLES = (
    "the loss of a batch is not the mean of the losses of its samples: it compares samples, or divides by a property of"
    " the batch. Each rank computes it on its own batch, so that the training depends on the number of ranks"
)
FEWEST, MOST = 4, 32
"""Numbers of samples with which a loss is tried."""
TOLERANCE, OF_FEW_BITS = 1e-4, 2e-2
"""Relative errors of a loss in 32 bits on the CPU; and on a GPU or with 16 bits."""


def compares_samples(model: Model, example: Example, precision: str) -> bool:
    """Whether the loss of a batch differs from the mean over its halves, in inference mode. The state does not change.

    Only losses of the user are tried, and not those that draw random numbers.
    """
    n = min(len(example), MOST)
    if not (model.has_custom_loss and model.can_evaluate) or n < FEWEST:
        return False
    whole, integers = example.part(0, n), model.state.integers()
    try:
        with ExitStack() as rehearsals:
            for network in model.networks.values():
                rehearsals.enter_context(network.rehearsal())
            first, second = (_sums(model, part) for part in (whole.part(0, n // 2), whole.part(n // 2, n)))
            seeded = _sums(model, whole)
        again = _sums(model, whole)
    except Exception:  # noqa: BLE001 - of the user's loss, which may need more samples
        return False
    finally:
        model.state.set_integers(integers)
    losses = [_loss(sums) for sums in (seeded, again, first + second, first, second)]
    few_bits = model.uses_gpu or precision != "float32"
    tolerance = (OF_FEW_BITS if few_bits else TOLERANCE) * float(np.abs(losses).max())
    is_random = abs(losses[0] - losses[1]) > tolerance
    return not is_random and abs(losses[0] - losses[2]) > tolerance  # False with NaN


def _sums(model: Model, example: Example) -> np.ndarray:
    return model.evaluate(example.x, example.y, example.weights)


def _loss(sums: np.ndarray) -> float:
    return float(sums[LOSS] / (sums[WEIGHT] or 1.0))
