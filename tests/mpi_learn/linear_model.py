"""A linear regression in NumPy, for tests of what no framework changes. Keras takes 0.3 s to build a model."""

from __future__ import annotations

import numpy as np

from mpi_learn.flat_layout import LOSS, N_FLAGS, N_SAMPLES, WEIGHT, FlatLayout, aligned_empty
from mpi_learn.models.model import Model
from mpi_learn.models.network import ArrayKind
from mpi_learn.models.settings import Arrays
from mpi_learn.models.weights_only import StateOnly

N_INPUTS = 3


class LinearModel(Model):
    """The mean squared error of x·w + b. Its state is a counter of its steps."""

    framework = "numpy"
    networks = {}  # noqa: RUF012 - of no framework
    layout = FlatLayout(((N_INPUTS,), (1,)))
    n_sums = 3 + N_FLAGS

    def __init__(self) -> None:
        self.weights = aligned_empty(self.layout.size)
        self.weights[:] = 0.1
        self.state = StateOnly(0, 1)

    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        self.state.set_integers(self.state.integers() + 1)
        errors = self.predict(x)[0] - y[0]
        slopes = 2 * errors @ x[0], [2 * errors.sum()]
        return np.concatenate([*slopes, self.evaluate(x, y)]).astype(np.float32)

    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        sums = np.zeros(self.n_sums)
        sums[[WEIGHT, N_SAMPLES]] = len(x[0])
        sums[LOSS] = np.sum((self.predict(x)[0] - y[0]) ** 2, dtype=np.float64)
        return sums

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        return {"loss": float(sums[LOSS] / max(sums[WEIGHT], 1))}

    def check_labels(self, y: Arrays) -> None:
        pass

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        kernel, bias = self.layout.views(self.weights)
        return (x[0] @ kernel + bias,)

    def probe(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> list[np.ndarray]:
        return list(self.predict(x))

    def arrays(self) -> list[ArrayKind]:
        named = zip(("kernel", "bias"), self.layout.shapes, strict=True)
        return [ArrayKind(name, shape, "float32", is_trained=True) for name, shape in named]

    def current(self) -> np.ndarray:
        return self.weights.copy()
