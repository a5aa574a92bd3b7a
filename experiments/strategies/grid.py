"""The grid of configurations, and the table of their validation losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpi_opt.core.search_space.space import Integer, Parameters, Space

AXES: dict[str, tuple] = {
    "learning_rate": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "units": (8, 16, 32, 64, 128),
    "depth": (1, 2, 3),
    "dropout": (0.0, 0.15, 0.3, 0.45),
}
"""Hyperparameter -> its values, in order."""

SHAPE = tuple(map(len, AXES.values()))
N_EPOCHS = 9
TABLE = Path(__file__).with_name("table.npz")


def space() -> Space:
    """The position on each axis; steps of learning rate and units are about equal in their logarithm."""
    return Space({name: Integer(0, len(values) - 1) for name, values in AXES.items()})


class Table:
    """Validation losses of all configurations after each epoch.

    Args:
        losses: Shape (*SHAPE, epochs).
    """

    def __init__(self, losses: np.ndarray) -> None:
        self.losses = losses.astype(float)
        self.best = float(self.losses[..., -1].min())

    @classmethod
    def load(cls) -> Table:
        """The table that is part of the repository."""
        with np.load(TABLE) as table:
            return cls(table["val_loss"])

    def loss(self, point: Parameters, epochs: int = N_EPOCHS) -> float:
        """The validation loss of a configuration after some epochs."""
        return float(self.losses[(*(point[name] for name in AXES), epochs - 1)])
