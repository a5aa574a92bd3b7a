"""The network of the table: a dense tagger of simulated jets in PyTorch, and its inputs."""

from itertools import pairwise

import h5py
import numpy as np
from torch import nn

N_HARDEST = 10


def inputs(file: str) -> tuple[np.ndarray, np.ndarray]:
    """46 standardised inputs for each jet, and its class (0 gluon, 1 quark).

    The inputs are the six jet features, and ln(1 + pt / GeV), Δη, Δφ and charge of the ten hardest particles.
    """
    with h5py.File(file) as jets:
        particles, features, y = jets["X"][:, :N_HARDEST], jets["jet"][:], jets["y"][:]
    particles[..., 0] = np.log1p(particles[..., 0])
    x = np.concatenate([features, particles.reshape(len(y), -1)], 1)
    return ((x - x.mean(0)) / x.std(0)).astype(np.float32), y.astype(np.int64)


def build(units: int = 32, depth: int = 2, dropout: float = 0.15) -> nn.Module:
    """Dense layers with ReLU and dropout; returns the logits of two classes.

    Args:
        units: Neurons in each hidden layer.
        depth: The number of hidden layers.
        dropout: The fraction of each hidden layer that is left out in training.
    """
    sizes = [6 + 4 * N_HARDEST, *[units] * depth]
    layers = [[nn.Linear(a, b), nn.ReLU(), nn.Dropout(dropout)] for a, b in pairwise(sizes)]
    return nn.Sequential(*(layer for group in layers for layer in group), nn.Linear(units, 2))
