"""Bookkeeping that every strategy needs: trial numbers, pending trials, points seen so far and the best trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast, final

import numpy as np
from pydantic import ConfigDict

from mpi_learn.settings.suggestions import suggestion
from mpi_learn.settings.validation import Strict, validated
from mpi_opt.core.search_space.space import Limits, Parameters, Real, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.strategies.points.checks import observed_cost, whole_number
from mpi_opt.strategies.points.constraint import Constraint
from mpi_opt.strategies.points.encoding import Encoding, GrowingArray, is_near
from mpi_opt.strategies.strategy import Cost


class Options(Strict):
    """The options of every strategy. Strategies derive from this class to add their own.

    Attributes:
        initial: Points to try first, each with all of its active hyperparameters.
        constraints: Expressions over the hyperparameters that every proposal must satisfy, such as
            ``units * layers < 4096``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    initial: tuple[dict[str, Any], ...] = ()
    constraints: tuple[str, ...] = ()


def n_initial_points(n_hyperparameters: int, given: int | None) -> int:
    """The number of trials of `bayesian` before its first model; `given` is the option ``initial_points``."""
    return given or min(max(8, 2 * n_hyperparameters + 4), 20)


OPTIONS_OF_ALL = ("reproducible", "lag")
"""Options of every strategy that `make_strategy` reads."""

Read = TypeVar("Read", bound=Options)


def read_options(kind: type[Read], given: Mapping[str, Any] | None) -> Read:
    """Validates `given` as an instance of `kind`.

    Raises:
        ConfigurationError: An option is unknown (the message suggests the closest one) or has an invalid value.
    """
    given = dict(given or {})
    for name in given:
        if name not in kind.model_fields:
            cure = suggestion(name, [*kind.model_fields, *OPTIONS_OF_ALL], "known keys")
            raise ConfigurationError("unknown key", where=f"search.options.{name}", cure=cure)
    try:
        return validated(kind, given, "")
    except ConfigurationError as error:
        where = f"search.options.{error.where}" if error.where else "search.options"
        raise ConfigurationError(error.problem, where=where, cure=error.cure) from None


ROUNDING = 1e-12
"""Real numbers that differ by less in the unit cube are the same."""


