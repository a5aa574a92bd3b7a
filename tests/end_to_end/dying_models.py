"""Models whose ranks are killed in the middle of a training.

The file ``deaths`` in the current folder has a line ``rank number`` for each rank that dies, once, in its forward pass
with that number in training. After each epoch, the file ``epochs`` gets a line.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

_N_PASSES = [0]


def write_samples(folder: Path, n: int = 200) -> None:
    """Eight numbers and a class of three."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 8)).astype(np.float32)
    np.savez(folder / "samples.npz", x=x, y=(x[:, 0] + x[:, 1] ** 2 > 0.5).astype(int) + (x[:, 2] > 1))


def die_if_due() -> None:
    """Counts a forward pass, and kills this process if the file says so."""
    _N_PASSES[0] += 1
    rank, died = MPI.COMM_WORLD.rank, Path(f"died-{MPI.COMM_WORLD.rank}")
    deaths = dict(map(int, line.split()) for line in Path("deaths").read_text().splitlines())
    if _N_PASSES[0] >= deaths.get(rank, 10**9) and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def build_slow():
    """Needs 2 ms for each sample of a batch."""
    from torch import nn

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 3))

        def forward(self, x):
            if self.training:
                time.sleep(2e-3 * len(x))
            return self.layers(x)

    return Slow()


def build_torch():
    from torch import nn

    class Dying(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
            )

        def forward(self, x):
            if self.training:
                die_if_due()
            return self.layers(x)

    return Dying()


def build_keras():
    import keras
    import tensorflow as tf

    class Dying(keras.layers.Layer):
        def call(self, x, training=False):
            if training and not isinstance(x, keras.KerasTensor):
                tf.py_function(die_if_due, [], [])
            return x

        def compute_output_shape(self, shape):
            return shape

    layers = keras.layers
    hidden = [layers.Dense(16), layers.BatchNormalization(), layers.ReLU(), layers.Dropout(0.2)]
    return keras.Sequential([layers.Input((8,)), *hidden, Dying(), layers.Dense(3, "softmax")])


def log_epoch(epoch, metrics, model):
    with Path("epochs").open("a") as file:
        file.write(f"{epoch}\n")
