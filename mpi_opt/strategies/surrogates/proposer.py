"""From what was told and what is pending to what to try next, as a function without memory or clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from threadpoolctl import ThreadpoolController

from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.surrogates.acquisition import Criterion, Gain, LogExpectedImprovement
from mpi_opt.strategies.surrogates.fitting import Success, Surrogate
from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess
from mpi_opt.strategies.surrogates.maximize import maximised
from mpi_opt.strategies.surrogates.observations import Told

if TYPE_CHECKING:
    from mpi_opt.strategies.surrogates.forest import Forest

Kind = Literal["global", "local", "departing"]
N_GLOBAL, N_LOCAL, N_CLIMBS = 512, 256, 6
LOCAL_EVERY = 3
DEPART_EVERY = 4
"""Every so many proposals have another category than the best trial has, each hyperparameter's in turns."""
FEWEST_LOCAL, LARGEST_LOCAL = 16, 100
N_THOROUGH = 16
"""After so many proposals of one call each is sought with a quarter of the effort."""


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


@dataclass(frozen=True)
class View:
    """A model and where it is to be believed.

    Attributes:
        model: Of `told`.
        best: The smallest value, in the model's units.
        told: What was told there, without failures.
        low: Shape (n_dimensions,), the least that a row may have.
        high: Shape (n_dimensions,), the most.
    """

    model: GaussianProcess | Forest
    best: float
    told: Told
    low: np.ndarray
    high: np.ndarray

    @property
    def extent(self) -> np.ndarray:
        """From `low` to `high`."""
        return self.high - self.low


