"""Runs given points several times, to measure how much their costs vary, as at the end of a search with ``confirm``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from pydantic import Field

from mpi_opt.core.search_space.space import Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, proposals_up_to, read_options
from mpi_opt.strategies.strategy import Cost, Strategy


class RepeatedPointsOptions(Options):
    """The options of `RepeatedPoints`.

    Attributes:
        points: The points.
        times: How often each of them runs.
        first: The number of the first trial. The seeds of trials depend on their numbers, so that other numbers than
            those of a search give other seeds.
        default: The one of the points that is the default configuration.
        confirms: The name of the study whose trials are repeated.
        budget: The budget of each run; None without one.
    """

    points: tuple[dict[str, Any], ...]
    times: int = Field(ge=1)
    first: int = Field(default=0, ge=0)
    default: dict[str, Any] = Field(default_factory=dict)
    confirms: str = ""
    budget: float | None = Field(default=None, gt=0)


@final
class RepeatedPoints(Strategy):
    """All points once, then all points again, so that an interrupted search has repeated each of them as often."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(RepeatedPointsOptions, options)
        self._points = [
            {name: space[name].exact(value) for name, value in space.active(point).items()}
            for point in self._options.points
        ]
        self._bookkeeping = Bookkeeping(space, self._options, first=self._options.first)

    def ask(self, count: int) -> list[Proposal]:
        return proposals_up_to(count, self._proposal)

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        self._bookkeeping.observe(proposal, outcome)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._bookkeeping.resume(self.tell, observed, pending)

    @property
    def finished(self) -> bool:
        """Whether every point has run as often as it should, or is running."""
        return self._n_proposed >= len(self._points) * self._options.times

    @property
    def _n_proposed(self) -> int:
        return self._bookkeeping.n_asked - self._options.first

    def _proposal(self) -> Proposal | None:
        if self.finished:
            return None
        point = self._points[self._n_proposed % len(self._points)]
        return self._bookkeeping.propose(point, budget=self._options.budget)