@final
class Bookkeeping:
    """Numbers proposals, checks outcomes and remembers which points were seen.

    By default points are remembered only where a point could be drawn twice by chance: in a space without a continuous
    hyperparameter, or where all continuous hyperparameters are conditional.

    Args:
        space: The search space.
        options: The strategy's options, which hold the known points and the constraints.
        remembers_points: Remember every point, also in a continuous space.
        encoding: If given, points near a remembered one are not accepted (see `encoding.is_near`).
        first: The number of the first proposal.

    Attributes:
        n_figures: Number of figures of merit.
        pending: Trial number to proposal, for trials without an outcome.
        n_asked: Number of the next proposal.
        observed: Numbers of the trials with an outcome.
        limits: The ranges of `steer`.
        low: Shape (n_dimensions,): the ends of these ranges in the unit cube.
        high: Shape (n_dimensions,).
    """

    def __init__(
        self,
        space: Space,
        options: Options,
        *,
        remembers_points: bool = False,
        encoding: Encoding | None = None,
        first: int = 0,
    ) -> None:
        self.space = space
        self.n_figures = 1
        self.pending: dict[int, Proposal] = {}
        self.n_asked = first
        self.observed: set[int] = set()
        self._constraints = [Constraint(text, space) for text in options.constraints]
        is_always_new = any(math.isinf(dimension.size) and not dimension.when for dimension in space.values())
        self._remembers_points = remembers_points or not is_always_new
        self._seen: set[str] = set()
        self._encoding, self._points = encoding, GrowingArray(len(space))
        self.limits: Limits = {}
        self.low, self.high = np.zeros(len(space)), np.ones(len(space))
        self._initial = [self._checked(point, index) for index, point in enumerate(options.initial)]

    def expect(self, n_figures: int) -> None:
        """As `Strategy.expect`."""
        self.n_figures = n_figures

    def steer(self, points: Sequence[Parameters], limits: Limits) -> None:
        """As `Strategy.steer`. Points that were tried are left out, where points are remembered."""
        self._initial += [point for point in points if self.is_new(point) and point not in self._initial]
        self.limits = dict(limits)
        self.low, self.high = np.zeros(len(self.space)), np.ones(len(self.space))
        for index, name in enumerate(self.space):
            if name in limits:
                self.low[index], self.high[index] = map(self.space[name].encode, limits[name])

    def allows(self, parameters: Parameters) -> bool:
        """Whether `parameters` satisfy the constraints, and the ranges of `steer`."""
        return self.is_within_limits(parameters) and self.meets_constraints(parameters)

    def meets_constraints(self, parameters: Parameters) -> bool:
        """Whether `parameters` satisfy the constraints."""
        return all(constraint.is_met(parameters) for constraint in self._constraints)

    def is_within_limits(self, parameters: Parameters) -> bool:
        """Whether `parameters` are in the ranges of `steer`, up to the rounding of real numbers."""
        return all(
            low <= cast(float, parameters[name]) <= high or self._nearest_end(name, parameters) is not None
            for name, (low, high) in self.limits.items()
            if name in parameters
        )

    def is_new(self, parameters: Parameters) -> bool:
        """Whether `parameters` have not been seen; always True where points are not remembered."""
        return not self._remembers_points or self._key(parameters) not in self._seen

    def permits(self, parameters: Parameters) -> bool:
        """Whether `parameters` are a new point that satisfies the constraints."""
        return self.allows(parameters) and self.is_new(parameters)

    def accepts(self, parameters: Parameters) -> bool:
        """Whether `parameters` are a new point that satisfies the constraints and is not near another."""
        if not self.permits(parameters):
            return False
        return self._encoding is None or not is_near(self._encoding.row(parameters), self._points.rows)

    def next_known_point(self) -> Parameters | None:
        """Removes and returns the next known point that has not been seen; None if there is none."""
        while self._initial:
            point = self._initial.pop(0)
            if self._key(point) not in self._seen:
                return point
        return None

    def ask(self, count: object, new_point: Callable[[], Parameters | None]) -> list[Proposal]:
        """Makes `count` proposals: known points first, then those of `new_point`, until it returns None.

        Raises:
            ConfigurationError: `count` is not a whole number of 0 or more.
        """

        def proposal() -> Proposal | None:
            point = self.next_known_point() or new_point()
            return None if point is None else self.propose(point)

        return proposals_up_to(count, proposal)

    def propose(
        self, parameters: Parameters, *, budget: float | None = None, resume_from: int | None = None
    ) -> Proposal:
        """Makes the next proposal and enters it as pending."""
        ends = {name: self._nearest_end(name, parameters) for name in self.limits if name in parameters}
        exact = parameters | {name: end for name, end in ends.items() if end is not None}
        proposal = Proposal(self.n_asked, exact, budget, resume_from)
        self.add_pending(proposal)
        return proposal

    def add_pending(self, proposal: Proposal) -> None:
        """Enters a proposal as pending. The next proposal gets a larger number."""
        self.n_asked = max(self.n_asked, proposal.number + 1)
        self.pending[proposal.number] = proposal
        self._remember(proposal.parameters)

    def observe(self, proposal: Proposal, outcome: object) -> Cost | None:
        """Records the outcome of a trial. Nothing changes if an argument is invalid.

        Returns:
            The cost, or a tuple of costs; None for a failed trial.

        Raises:
            ConfigurationError: `outcome` is not a cost, or the trial was reported before.
            SpaceError: The parameters are not a point of the search space.
        """
        number = whole_number(proposal.number, "tell: number of the trial")
        if number in self.observed:
            raise reported_twice(number)
        pending = self.pending.get(number)
        is_pending = pending is proposal or pending == proposal
        if not is_pending:
            try:
                self.space.check(proposal.parameters)
            except SpaceError as error:
                raise error.at(f"tell: trial {number}") from None
        cost = observed_cost(proposal, outcome, self.n_figures)
        self.observed.add(number)
        self.pending.pop(number, None)
        if not is_pending:
            self.n_asked = max(self.n_asked, number + 1)
            self._remember(proposal.parameters)
        return cost

    def resume(
        self,
        tell: Callable[[Proposal, Cost | Failed], None],
        observed: Iterable[tuple[Proposal, Cost | Failed]],
        pending: Iterable[Proposal],
    ) -> None:
        """Replays the outcomes of an earlier search through the strategy's `tell`, then enters its pending trials."""
        for proposal, outcome in observed:
            tell(proposal, outcome)
        for proposal in pending:
            self.add_pending(proposal)

    def _nearest_end(self, name: str, parameters: Parameters) -> float | None:
        """The end of the range of a real number, if its value differs from it by rounding only; else None.

        A number that was mapped to the unit cube and back is not exact, which matters most in a range of one value.
        """
        dimension = self.space[name]
        if not isinstance(dimension, Real) or dimension.step is not None:
            return None
        unit = dimension.encode(parameters[name])
        return next((end for end in self.limits[name] if abs(unit - dimension.encode(end)) < ROUNDING), None)

    def _remember(self, parameters: Parameters) -> None:
        if self._remembers_points or self._initial:
            self._seen.add(self._key(parameters))
        if self._encoding is not None:
            self._points.append(self._encoding.row(parameters))

    def _key(self, parameters: Parameters) -> str:
        return repr([parameters.get(name, ...) for name in self.space])

    def _checked(self, point: dict[str, Any], index: int) -> Parameters:
        where = f"search.options.initial[{index}]"
        try:
            self.space.check(point)
        except SpaceError as error:
            raise error.at(where) from None
        point = {name: self.space[name].exact(value) for name, value in self.space.active(point).items()}
        if not self.allows(point):
            raise SpaceError(
                f"{point} violates the constraints", where=where, cure="change the point or the constraints"
            )
        return point


def proposals_up_to(count: object, propose: Callable[[], Proposal | None]) -> list[Proposal]:
    """Calls `propose` until there are `count` proposals or it returns None.

    Raises:
        ConfigurationError: `count` is not a whole number of 0 or more.
    """
    wanted = whole_number(count, "ask")
    proposals: list[Proposal] = []
    while len(proposals) < wanted and (proposal := propose()) is not None:
        proposals.append(proposal)
    return proposals


def reported_twice(number: int) -> ConfigurationError:
    """The error for a trial whose outcome is reported a second time."""
    return ConfigurationError(f"trial {number} was reported before", where="tell", cure="report each trial once")
