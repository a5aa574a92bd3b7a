"""The network that is trained while ranks die."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported; each core already has a rank


def build(units: int, dropout: float):
    """A classifier of 64 pixels into ten digits."""
    from torch import nn

    return nn.Sequential(nn.Linear(64, units), nn.ReLU(), nn.Dropout(dropout), nn.Linear(units, 10))
