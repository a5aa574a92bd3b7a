"""The micro-batches of a step, and the order in which a stage makes their passes: one function per schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple


class Operation(NamedTuple):
    """A pass of one micro-batch through a stage.

    Attributes:
        is_forward: A forward pass, else a backward pass.
        micro_batch: The index of the micro-batch.
    """

    is_forward: bool
    micro_batch: int


Schedule = Callable[[int, int, int], list[Operation]]
"""(stage, number of stages, number of micro-batches) -> the operations of that stage, in order."""


def micro_batches(n: int, wanted: int, least: int = 1) -> list[slice]:
    """Divides the samples of a batch into `wanted` parts whose sizes differ by at most one.

    Args:
        n: Number of samples.
        wanted: Number of parts; a small batch has fewer.
        least: The smallest part that can be trained with.
    """
    parts = min(wanted, max(n // least, min(n, 1)))
    bounds = [n * index // parts for index in range(parts + 1)] if parts else [0]
    return [slice(first, stop) for first, stop in pairwise(bounds)]


def forward_only(n: int) -> list[Operation]:
    """The operations of every stage if nothing is trained."""
    return [Operation(True, index) for index in range(n)]


def gpipe(stage: int, n_stages: int, n: int) -> list[Operation]:
    """All forward passes, then all backward passes (Huang et al. 2019)."""
    return [*forward_only(n), *(Operation(False, index) for index in range(n))]


def one_forward_one_backward(stage: int, n_stages: int, n: int) -> list[Operation]:
    """Forward and backward passes in turn, after one more forward pass for each later stage (PipeDream-Flush).

    Micro-batch 0 returns from the last stage as early as possible. A stage therefore keeps the activations of at most
    `n_stages` - `stage` micro-batches (Narayanan et al. 2021, figure 4).
    """
    n_ahead = min(n_stages - 1 - stage, n)
    operations = forward_only(n_ahead)
    for index in range(n_ahead, n):
        operations += [Operation(True, index), Operation(False, index - n_ahead)]
    return [*operations, *(Operation(False, index) for index in range(n - n_ahead, n))]


SCHEDULES: Mapping[str, Schedule] = {"gpipe": gpipe, "1f1b": one_forward_one_backward}
