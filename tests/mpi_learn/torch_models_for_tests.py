"""Small PyTorch models that the tests share."""

from __future__ import annotations

import torch
from torch import nn


def build_classes(units=16, norm=False, dropout=0.0, classes=10):
    layers = [nn.Linear(64, units), nn.ReLU()]
    if norm:
        layers.append(nn.BatchNorm1d(units))
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(units, classes))


def build_regression(units=8):
    return nn.Sequential(nn.Linear(3, units), nn.Tanh(), nn.Linear(units, 1))


class TwoByTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy, self.kind = nn.Linear(5, 1), nn.Linear(5, 2)

    def forward(self, a, b):
        joined = torch.cat([a, b], 1)
        return self.energy(joined), self.kind(joined)


def build_two_by_two():
    return TwoByTwo()


def build_nothing():
    return None


def absolute_error(labels, outputs):
    return (labels - outputs).abs()
