"""Warm start: the results of an earlier study as known points and as data to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_opt.core.space import Parameters, Space
from mpi_opt.strategies.points.constraint import Constraint
from mpi_opt.strategies.points.options import Options, read_options

N_ATTEMPTS = 64
"""The number of draws of the missing hyperparameters, until a point satisfies the constraints."""


@dataclass(frozen=True)
class Transfer:
    """Results of an earlier study.

    Attributes:
        found: For each earlier trial, the hyperparameters that both studies have, and its cost; best first.
        best: How many of the best trials are proposed first.
        learn: Whether the strategy may also learn from all of the trials.
    """

    found: Sequence[tuple[Parameters, float]]
    best: int = 5
    learn: bool = True

    def options(self, space: Space, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """The strategy's options with the best points added after the user's known points.

        Points that cannot satisfy the constraints are left out.
        """
        common = read_options(Options, {name: options[name] for name in Options.model_fields if name in options})
        initial = list(common.initial)
        constraints = [Constraint(text, space) for text in common.constraints]
        remaining = self.best
        for position, (parameters, _) in enumerate(self.found):
            if remaining == 0:
                break
            point = _allowed(space, parameters, constraints, np.random.default_rng([seed, position, 3]))
            if point is not None and point not in initial:
                initial.append(point)
                remaining -= 1
        return {**options, "initial": initial}

    def points(self, space: Space, seed: int) -> tuple[list[tuple[Parameters, float]], frozenset[str]]:
        """All results as points of `space`, and the hyperparameters that were not drawn at random."""
        rng = np.random.default_rng([seed, 4])
        known = frozenset(name for parameters, _ in self.found for name in parameters)
        return [(_completed(space, parameters, rng), cost) for parameters, cost in self.found], known


def _allowed(
    space: Space, parameters: Parameters, constraints: Sequence[Constraint], rng: np.random.Generator
) -> Parameters | None:
    """A point with `parameters` that satisfies the constraints; None if `N_ATTEMPTS` draws find none."""
    for _ in range(N_ATTEMPTS):
        point = _completed(space, parameters, rng)
        if all(constraint.is_met(point) for constraint in constraints):
            return point
    return None


def _completed(space: Space, parameters: Parameters, rng: np.random.Generator) -> Parameters:
    """`parameters` with the missing hyperparameters drawn from the prior."""
    drawn = {name: dimension.sample(rng) for name, dimension in space.items()}
    return space.active(drawn | parameters)
