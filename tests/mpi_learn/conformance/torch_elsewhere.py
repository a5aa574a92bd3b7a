"""A model that other files import."""

from __future__ import annotations

from torch import nn


class Imported(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
