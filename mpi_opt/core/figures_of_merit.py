"""The figures of merit of a study: names, directions, aggregation, Pareto fronts; and trainings of other lengths.

Most studies have one figure of merit. If there are several, the first is the main one. It is shown where there is space
for one number only, and the best trial is the trial of the Pareto front with the best first figure.

A point *dominates* another if it is at least as good in every value and better in one. The points that no other point
dominates are the first front. Without them, the points that are not dominated are the second front, and so on. The rank
of a point is the number of fronts before its own (non-dominated sorting; Deb et al., NSGA-II, 2002).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mpi_opt.core.arrays import Bools, Floats, Ints
from mpi_opt.core.figures import Figures, Measured, real_number
from mpi_opt.core.trial import Failed, Outcome, TrialRecord
from mpi_opt.errors import ConfigurationError

IN_STAGES = ("population",)
"""Strategies whose trials are stages of longer trainings: a trial with fewer epochs was not ended early."""


def epochs(budget: float | None) -> float:
    """The number of epochs after which a training ends; infinite without a budget: all epochs of the configuration."""
    return math.inf if budget is None else budget


def rank_of_length(budget: float | None, strategy: str) -> float:
    """Smaller for a trial that precedes others whatever their figures of merit: one that was trained for more epochs.

    A short training, for example of a lower rung of `halving`, shows whether a longer one is worth while. Its figure of
    merit is not that of the network that the user has configured.
    """
    return 0.0 if strategy in IN_STAGES else -epochs(budget)


Direction = Literal["minimize", "maximize"]
Selection = Literal["mean", "mean+std", "median"]
Target = tuple[float | None, ...]
"""The target of each figure of merit; None for any value."""

VAL_LOSS = "val_loss"
"""The default figure of merit of a training."""

MAIN = "figure_of_merit"
"""The default name of the figure of merit of a user's function."""

