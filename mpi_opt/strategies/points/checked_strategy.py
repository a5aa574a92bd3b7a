"""Checks of proposals and outcomes, and a wrapper that applies them to the strategy of a user.

The store would accept most wrong proposals, and fail later, when it is read.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, final

import numpy as np

from mpi_learn.settings.suggestions import suggestion
from mpi_opt.core.figures import Measured
from mpi_opt.core.search_space.dimension import python_value
from mpi_opt.core.search_space.space import Limits, Parameters, Space
from mpi_opt.core.trial import TRIALS_PER_STUDY, Failed, Proposal, is_usable
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.strategies.strategy import Cost, Decision, Strategy

USUAL = (float, Measured)
"""The types of costs that need no conversion; not the floats of NumPy."""


def whole_number(value: Any, where: str) -> int:
    """`value` as an int of 0 or more.

    Raises:
        ConfigurationError: It is something else; the message names `where`.
    """
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        problem = f"expected a whole number of 0 or more, found {value!r}"
        raise ConfigurationError(problem, where=where, cure="give an int, such as 7")
    return number


def unknown_hyperparameter(name: str, space: Space, where: str) -> ConfigurationError:
    """The error for an option that names a hyperparameter which `space` does not have."""
    return ConfigurationError(f"{name} is not a hyperparameter", where=where, cure=suggestion(name, space))


def observed_cost(proposal: Proposal, outcome: object, n_figures: int) -> Cost | None:
    """The cost that was passed to `Strategy.tell`.

    Returns:
        A float, or a tuple of `n_figures` floats if there are several; a `Measured` keeps its uncertainty. None for a
        failed trial, which includes costs that are not finite.

    Raises:
        ConfigurationError: `outcome` is neither `Failed` nor `n_figures` real numbers.
    """
    # the usual case first: this runs for every trial of every strategy
    if isinstance(outcome, float) and type(outcome) in USUAL and n_figures == 1 and math.isfinite(outcome):
        return outcome
    if isinstance(outcome, Failed):
        return None
    if isinstance(outcome, np.ndarray):
        values = outcome.ravel().tolist()
    else:
        values = list(outcome) if isinstance(outcome, tuple | list) else [outcome]
    if len(values) != n_figures or not all(map(_is_number, values)):
        expected = "a number" if n_figures == 1 else f"{n_figures} numbers, one per figure of merit"
        raise ConfigurationError(
            f"trial {proposal.number}: expected {expected}, found {outcome!r}",
            where="tell",
            cure="pass a float to be minimised, or Failed(reason) for a trial without a result",
        )
    if not all(map(is_usable, values)):
        return None
    costs = tuple(value if isinstance(value, Measured) else float(value) for value in values)
    return costs if n_figures > 1 else costs[0]


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


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
