"""The same small classifier of digits for Keras and PyTorch, with dropout and batch normalization."""

from __future__ import annotations

import time
from typing import Any

UNITS, DROPOUT = 64, 0.3


def build_keras(is_random: bool = True) -> Any:
    """A Keras model; without randomness and batch statistics if not `is_random`."""
    import keras

    layers = keras.layers
    extra = [layers.BatchNormalization(), layers.Dropout(DROPOUT)] if is_random else []
    return keras.Sequential(
        [layers.Input((64,)), layers.Dense(UNITS, "relu"), *extra, layers.Dense(10, activation="softmax")]
    )


def build_torch(is_random: bool = True, pause_s: float = 0.0, slowness: float = 1.0) -> Any:
    """A PyTorch module.

    Args:
        is_random: Whether it draws random numbers and has batch statistics.
        pause_s: A pause for each sample in training, the stand-in for a larger model on cores of its own.
        slowness: The factor of the pause on the last rank.
    """
    from mpi4py import MPI
    from torch import nn

    is_last = MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1
    own_s = pause_s * (slowness if is_last else 1.0)

    class Paused(nn.Module):
        def forward(self, x: Any) -> Any:
            if self.training:
                time.sleep(own_s * len(x))
            return x

    extra = [nn.BatchNorm1d(UNITS), nn.Dropout(DROPOUT)] if is_random else []
    first = [Paused()] if pause_s else []
    return nn.Sequential(*first, nn.Linear(64, UNITS), nn.ReLU(), *extra, nn.Linear(UNITS, 10))


def build_wide(units: int = 2048) -> Any:
    """A PyTorch module whose steps compute long enough that two ranks are faster than one."""
    from torch import nn

    return nn.Sequential(nn.Linear(64, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 10))
