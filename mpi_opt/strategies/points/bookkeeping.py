"""The books that every strategy keeps: numbers, what is pending, which points were seen and what came of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, final

from mpi_opt.core.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal, is_usable
from mpi_opt.errors import SpaceError
from mpi_opt.strategies.points.constraint import Constraint
from mpi_opt.strategies.points.options import Options
from mpi_opt.strategies.strategy import Cost


@final
class Ledger:
    """Numbers proposals and remembers which points were seen.

    Points are remembered only where one could come twice by chance: without a continuum, or where each is conditional
    and some points lie in none. A strategy that must know more asks for it with `keeps_points`.

    Args:
        space: The search space.
        options: The strategy's options; their known points come first and their constraints are kept.
        keeps_points: Remember every point, in a continuum too.

    Attributes:
        pending: Number -> proposal, of those asked for and not told yet.
        n_asked: How many proposals were numbered.
        n_told: How many outcomes came in.
        best: The smallest value told so far, and its parameters; None before the first. Of tuples, where there are
            several figures of merit, the one with the smallest first value.
    """

    def __init__(self, space: Space, options: Options, *, keeps_points: bool = False) -> None:
        self.space = space
        self.pending: dict[int, Proposal] = {}
        self.n_asked = self.n_told = 0
        self.best: tuple[Cost, Parameters] | None = None
        self._names = tuple(space)
        self._constraints = [Constraint(text, space) for text in options.constraints]
        is_always_new = any(math.isinf(dimension.size) and not dimension.when for dimension in space.values())
        self._keeps_points = keeps_points or not is_always_new
        self._seen: set[str] = set()
        self._initial = [self._checked(point, index) for index, point in enumerate(options.initial)]

    @property
    def is_constrained(self) -> bool:
        """Whether not every point of the space may be proposed."""
        return bool(self._constraints)

    @property
    def n_seen(self) -> int:
        """How many different points were proposed or told, where points are remembered."""
        return len(self._seen)

    def allows(self, parameters: Parameters) -> bool:
        """Whether `parameters` meet the constraints."""
        return all(constraint.is_met(parameters) for constraint in self._constraints)

    def is_new(self, parameters: Parameters) -> bool:
        """Whether `parameters` were neither proposed nor told; always True where points are not remembered."""
        return not self._keeps_points or self._key(parameters) not in self._seen

    def initial(self) -> Parameters | None:
        """The next known point that was not seen yet, taken off the list."""
        while self._initial:
            point = self._initial.pop(0)
            if self._key(point) not in self._seen:
                return point
        return None

    def propose(
        self, parameters: Parameters, *, budget: float | None = None, resume_from: int | None = None
    ) -> Proposal:
        """Numbers a proposal and enters it as pending."""
        proposal = Proposal(self.n_asked, parameters, budget, resume_from)
        self.enter(proposal)
        return proposal

    def enter(self, proposal: Proposal) -> None:
        """Enters a proposal as pending, whoever made it; numbers go on after it."""
        self.n_asked = max(self.n_asked, proposal.number + 1)
        self.pending[proposal.number] = proposal
        self._see(proposal.parameters)

    def settle(self, proposal: Proposal, outcome: Cost | Failed) -> Cost | None:
        """Takes an outcome in.

        Returns:
            The value to minimise, or a tuple of several; None if there is none (`Failed`, or one is NaN or infinite).
        """
        if self.pending.pop(proposal.number, None) is None:
            self.n_asked = max(self.n_asked, proposal.number + 1)
            self._see(proposal.parameters)
        self.n_told += 1
        value = _value(outcome)
        if value is not None and (self.best is None or value < self.best[0]):
            self.best = (value, dict(proposal.parameters))
        return value

    def resume(
        self, told: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal]
    ) -> list[tuple[Proposal, Cost | None]]:
        """Takes up the books of an earlier run; returns what was told, with None for those that failed."""
        values = [(proposal, self.settle(proposal, outcome)) for proposal, outcome in told]
        for proposal in pending:
            self.enter(proposal)
        return values

    def state(self) -> dict[str, Any]:
        """The books in short, as JSON knows them."""
        best = None if self.best is None else {"value": self.best[0], "parameters": self.best[1]}
        return {"asked": self.n_asked, "told": self.n_told, "pending": sorted(self.pending), "best": best}

    def _see(self, parameters: Parameters) -> None:
        if self._keeps_points or self._initial:
            self._seen.add(self._key(parameters))

    def _key(self, parameters: Parameters) -> str:
        return repr([parameters.get(name, ...) for name in self._names])

    def _checked(self, point: dict[str, Any], index: int) -> Parameters:
        try:
            self.space.check(point)
        except SpaceError as error:
            raise error.at(f"search.options.initial[{index}]") from None
        point = {name: self.space[name].exact(value) for name, value in self.space.active(point).items()}
        if not self.allows(point):
            raise SpaceError(
                f"{point} does not meet the constraints", where=f"search.options.initial[{index}]", cure="change either"
            )
        return point


def _value(outcome: Cost | Failed) -> Cost | None:
    if isinstance(outcome, tuple):
        return tuple(map(float, outcome)) if all(map(is_usable, outcome)) else None
    return float(outcome) if not isinstance(outcome, Failed) and is_usable(outcome) else None
