"""The figures of merit of a study: their names, their directions, and how the folds of a trial are aggregated.

Most studies have one figure of merit. If there are several, the first is the main one. It is shown where there is space
for one number only, and the best trial is the trial of the Pareto front with the best first figure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Literal

from mpi_opt.core.real_number import real_number
from mpi_opt.core.trial import Failed, FoldOutcome, Measured, Outcome, State, TrialRecord
from mpi_opt.errors import ConfigurationError

Direction = Literal["minimize", "maximize"]
Selection = Literal["mean", "mean+std", "median"]
Target = tuple[float | None, ...]
"""The target of each figure of merit; None for any value."""

MAIN = "figure_of_merit"
"""The default name of the figure of merit of a user's function."""


@dataclass(frozen=True)
class FiguresOfMerit:
    """The figures of merit of a study.

    Attributes:
        names: One or more different names.
        directions: The direction of each figure.
        selection: How the folds of a trial are aggregated: their mean, their median, or ``mean+std``, the mean made
            worse by one standard deviation (added if the figure is minimised, subtracted if it is maximised).
    """

    names: tuple[str, ...] = (MAIN,)
    directions: tuple[Direction, ...] = ("minimize",)
    selection: Selection = "mean"

    @property
    def are_several(self) -> bool:
        """Whether there is more than one figure of merit."""
        return len(self.names) > 1

    @property
    def signs(self) -> tuple[float, ...]:
        """The factor of each figure that turns it into a cost to be minimised: 1 or -1."""
        return tuple(-1.0 if direction == "maximize" else 1.0 for direction in self.directions)

    @property
    def sign(self) -> float:
        """The factor of the first figure."""
        return self.signs[0]

    def read(self, value: object) -> tuple[float, ...]:
        """Validates the return value of an objective.

        Args:
            value: A number; with several figures a sequence, or a mapping from name to number.

        Returns:
            One float per figure.

        Raises:
            TypeError: `value` is of another type.
            ValueError: A name is missing or unknown, or a number is not finite.
        """
        if not self.are_several:
            return (_number(value),)
        expected = f"the objective must return {len(self.names)} numbers ({', '.join(self.names)})"
        if isinstance(value, Mapping):
            if set(value) != set(self.names):
                raise ValueError(f"{expected}; found {', '.join(map(str, value)) or 'an empty mapping'}")
            value = [value[name] for name in self.names]
        if isinstance(value, str | bytes) or not isinstance(value, Sized) or not isinstance(value, Iterable):
            raise TypeError(f"{expected}, not {value!r}")
        if len(value) != len(self.names):
            raise ValueError(f"{expected}, not {len(value)}")
        return tuple(_number(entry) for entry in value)

    def values(self, ended: FoldOutcome | Outcome | TrialRecord) -> tuple[float, ...]:
        """The figures of merit of a fold or trial that has not failed, in the order of `names`."""
        return tuple(_of_a_success(ended.figures_of_merit.get(name, ended.figure_of_merit)) for name in self.names)

    def costs(self, figures: Sequence[float]) -> tuple[float, ...]:
        """`figures`, in the order of `names`, as values to be minimised."""
        return tuple(sign * figure for sign, figure in zip(self.signs, figures, strict=True))

    def by_name(self, figures: Sequence[float]) -> dict[str, float]:
        """Name to figure if there are several; empty if there is one."""
        return dict(zip(self.names, figures, strict=True)) if self.are_several else {}

    def outcome(
        self,
        number: int,
        state: State,
        figures: Sequence[float],
        uncertainties: Sequence[float] | None,
        duration_s: float,
        folds: list[FoldOutcome],
    ) -> Outcome:
        """The outcome of a trial with these figures of merit, and their uncertainties if they are known."""
        return Outcome(
            number,
            state,
            figures[0],
            uncertainties[0] if uncertainties else None,
            duration_s,
            folds,
            figures_of_merit=self.by_name(figures),
            uncertainties=self.by_name(uncertainties) if uncertainties else {},
        )

    def aggregate_folds(self, folds: Sequence[FoldOutcome]) -> tuple[tuple[float, ...], tuple[float, ...] | None]:
        """Aggregates the folds of a trial.

        Returns:
            One value per figure of merit, and the sample standard deviation (K - 1 degrees of freedom) of each over the
            folds. None in place of the deviations with one fold, or if one is too large for a float. A value that is
            too large is NaN.
        """
        if len(folds) == 1:
            return self.values(folds[0]), None
        columns = list(zip(*map(self.values, folds), strict=True))
        deviations = tuple(_finite(statistics.stdev, column) for column in columns)
        values = tuple(self.aggregate(column, figure) for figure, column in enumerate(columns))
        return values, deviations if all(map(math.isfinite, deviations)) else None

    def aggregate(self, values: Sequence[float], figure: int = 0) -> float:
        """Aggregates the values, one per fold, of the figure of merit with index `figure`.

        Returns:
            NaN if one of the values or the result is not finite.
        """
        if self.selection == "median":
            return _finite(statistics.median, values)
        mean = _finite(statistics.fmean, values)
        if self.selection == "mean" or len(values) == 1:
            return mean
        return mean + self.signs[figure] * _finite(statistics.stdev, values)

    def measured_cost(self, ended: Outcome | TrialRecord, n_folds: int) -> float | tuple[float, ...] | Failed:
        """The result of a trial for the strategy: its cost, a tuple of several costs, or `Failed`.

        With one fold, a cost whose uncertainty was reported is a `Measured`. With several folds it is a plain number:
        their standard deviation contains the different difficulty of the folds. All trials have the same folds, so that
        this part does not affect the comparison of trials.
        """
        if ended.figure_of_merit is None:
            return Failed(ended.error or "failed")
        uncertainties = ended.uncertainties if self.are_several else {self.names[0]: ended.uncertainty}
        costs = []
        for name, cost in zip(self.names, self.costs(self.values(ended)), strict=True):
            uncertainty = uncertainties.get(name)
            costs.append(cost if uncertainty is None or n_folds > 1 else Measured(cost, uncertainty))
        return tuple(costs) if self.are_several else costs[0]

    def reaches(self, target: Target | None, ended: Outcome | TrialRecord) -> bool:
        """Whether a trial is as good as `target` in every figure that has a target."""
        if target is None or ended.figure_of_merit is None:
            return False
        trios = zip(self.costs(self.values(ended)), target, self.signs, strict=True)
        return all(limit is None or cost <= sign * limit for cost, limit, sign in trios)


