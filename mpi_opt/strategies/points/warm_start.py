"""Warm start: the results of an earlier study as known points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.strategies.points.bookkeeping import Options, read_options
from mpi_opt.strategies.points.constraint import Constraint

N_ATTEMPTS = 64
"""The number of draws of the missing hyperparameters, until a point satisfies the constraints."""


@dataclass(frozen=True)
class Transfer:
    """Results of an earlier study.

    Attributes:
        found: For each earlier trial, the hyperparameters that both studies have; best first.
        best: How many of the best trials are proposed first.
    """

    found: Sequence[Parameters]
    best: int = 5

    def options(self, space: Space, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """The strategy's options with the best points added after the user's known points.

        Points that cannot satisfy the constraints are left out.
        """
        common = read_options(Options, {name: options[name] for name in Options.model_fields if name in options})
        initial = list(common.initial)
        constraints = [Constraint(text, space) for text in common.constraints]
        remaining = self.best
        for position, parameters in enumerate(self.found):
            if remaining == 0:
                break
            point = _allowed(space, parameters, constraints, np.random.default_rng([seed, position, 3]))
            if point is not None and point not in initial:
                initial.append(point)
                remaining -= 1
        return {**options, "initial": initial}


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
