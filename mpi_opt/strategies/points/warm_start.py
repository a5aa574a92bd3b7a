"""An earlier study's results as a strategy takes them: its best points first, and all of them to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_opt.core.space import Parameters, Space
from mpi_opt.strategies.points.constraint import Constraint

N_ATTEMPTS = 64


@dataclass(frozen=True)
class Transfer:
    """What an earlier study found.

    Attributes:
        found: Hyperparameters of this space that the earlier one had, too, and the value to minimise; best first.
        best: So many of them are proposed first.
        learn: Whether a strategy that can learns from all of them.
    """

    found: Sequence[tuple[Parameters, float]]
    best: int = 5
    learn: bool = True

    def options(self, space: Space, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """A strategy's options with the best points as known ones, after the user's; those not allowed are left out."""
        initial = list(options.get("initial", ()))
        constraints = [Constraint(text, space) for text in options.get("constraints", ())]
        left = self.best
        for position, (parameters, _) in enumerate(self.found):
            rng = np.random.default_rng([abs(seed), position, 3])
            point = None if left == 0 else _allowed(space, parameters, constraints, rng)
            if point is not None and point not in initial:
                initial.append(point)
                left -= 1
        return {**options, "initial": initial}

    def points(self, space: Space, seed: int) -> tuple[list[tuple[Parameters, float]], frozenset[str]]:
        """All that was found as points of `space`, and the hyperparameters that were not drawn."""
        rng = np.random.default_rng([abs(seed), 4])
        known = frozenset(name for parameters, _ in self.found for name in parameters)
        return [(_completed(space, parameters, rng), value) for parameters, value in self.found], known


def _allowed(
    space: Space, parameters: Parameters, constraints: Sequence[Constraint], rng: np.random.Generator
) -> Parameters | None:
    """A point with `parameters` that meets the constraints; None if there seems to be none."""
    for _ in range(N_ATTEMPTS):
        point = _completed(space, parameters, rng)
        if all(constraint.is_met(point) for constraint in constraints):
            return point
    return None


def _completed(space: Space, parameters: Parameters, rng: np.random.Generator) -> Parameters:
    """`parameters` as a point: what it does not say is drawn from the prior."""
    return space.active(space.sample_all(rng) | parameters)