def read_figures_of_merit(
    figure_of_merit: str | Sequence[str],
    direction: Direction | Sequence[Direction],
    selection: Selection,
    *,
    is_training: bool,
) -> FiguresOfMerit:
    """The figures of merit of a configuration.

    Args:
        figure_of_merit: A name, a function ``file.py:function``, or several of them.
        direction: One direction, or one per figure.
        selection: As in `FiguresOfMerit`.
        is_training: Whether the figures are computed from a training; otherwise they are names for the numbers that
            the user's code returns.

    Raises:
        ConfigurationError: There is no name, the numbers of names and directions differ, or a name occurs twice.
    """
    directions = (direction,) if isinstance(direction, str) else tuple(direction)
    if not directions:
        raise ConfigurationError("the list is empty", where="direction", cure="write minimize or maximize")
    if isinstance(figure_of_merit, str):
        names = _names_of_one(figure_of_merit, len(directions), is_training)
    else:
        names = tuple(_name(entry) for entry in figure_of_merit)
    if not names:
        raise ConfigurationError("the list is empty", where="figure_of_merit", cure="name at least one figure of merit")
    if len(names) != len(directions):
        raise ConfigurationError(
            f"expected a direction for each of {', '.join(names)}; found {len(directions)}",
            where="direction",
            cure=f"direction: [{', '.join(['maximize', *['minimize'] * (len(names) - 1)])}]",
        )
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"duplicate name {name}", where="figure_of_merit", cure="name each once")
    return FiguresOfMerit(names, directions, selection)


def _names_of_one(figure_of_merit: str, n: int, is_training: bool) -> tuple[str, ...]:
    if n == 1:
        return (figure_of_merit if is_training else MAIN,)
    if is_training and ":" not in figure_of_merit:
        raise ConfigurationError(
            f"{figure_of_merit} is one number, and there are {n} directions",
            where="direction",
            cure=f"figure_of_merit: [{figure_of_merit}, seconds], or a function that returns {n} numbers",
        )
    base = _name(figure_of_merit) if is_training else MAIN
    return tuple(f"{base}_{index + 1}" for index in range(n))


def _name(figure_of_merit: str) -> str:
    """The name of a metric; of a function, the part after the colon."""
    return figure_of_merit.rpartition(":")[2]


def read_target(target: float | Sequence[float | None] | None, figures: FiguresOfMerit) -> Target | None:
    """The target of a configuration: a number, or one for each figure of merit.

    Raises:
        ConfigurationError: The numbers of targets and figures of merit differ.
    """
    if target is None:
        return None
    wanted = (target,) if isinstance(target, int | float) else tuple(target)
    if len(wanted) != len(figures.names):
        raise ConfigurationError(
            f"expected a target for each of {', '.join(figures.names)}; found {len(wanted)}",
            where="search.target",
            cure=f"target: [{', '.join(['null'] * len(figures.names))}] with a number in place of some null",
        )
    return wanted


def _finite(statistic: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    """A statistic of the values; NaN if one of them or the result is not finite."""
    if not all(map(math.isfinite, values)):
        return math.nan
    try:
        result = statistic(values)
    except OverflowError:
        return math.nan
    return result if math.isfinite(result) else math.nan


def _of_a_success(figure: float | None) -> float:
    """The figure of a fold or trial that did not fail."""
    assert figure is not None
    return figure


def _number(value: object) -> float:
    """One figure of merit.

    Raises:
        TypeError: It is not a real number.
        ValueError: It is not finite.
    """
    try:
        number = real_number(value)
    except TypeError:
        raise TypeError(f"the objective must return a number, not {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"the objective must return a finite number, not {number}")
    return number
