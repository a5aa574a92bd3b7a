"""A wrapper that checks the proposals of a strategy of a user.

The store would accept most wrong proposals, and fail later, when it is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, final

from mpi_opt.core.search_space.space import Limits, Parameters, Space
from mpi_opt.core.search_space.values import python_value
from mpi_opt.core.trial import TRIALS_PER_STUDY, Failed, Proposal
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.strategies.strategy import Cost, Decision, Strategy


@final
class CheckedStrategy(Strategy):
    """A strategy of the user. Its `ask` raises `ConfigurationError` if a proposal cannot be recorded."""

    def __init__(self, strategy: Strategy, space: Space) -> None:
        self._strategy, self._space = strategy, space
        self._numbers: set[int] = set()  # of the trials that the strategy has proposed or received

    def ask(self, count: int) -> list[Proposal]:
        """The proposals, with Python numbers in place of NumPy scalars.

        Raises:
            ConfigurationError: There are more than `count` proposals, a number is not new, a point is not in the
                space, or a trial resumes from one that does not exist.
        """
        asked: Any = self._strategy.ask(count)
        if not isinstance(asked, list | tuple) or not all(isinstance(proposal, Proposal) for proposal in asked):
            raise self._error(f"returned {asked!r}", "return a list of Proposal, which may be empty")
        if len(asked) > count:
            problem = f"returned {len(asked)} proposals, and was asked for {count}"
            raise self._error(problem, "return at most as many proposals as `ask` is asked for")
        return [self._checked(proposal) for proposal in asked]

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        self._numbers.add(proposal.number)
        self._strategy.tell(proposal, outcome)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        observed, pending = list(observed), list(pending)
        self._numbers.update(proposal.number for proposal in (*(one for one, _ in observed), *pending))
        self._strategy.resume(observed, pending)

    def expect(self, n_figures: int) -> None:
        self._strategy.expect(n_figures)

    def steer(self, points: Sequence[Parameters], limits: Limits) -> None:
        self._strategy.steer(points, limits)

    def afford(self, n_models: float) -> None:
        self._strategy.afford(n_models)

    def report(self, proposal: Proposal, step: int, value: float) -> Decision:
        return self._strategy.report(proposal, step, value)

    def obsolete(self) -> list[int]:
        return self._strategy.obsolete()

    def problems(self) -> list[str]:
        return self._strategy.problems()

    @property
    def choice(self) -> str:
        return self._strategy.choice

    @property
    def finished(self) -> bool:
        return self._strategy.finished

    @property
    def waits(self) -> bool:
        return self._strategy.waits

    def _checked(self, proposal: Proposal) -> Proposal:
        # neither the store nor JSON accepts scalars of NumPy, which strategies of users often propose
        plain = replace(
            proposal,
            number=python_value(proposal.number),
            parameters={name: python_value(value) for name, value in proposal.parameters.items()},
            budget=python_value(proposal.budget),
            resume_from=python_value(proposal.resume_from),
        )
        what = f"proposed trial {plain.number}"
        if not _is_number_of_a_trial(plain.number):
            raise self._error(what, f"number the proposals 0, 1, 2, …, below {TRIALS_PER_STUDY:,}")
        if plain.number in self._numbers:
            cure = "give each proposal the next number; after `resume`, the one after the largest of its trials"
            raise self._error(f"{what}, which exists already", cure)
        try:
            self._space.check(plain.parameters)
        except SpaceError as error:
            cure = "propose points of the space, for example with `space.decode`"
            place = f"{error.where}: " if error.where else ""
            raise self._error(f"{what}, which is not a point of the space: {place}{error.problem}", cure) from None
        if plain.budget is not None and not _is_positive(plain.budget):
            raise self._error(f"{what} with the budget {plain.budget!r}", "give a number of epochs above 0, or None")
        if plain.resume_from is not None and not (
            _is_number_of_a_trial(plain.resume_from) and plain.resume_from in self._numbers
        ):
            cure = "give the number of an earlier trial, or None"
            raise self._error(f"{what}, which resumes from trial {plain.resume_from!r}", cure)
        self._numbers.add(plain.number)
        return plain

    def _error(self, problem: str, cure: str) -> ConfigurationError:
        return ConfigurationError(f"{type(self._strategy).__name__}.ask {problem}", where="search.strategy", cure=cure)


def _is_number_of_a_trial(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < TRIALS_PER_STUDY


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