RESULT_FIGURES = ("seconds", "samples_per_second")
"""Figures of merit of a training that are no metrics: its duration and its speed."""


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

    @cached_property
    def signs(self) -> tuple[float, ...]:
        """The factor of each figure that turns it into a cost to be minimised: 1 or -1."""
        return tuple(-1.0 if direction == "maximize" else 1.0 for direction in self.directions)

    @property
    def sign(self) -> float:
        """The factor of the first figure."""
        return self.signs[0]

    def read(self, value: object) -> Figures:
        """Validates the return value of an objective.

        Args:
            value: A number; with several figures a sequence, or a mapping from name to number.

        Raises:
            TypeError: `value` is of another type.
            ValueError: A name is missing or unknown, or a number is not finite.
        """
        if not self.are_several:
            return Figures({self.names[0]: Measured(_number(value))})
        expected = f"the objective must return {len(self.names)} numbers ({', '.join(self.names)})"
        if isinstance(value, Mapping):
            if set(value) != set(self.names):
                raise ValueError(f"{expected}; found {', '.join(map(str, value)) or 'an empty mapping'}")
            value = [value[name] for name in self.names]
        # a text is a sequence, too, and a set has no order; NumPy arrays and tensors are no `Sequence`
        is_other = isinstance(value, str | bytes | set | frozenset)
        if is_other or not isinstance(value, Sized) or not isinstance(value, Iterable):
            raise TypeError(f"{expected}, not {value!r}")
        if len(value) != len(self.names):
            raise ValueError(f"{expected}, not {len(value)}")
        return Figures({name: Measured(_number(entry)) for name, entry in zip(self.names, value, strict=True)})

    def costs(self, figures: Mapping[str, float]) -> tuple[float, ...]:
        """`figures`, in the order of `names`, as values to be minimised."""
        return tuple(sign * figure for sign, figure in zip(self.signs, figures.values(), strict=True))

    def aggregate_folds(self, folds: Sequence[Outcome]) -> Figures:
        """Aggregates the folds of a trial.

        Returns:
            The figures of merit, each with the sample standard deviation over the folds (K - 1 degrees of freedom).
            With one fold, or if it is too large for a float, the deviation is None. A value that is too large is NaN.
        """
        if len(folds) == 1:
            return folds[0].figures_of_merit
        found = Figures()
        for index, name in enumerate(folds[0].figures_of_merit):
            values = [float(fold.figures_of_merit[name]) for fold in folds]
            deviation = _finite(statistics.stdev, values)
            found[name] = Measured(self.aggregate(values, index), None if math.isnan(deviation) else deviation)
        return found

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

        With one fold, a cost is a `Measured` with the uncertainty that was reported. With several it is a plain number:
        their standard deviation contains the different difficulty of the folds. All trials have the same folds, so that
        this part does not affect the comparison of trials.
        """
        if not ended.figures_of_merit:
            first_line, _, _ = (ended.error or "failed").partition("\n")  # strategies keep it for the whole search
            return Failed(first_line)
        main = ended.figures_of_merit.main
        if main is not None and n_folds == 1 and not self.are_several:  # a resumed search asks for those of all trials
            return Measured(self.sign * main, main.uncertainty)
        costs: tuple[float, ...] = self.costs(ended.figures_of_merit)
        if n_folds == 1:
            uncertainties = (figure.uncertainty for figure in ended.figures_of_merit.values())
            costs = tuple(map(Measured, costs, uncertainties))
        return costs if self.are_several else costs[0]

    def reaches(self, target: Target | None, ended: Outcome | TrialRecord) -> bool:
        """Whether a trial is as good as `target` in every figure that has a target."""
        if target is None or not ended.figures_of_merit:
            return False
        trios = zip(self.costs(ended.figures_of_merit), target, self.signs, strict=True)
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
        return (MAIN if figure_of_merit == VAL_LOSS and not is_training else figure_of_merit,)
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


def _number(value: object) -> float:
    """One figure of merit.

    Raises:
        TypeError: It is not a real number.
        ValueError: It is not finite.
    """
    try:
        number = real_number(value)
    except TypeError:
        hint = f"; for several, name them: figure_of_merit={list(value)}" if isinstance(value, Mapping) else ""
        raise TypeError(f"the figure of merit must be a number, not {value!r}{hint}") from None
    if not math.isfinite(number):
        raise ValueError(f"the figure of merit must be a finite number, not {number}")
    return number


HUGE = 1e307
"""Differences of values beyond ± `HUGE` may be infinite."""


def dominates(one: tuple[float, ...] | float, other: tuple[float, ...] | float) -> bool:
    """Whether `one` is at least as good as `other` in every value, and better in one. Values are to be minimised."""
    ours, theirs = as_tuple(one), as_tuple(other)
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def as_tuple(cost: tuple[float, ...] | float) -> tuple[float, ...]:
    """The values of a point: shape (n_values,), also for a single value."""
    return cost if isinstance(cost, tuple) else (cost,)


def ranks(values: ArrayLike) -> Ints:
    """The rank of each point, 0 on the first front.

    Args:
        values: Shape (n, n_values), to be minimised.

    Returns:
        Shape (n,), int64.
    """
    points = np.asarray(values, dtype=float)
    found = np.zeros(len(points), dtype=np.int64)
    fronts: list[list[Floats]] = []
    for index in np.lexsort(points.T[::-1]):  # in this order points come after all points that dominate them
        row = points[index]
        low, high = 0, len(fronts)
        while low < high:  # a point that a front dominates is dominated by all fronts before it as well
            middle = (low + high) // 2
            if _is_dominated(row, np.array(fronts[middle])):
                low = middle + 1
            else:
                high = middle
        if low == len(fronts):
            fronts.append([])
        fronts[low].append(row)
        found[index] = low
    return found


def is_on_front(values: ArrayLike) -> Bools:
    """Whether each point is on the first front, as ``ranks(values) == 0`` but faster.

    Args:
        values: Shape (n, n_values), to be minimised.

    Returns:
        Shape (n,), bool.
    """
    points = np.asarray(values, dtype=float)
    found = np.zeros(len(points), dtype=bool)
    front = np.empty_like(points)
    n_front = 0
    for index in np.lexsort(points.T[::-1]):  # in this order points come after all points that dominate them
        if not _is_dominated(points[index], front[:n_front]):
            front[n_front] = points[index]
            found[index] = True
            n_front += 1
    return found


def crowding(values: ArrayLike) -> Floats:
    """The crowding distance of each point (Deb et al., NSGA-II, 2002); infinite for the extreme points.

    Args:
        values: Shape (n, n_values), the points of one front.

    Returns:
        Shape (n,).
    """
    points = np.asarray(values, dtype=float)
    distance = np.zeros(len(points))
    for column in points.T:
        if np.abs(column).max(initial=0.0) > HUGE:
            column = 0.25 * column  # distances of finite values must be finite
        order = np.argsort(column, kind="stable")
        extent = column[order[-1]] - column[order[0]]
        distance[order[[0, -1]]] = np.inf
        if extent > 0:
            distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / extent
    return distance


def order(values: Sequence[tuple[float, ...] | float]) -> list[int]:
    """The indices of points, best first: by value; with several values, by rank, then largest crowding distance."""
    if not values or not isinstance(values[0], tuple):
        return sorted(range(len(values)), key=lambda index: as_tuple(values[index]))
    points = np.array(values)
    rank = ranks(points)
    distance = np.empty(len(points))
    for front in np.unique(rank):
        distance[rank == front] = crowding(points[rank == front])
    return sorted(range(len(points)), key=lambda index: (rank[index], -distance[index], index))


def _is_dominated(row: Floats, front: Floats) -> bool:
    return bool(((front <= row).all(axis=1) & (front < row).any(axis=1)).any())