@final
class Proposer:
    """Proposes points of a space.

    Args:
        encoding: Of the space.
        seed: What is proposed depends on it.
        has_forest: Whether trees take the place of the Gaussian process.
        criterion: What makes a point promising.
    """

    def __init__(
        self,
        encoding: Encoding,
        seed: int,
        has_forest: bool = False,
        criterion: Criterion = LogExpectedImprovement(),  # noqa: B008 - it cannot change
    ) -> None:
        self._encoding, self._seed, self._has_forest, self._criterion = encoding, seed, has_forest, criterion
        self._surrogate = Surrogate(encoding.is_category)
        n_levels = np.array([0 if levels is None else len(levels) for levels in encoding.levels])
        self._choices = np.flatnonzero(encoding.is_category & (n_levels > 1))

    def propose(
        self,
        told: Told,
        pending: np.ndarray,
        number: int,
        count: int,
        is_allowed: Callable[[np.ndarray], bool],
    ) -> list[np.ndarray]:
        """Up to `count` rows to try next, one after the other, each as if the earlier ones gave what is expected.

        Args:
            told: Everything told; at least two with a value.
            pending: Shape (m, n_dimensions): the rows that are being tried.
            number: Of the next proposal.
            count: How many to propose.
            is_allowed: Whether a row may be proposed.
        """
        with _threads().limit(limits=1):  # rank 0 shares its core with the coordinator, and the host with other ranks
            return self._proposed(told, pending, number, count, is_allowed)

    def quick_rows(self, best: np.ndarray, number: int) -> list[np.ndarray]:
        """Some rows near the `best` (m, n_dimensions) or anywhere, without a model, for when there is no time."""
        rng = np.random.default_rng([self._seed, number, 2])
        rows = [self._around(best, rng, 8), self._anywhere(rng, 8)]
        rng.shuffle(rows)
        return [self._encoding.snapped(row) for row in np.vstack(rows)]

    def _proposed(
        self,
        told: Told,
        pending: np.ndarray,
        number: int,
        count: int,
        is_allowed: Callable[[np.ndarray], bool],
    ) -> list[np.ndarray]:
        succeeded = told.succeeded()
        success = None
        if len(succeeded.values) < len(told.values):
            success = Success(told, self._encoding.is_category)
        views: dict[Kind, View] = {}
        rows: list[np.ndarray] = []
        for index in range(count):
            kind = self._kind(number + index, len(succeeded.values))
            if kind not in views:
                views[kind] = self._view(kind, succeeded)
                views[kind].model.pretend(np.vstack([pending, *rows]))
            view = views[kind]
            gain = self._gain(view, success, self._left(number + index, succeeded) if kind == "departing" else None)
            rng = np.random.default_rng([self._seed, number + index, 1])
            effort = 1.0 if index < N_THOROUGH else 0.25
            is_free = lambda row: _is_none_of(row, rows) and is_allowed(row)  # noqa: E731
            row = self._best_row(view, gain, success, rng, effort, is_free)
            if row is None:
                break
            rows.append(row)
            for view in views.values():
                view.model.pretend(row[None, :])
        return rows

    def _kind(self, number: int, n_values: int) -> Kind:
        if self._has_forest:
            return "global"
        if number % DEPART_EVERY == 2 and len(self._choices):
            return "departing"
        is_local = number % LOCAL_EVERY == 1 and n_values >= FEWEST_LOCAL + 2 * self._encoding.n_dimensions
        return "local" if is_local else "global"

    def _left(self, number: int, told: Told) -> tuple[int, float] | None:
        """A dimension of categories, each in turns, and the best trial's category: what is to be left for once.

        None if the best trial has no category that could be another one.
        """
        best = told.rows[int(np.argmin(told.values))]
        choices = self._choices[self._encoding.is_active(best)[self._choices]]
        if not len(choices):
            return None
        index = int(choices[number // DEPART_EVERY % len(choices)])
        return index, float(best[index])

    def _view(self, kind: Kind, told: Told) -> View:
        if kind == "local":
            return self._local_view(told)
        n = self._encoding.n_dimensions
        if self._has_forest:
            from mpi_opt.strategies.surrogates.forest import Forest

            trees = Forest(told, self._seed)
            return View(trees, trees.best, told, np.zeros(n), np.ones(n))
        model, best = self._surrogate.fit(told, is_sceptical=kind == "departing")
        return View(model, best, told, np.zeros(n), np.ones(n))

    def _local_view(self, told: Told) -> View:
        """A model of the neighbourhood of the best: where the whole is too bent for one model, a part is not."""
        n = max(FEWEST_LOCAL + 2 * self._encoding.n_dimensions, len(told.values) // 3)
        near = told.nearest(min(n, LARGEST_LOCAL), told.rows[int(np.argmin(told.values))], self._encoding.is_category)
        model, best = self._surrogate.fit_afresh(near)
        return View(model, best, near, near.rows.min(axis=0), near.rows.max(axis=0))

    def _gain(self, view: View, success: Success | None, left: tuple[int, float] | None) -> Gain:
        log_success = None if success is None else success.log_probability
        return Gain(view.model, view.best, self._criterion, log_success, left)

    def _best_row(
        self,
        view: View,
        gain: Gain,
        success: Success | None,
        rng: np.random.Generator,
        effort: float,
        is_allowed: Callable[[np.ndarray], bool],
    ) -> np.ndarray | None:
        best = view.told.rows[np.argsort(view.told.values, kind="stable")[:5]]
        n_global, n_local, n_climbs = (math.ceil(effort * number) for number in (N_GLOBAL, N_LOCAL, N_CLIMBS))
        anywhere = self._anywhere(rng, n_global)
        inside = self._on_levels(np.where(self._encoding.is_category, anywhere, view.low + anywhere * view.extent))
        around = self._around(best, rng, n_local)
        around = np.where(self._encoding.is_category, around, np.clip(around, view.low, view.high))
        candidates = np.vstack([inside, around])
        if self._has_forest:
            n_climbs = 0  # there is no slope to climb along
        if success is not None and (is_likely := success.is_likely(candidates)).any():
            candidates, is_free = candidates[is_likely], is_allowed
            is_allowed = lambda row: bool(success.is_likely(row[None, :])[0]) and is_free(row)  # noqa: E731
        return maximised(gain, self._encoding, candidates, view.low, view.high, is_allowed, n_climbs)

    def _anywhere(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return self._on_levels(self._encoding.from_units(rng.random((count, self._encoding.n_dimensions))))

    def _around(self, best: np.ndarray, rng: np.random.Generator, count: int) -> np.ndarray:
        """Rows around the best few: some numbers moved by 0.001 to 0.3, some categories drawn anew."""
        rows = best[rng.integers(len(best), size=count)]
        scale = 10.0 ** rng.uniform(-3.0, -0.5, size=(count, 1))
        moved = np.clip(rows + scale * rng.standard_normal(rows.shape), 0.0, 1.0)
        redrawn = self._encoding.from_units(rng.random(rows.shape))
        is_changed = rng.random(rows.shape) < max(0.5, 1.0 / rows.shape[1])
        is_redrawn = is_changed & self._encoding.is_category & (rng.random(rows.shape) < 0.3)
        rows = np.where(is_changed & ~self._encoding.is_category, moved, rows)
        return self._on_levels(np.where(is_redrawn, redrawn, rows))

    def _on_levels(self, rows: np.ndarray) -> np.ndarray:
        """Numbers with few values moved to the nearest of them."""
        for index, levels in enumerate(self._encoding.levels):
            if levels is not None:
                rows[:, index] = levels[np.abs(rows[:, index][:, None] - levels).argmin(axis=1)]
        return rows


def _is_none_of(row: np.ndarray, rows: list[np.ndarray]) -> bool:
    return not any(np.array_equal(row, other) for other in rows)
