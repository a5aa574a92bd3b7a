"""The models that are divided into stages."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

WIDTH, DEPTH = 2048, 13
"""54.6 million parameters."""


def dense(width: int = WIDTH, depth: int = DEPTH) -> nn.Module:
    """Dense layers of equal size; each rank builds all of them, and keeps its stage."""
    return nn.Sequential(*_layers(width, depth))


def dense_stages(stages: int, width: int = WIDTH, depth: int = DEPTH) -> list[Callable[[], nn.Module]]:
    """Functions that build the stages of `dense`: no rank builds the others."""
    bounds = [depth * index // stages for index in range(stages + 1)]
    return [
        lambda n=stop - first: nn.Sequential(*_layers(width, n))  # type: ignore[misc]
        for first, stop in pairwise(bounds)
    ]


def _layers(width: int, depth: int) -> list[nn.Module]:
    return [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]


def convolutional() -> nn.Module:
    """Few parameters, which are used at many places of an image."""
    channels = [(1, 32), *[(32, 32)] * 5]
    convolutions = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in channels]
    return nn.Sequential(*convolutions, nn.Sequential(nn.Flatten(), nn.Linear(32 * 16 * 16, 16)))


class Sleep(torch.autograd.Function):
    """Takes time in the forward pass, and twice the time in the backward pass, without using a core."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        context.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        time.sleep(2 * context.seconds)
        return gradient, None


class Sleeping(nn.Module):
    """A layer that sleeps in training."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.layer, self.seconds = nn.Linear(16, 16), seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(x)
        return Sleep.apply(outputs, self.seconds) if self.training else outputs


def sleeping_stages(stages: int, seconds: float) -> list[nn.Module]:
    """Stages that take the same time for each micro-batch."""
    return [Sleeping(seconds) for _ in range(stages)]


def perceptron(width: int = 256) -> nn.Module:
    """Four dense layers for the 784 pixels of images with ten classes."""
    hidden = [layer for _ in range(2) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def images() -> nn.Module:
    """Two convolutions and two dense layers for the same images."""
    convolutions = [(1, 16), (16, 32)]
    blocks = [layer for a, b in convolutions for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))]
    dense = [nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Unflatten(1, (1, 28, 28)), *blocks, *dense)


class Recurrent(nn.Module):
    """A GRU whose output passes to the next layer: all places, or the last one."""

    def __init__(self, inputs: int, units: int, *, last: bool = False) -> None:
        super().__init__()
        self.layer, self.last = nn.GRU(inputs, units, batch_first=True), last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(x)[0]
        return outputs[:, -1] if self.last else outputs


class Mean(nn.Module):
    """The mean over all places."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


def recurrent() -> nn.Module:
    """Sequences of 50 particles with 8 features: recurrent layers, whose places follow one another, then dense ones."""
    dense = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    head = [nn.Linear(64, 1024), nn.ReLU(), *dense, nn.Linear(1024, 4)]
    return nn.Sequential(Recurrent(8, 64), Recurrent(64, 64), Recurrent(64, 64, last=True), *head)


def attention() -> nn.Module:
    """Sets of 100 particles with 8 features: attention, whose cost is not in its parameters, then dense layers."""
    blocks = [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True) for _ in range(4)]
    dense = [layer for _ in range(4) for layer in (nn.Linear(200, 200), nn.ReLU())]
    return nn.Sequential(nn.Linear(8, 32), *blocks, Mean(), nn.Linear(32, 200), nn.ReLU(), *dense, nn.Linear(200, 4))
