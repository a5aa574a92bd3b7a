"""The interface of every search strategy: ask for proposals, tell their outcomes.

A strategy sees the search space and costs, which are always minimised. It sees neither MPI, nor the store, nor a clock.
`expect` and `resume`, if needed, are called before the first `ask`. Afterwards any number of proposals may be
pending, outcomes arrive in any order, and trials that the strategy did not propose may be reported as well. Proposals
are a function of the seed and of the calls so far. A search is therefore resumed by passing the stored trials to a new
strategy in the order in which they ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum

from mpi_opt.core.search_space.space import Limits, Parameters
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError

Cost = float | tuple[float, ...]
"""The value of a trial, to be minimised; a tuple in a study with several figures of merit."""


class Decision(Enum):
    """The answer to an intermediate value of a running trial."""

    CONTINUE = "continue"
    STOP = "stop"


class Strategy(ABC):
    """Decides which point to try next. Concrete strategies are final.

    `make_strategy` constructs a strategy as ``Class(space, seed=int, options=dict)``. The constructor raises
    `ConfigurationError` for an unknown option or an invalid value.
    """

    @abstractmethod
    def ask(self, count: int) -> list[Proposal]:
        """Returns at most `count` new proposals, numbered consecutively.

        Fewer proposals, or none, mean that the strategy waits for outcomes. No proposal while nothing is pending means
        that the search has finished. No point is proposed twice unless the strategy resumes a trial, the space is
        exhausted, or the space has more than 200,000 points of which few satisfy the constraints.

        Raises:
            ConfigurationError: `count` is not a whole number of 0 or more.
        """

    @abstractmethod
    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Reports the outcome of a trial, whether the strategy proposed it or not.

        Args:
            proposal: The trial.
            outcome: The cost, or `Failed` if there is none. A cost that is not finite counts as `Failed`. With several
                figures of merit (see `expect`) a sequence of costs. NumPy scalars and arrays of the right size are
                accepted.

        Raises:
            ConfigurationError: `outcome` is not a number (or not as many numbers as there are figures of merit), or
                the trial was reported before.
            SpaceError: The parameters are not a point of the search space.
        """

    @abstractmethod
    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Continues an earlier search. Must be called before the first `ask`.

        Args:
            observed: Trials with their outcomes, in the order in which they ended.
            pending: Trials that were started and have not ended yet.
        """

    def expect(self, n_figures: int) -> None:
        """Announces that each outcome will be a tuple of `n_figures` costs. Must be called before anything else.

        Raises:
            ConfigurationError: The strategy supports one figure of merit only, which is the default.
        """
        raise ConfigurationError(
            f"{type(self).__name__} compares trials by one figure of merit, but there are {n_figures}",
            where="search.strategy",
            cure="use another strategy, for example bayesian; a strategy of your own must override `expect`",
        )

    def afford(self, n_models: float) -> None:  # noqa: B027 - most strategies propose in microseconds
        """Limits how many proposals of the next calls of `ask` may each take the time of a model.

        The coordinator knows how long blocks would wait for them. Without this call there is no limit. A strategy whose
        proposals need no model ignores it.

        Args:
            n_models: The largest number of proposals of a call that may use a model, 0 or more. The others should take
                about a millisecond each.
        """

    def steer(self, points: Sequence[Parameters], limits: Limits) -> None:
        """Follows the hints of a user.

        Args:
            points: Points to try next, before any other.
            limits: The ranges of the numbers in later proposals, in place of those of an earlier call; other
                hyperparameters have the range of the space.

        Raises:
            ConfigurationError: The strategy cannot follow hints, which is the default.
        """
        raise ConfigurationError(
            f"{type(self).__name__} does not follow hints",
            where="hint",
            cure="use another strategy, such as auto, bayesian, evolutionary, random or sobol",
        )

    def report(self, proposal: Proposal, step: int, value: float) -> Decision:
        """Reports an intermediate cost of a pending trial. By default the trial continues."""
        return Decision.CONTINUE

    def obsolete(self) -> list[int]:
        """Numbers of ended trials from which no later proposal resumes, so that their checkpoints can be removed.

        Each number is returned once. By default none, which keeps every checkpoint. Trials that were proposed without
        a budget have no checkpoints.
        """
        return []

    def problems(self) -> list[str]:
        """Exceptions inside of the strategy since the last call, in spite of which it continues. By default none.

        The first line of each says what was raised, and what the strategy does instead.
        """
        return []

    @property
    def choice(self) -> str:
        """The choice of the strategy and its reason, in one line; empty if it leaves no choice to itself."""
        return ""

    @property
    def finished(self) -> bool:
        """Whether the strategy will make no more proposals, whatever outcomes arrive."""
        return False

    @property
    def waits(self) -> bool:
        """Whether `ask` may withhold proposals until certain outcomes arrive. False by default.

        The lag of a reproducible search does not count.
        """
        return False
