"""The interface of every strategy: ask what to try next, tell what came of it.

A strategy sees the space and values to *minimise*; it sees neither MPI, nor the store, nor a clock. The order of calls
is free: any number of proposals may be pending, outcomes come in any order, and proposals of others (known points,
trials of an earlier run) may be told as well. What a strategy proposes is a function of its seed and of the calls made
so far, nothing else: a search is continued by telling a new strategy the stored trials in the order in which they
ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from mpi_opt.core.space import Parameters
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError

Cost = float | tuple[float, ...]
"""What a trial gave, to minimise; a tuple where a study has several figures of merit."""


class Decision(Enum):
    """What becomes of a running trial that reported an intermediate value."""

    CONTINUE = "continue"
    STOP = "stop"


class Strategy(ABC):
    """Decides what to try next. Concrete strategies are final.

    Constructed by `make_strategy` as ``Class(space, seed=int, options=dict)``; raises `ConfigurationError` for an
    option that it does not know or a value that cannot be.
    """

    @abstractmethod
    def ask(self, count: int) -> list[Proposal]:
        """At most `count` new proposals, numbered on from the last one.

        Fewer, or none, means "tell me more first"; none while nothing is pending means that the strategy has finished.
        No point is proposed twice unless the space is used up or the strategy resumes a trial.
        """

    @abstractmethod
    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Takes the outcome of a proposal, asked for here or not.

        Args:
            proposal: What was tried.
            outcome: The value to minimise; `Failed` if there is none. A NaN counts as `Failed`. After `expect` a tuple.
        """

    @abstractmethod
    def resume(self, told: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Takes up a search where it stopped; before the first `ask`.

        Args:
            told: Proposals with outcomes, in the order in which they ended.
            pending: Proposals that were started and are going to be told.
        """

    def expect(self, n_merits: int) -> None:
        """Learns, before anything else, that every outcome is going to be a tuple of `n_merits` values to minimise.

        Raises:
            ConfigurationError: It compares trials by one number; so does a strategy that does not override this.
        """
        raise ConfigurationError(
            f"{type(self).__name__} compares trials by one figure of merit, and there are {n_merits}",
            where="search.strategy",
            cure="evolutionary or bayesian; or override `expect` in a class of yours that is told tuples",
        )

    def learn(self, points: Sequence[tuple[Parameters, float]], known: frozenset[str]) -> bool:
        """Learns from an earlier study, before anything else; what it says may be wrong here.

        Args:
            points: Points of this space and their values to minimise.
            known: The hyperparameters that the earlier study had, too; the others were drawn.

        Returns:
            Whether anything was learnt; not by default.
        """
        return False

    def report(self, proposal: Proposal, step: int, value: float) -> Decision:
        """Takes an intermediate value (to minimise) of a pending proposal."""
        return Decision.CONTINUE

    def obsolete(self) -> list[int]:
        """Numbers of ended trials from which no later proposal resumes, so that their checkpoints can be removed.

        Each number is returned once. By default none, which keeps every checkpoint. Trials that were proposed without
        a budget have no checkpoints.
        """
        return []

    @property
    def finished(self) -> bool:
        """Whether the strategy will never propose again, whatever it is told."""
        return False

    @property
    def waits(self) -> bool:
        """Whether `ask` may give fewer proposals than wanted, and go on when it was told more; not by default."""
        return False

    def state(self) -> dict[str, Any]:
        """What the strategy has learnt, as JSON knows it; for people and reports, not needed to go on."""
        return {}
