"""The outer optimizer of DiLoCo (Douillard et al. 2023, arXiv:2311.08105, algorithm 1).

The k clusters start from common weights θ and train independently for H steps to their weights wᵢ. The negative mean
of their changes is the *pseudo-gradient*, ``Δ = (1/k) Σᵢ (θ − wᵢ)``. An outer optimizer with Nesterov momentum applies
it: ``v ← μv − ηΔ``, ``θ ← θ + μv − ηΔ``. With η = 1 and μ = 0 the result is the mean of the clusters' weights.
"""

from __future__ import annotations

import numpy as np

from mpi_learn.algorithms.configuration import Nesterov
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.make_optimizer import make_optimizer


class OuterOptimizer:
    """Holds the common weights θ and the momentum. All leaders compute the same values.

    Args:
        options: Learning rate η and momentum μ.
        n: Number of weights.
    """

    def __init__(self, options: Nesterov, n: int) -> None:
        sgd = Sgd(learning_rate=options.learning_rate, momentum=options.momentum, nesterov=options.momentum > 0)
        self._optimizer = make_optimizer(sgd, FlatLayout(((n,),)))
        self._common = np.zeros(n, np.float32)

    def start(self, weights: np.ndarray) -> None:
        """Makes `weights` the common weights from which the clusters start."""
        self._common[:] = weights

    def apply(self, mean: np.ndarray) -> np.ndarray:
        """Makes one step.

        Args:
            mean: Mean of the clusters' weights, (n,) float32; its content is lost.

        Returns:
            The new common weights, to be read only.
        """
        self._optimizer.update(self._common, np.subtract(self._common, mean, out=mean))
        return self._common

    def arrays(self) -> dict[str, np.ndarray]:
        """The state, for a checkpoint. Resuming writes into these arrays."""
        return {"outer.common": self._common} | {f"outer.{k}": v for k, v in self._optimizer.arrays().items()}
