"""Proposes points from observations and pending points. A proposal depends on its arguments and the seed alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np
from threadpoolctl import ThreadpoolController

from mpi_opt.core.arrays import Bools, Floats
from mpi_opt.strategies.points.beliefs import Beliefs
from mpi_opt.strategies.points.encoding import Encoding, is_near
from mpi_opt.strategies.surrogates.fitting import FIRST_FIT, FIT_GROWTH, Observations, Surrogate, anchor_size
from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess
from mpi_opt.strategies.surrogates.proposing.acquisition import Acquisition, Criterion
from mpi_opt.strategies.surrogates.proposing.maximize import maximize
from mpi_opt.strategies.surrogates.success import SuccessModel, SuccessProbability

N_GLOBAL, N_LOCAL, N_STARTS = 512, 256, 6
"""The numbers of random candidates, of candidates near the best rows, and of local searches, for one proposal."""
LOCAL_EVERY = 3
"""One in `LOCAL_EVERY` proposals comes from a model of the neighbourhood of the incumbent."""
OTHER_CATEGORY_EVERY = 4
"""One in `OTHER_CATEGORY_EVERY` proposals has another category than the incumbent, in each hyperparameter in turn."""
OTHER_NUMBER_EVERY, OTHER_NUMBER_AFTER = 8, 100
"""After `OTHER_NUMBER_AFTER` proposals, one in `OTHER_NUMBER_EVERY` differs from the incumbent in one number alone, in
each numeric hyperparameter in turn. A local minimum can differ from the minimum in one number, and the model of the
whole space seldom proposes points that differ from the incumbent in this number alone."""
MIN_MOVE, N_MOVED = 0.1, 128
"""The least change of that number, as a part of its range, and how many values are considered."""
MIN_LOCAL, MAX_LOCAL = 16, 100
"""Limits of the number of observations of the neighbourhood; two per hyperparameter are added to the first one."""
N_THOROUGH = 16
"""With at least `N_THOROUGH` trials pending, a proposal is searched for with a quarter of the effort."""


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


@dataclass(frozen=True)
class Region:
    """A model and the box in which it is used.

    Attributes:
        model: Fitted to `observed`.
        best: The smallest prediction at the observed points, in units of the model.
        observed: The observations in the region, none failed.
        low: Shape (n_dimensions,), lower bounds.
        high: Shape (n_dimensions,), upper bounds.
    """

    model: GaussianProcess
    best: float
    observed: Observations
    low: Floats
    high: Floats


@final
class Proposer:
    """Proposes rows of an encoded search space.

    Args:
        encoding: The encoding of the space.
        seed: The seed.
        criterion: The acquisition function.
        beliefs: The beliefs of the user.
    """

    def __init__(self, encoding: Encoding, seed: int, criterion: Criterion, beliefs: Beliefs | None = None) -> None:
        self._encoding, self._seed, self._criterion, self._beliefs = encoding, seed, criterion, beliefs
        self._surrogate, self._success = Surrogate(encoding.is_category), SuccessModel(encoding.is_category)
        self._low, self._high = np.zeros(encoding.n_dimensions), np.ones(encoding.n_dimensions)
        n_levels = np.array([0 if levels is None else len(levels) for levels in encoding.levels])
        self._categorical_dimensions = np.flatnonzero(encoding.is_category & (n_levels > 1))
        self._numeric_dimensions = np.flatnonzero(~encoding.is_category & (n_levels != 1))

    def limit(self, low: Floats, high: Floats) -> None:
        """Sets the ranges of numbers in later proposals, in the unit cube; both of shape (n_dimensions,)."""
        self._low, self._high = low, high

    def propose(
        self, observed: Observations, pending: Floats, number: int, count: int, is_allowed: Callable[[Floats], bool]
    ) -> list[Floats]:
        """Proposes up to `count` rows one after the other; the earlier ones count as pending for the later ones.

        Args:
            observed: All observations; at least two did not fail.
            pending: Shape (m, n_dimensions), the rows of pending trials.
            number: The number of the first proposal.
            count: The number of proposals.
            is_allowed: Whether a row may be proposed. Rows near pending ones are never proposed.

        Returns:
            Rows of shape (n_dimensions,); fewer than `count` if no other row is allowed.
        """
        succeeded = observed.succeeded()
        success = self._success.fit(observed)
        log_success = None if success is None else success.log_probability
        beliefs = None
        if self._beliefs:
            beliefs = self._beliefs, self._beliefs.exponent(succeeded.rows, succeeded.values)
        regions: dict[bool, Region] = {}
        rows: list[Floats] = []
        taken = pending

        def is_free(row: Floats) -> bool:
            return not is_near(row, taken) and is_allowed(row)

        with _threads().limit(limits=1):  # rank 0 is also the coordinator and shares its host with other ranks
            for index in range(count):
                is_local = self._is_local(number + index, len(succeeded.values))
                if is_local not in regions:
                    regions[is_local] = self._neighbourhood(succeeded) if is_local else self._whole_space(succeeded)
                    regions[is_local].model.add_pending(taken)
                region = regions[is_local]
                excluded = self._excluded(number + index, succeeded)
                acquisition = Acquisition(region.model, region.best, self._criterion, log_success, excluded, beliefs)
                rng = np.random.default_rng([self._seed, number + index, 1])
                moved = self._with_other_number(number + index, succeeded, rng)
                effort = 1.0 if len(taken) < N_THOROUGH else 0.25
                row = self._best_row(region, acquisition, success, moved, rng, effort, is_free)
                if row is None:
                    break
                rows.append(row)
                taken = np.vstack([taken, row])
                for known in regions.values():
                    known.model.add_pending(row[None, :])
        return rows

    def _is_local(self, number: int, n_values: int) -> bool:
        """Whether proposal `number` comes from a model of the neighbourhood of the incumbent."""
        is_enough = n_values >= MIN_LOCAL + 2 * self._encoding.n_dimensions
        is_turn = number % LOCAL_EVERY == 1
        return is_enough and is_turn and not self._has_other_category(number) and not self._has_other_number(number)

    def _has_other_category(self, number: int) -> bool:
        return number % OTHER_CATEGORY_EVERY == 2 and len(self._categorical_dimensions) > 0

    def _excluded(self, number: int, observed: Observations) -> tuple[int, float] | None:
        """A dimension of categories and the incumbent's category there, which proposal `number` must not have.

        Returns:
            None if it may have any category, or if no hyperparameter that is active in the incumbent has another one.
        """
        if not self._has_other_category(number):
            return None
        best = observed.rows[int(np.argmin(observed.values))]
        choices = self._categorical_dimensions[self._encoding.is_active(best)[self._categorical_dimensions]]
        if not len(choices):
            return None
        index = int(choices[number // OTHER_CATEGORY_EVERY % len(choices)])
        return index, float(best[index])

    def _has_other_number(self, number: int) -> bool:
        is_turn = number % OTHER_NUMBER_EVERY == 3  # never that of another category
        return is_turn and number >= OTHER_NUMBER_AFTER and len(self._numeric_dimensions) > 0

    def _with_other_number(self, number: int, observed: Observations, rng: np.random.Generator) -> Floats:
        """Copies of the incumbent with other values of one number: shape (n, n_dimensions).

        There are none if proposal `number` is of another kind, or if no number of the incumbent has other values.
        """
        best = observed.rows[int(np.argmin(observed.values))]
        if not self._has_other_number(number):
            return np.empty((0, len(best)))
        choices = self._numeric_dimensions[self._encoding.is_active(best)[self._numeric_dimensions]]
        if not len(choices):
            return np.empty((0, len(best)))
        index = int(choices[number // OTHER_NUMBER_EVERY % len(choices)])
        low, width = self._low[index], self._high[index] - self._low[index]
        rows = np.tile(np.where(self._encoding.is_category, best, np.clip(best, self._low, self._high)), (N_MOVED, 1))
        rows[:, index] = low + width * (np.arange(N_MOVED) + rng.random(N_MOVED)) / N_MOVED
        is_far: Bools = np.abs(self._on_levels(rows)[:, index] - best[index]) >= MIN_MOVE * width
        return rows[is_far]

    def _whole_space(self, observed: Observations) -> Region:
        n = self._encoding.n_dimensions
        return Region(*self._surrogate.fit(observed), observed, np.zeros(n), np.ones(n))

    def _neighbourhood(self, observed: Observations) -> Region:
        """A model of the neighbourhood of the incumbent, which may fit where one model of the whole space does not."""
        best = int(np.argmin(observed.values))
        n_fitted = max(anchor_size(len(observed.values), FIRST_FIT, FIT_GROWTH), best + 1)  # with the incumbent
        near, fitted = (self._near(part, observed.rows[best]) for part in (observed, observed.first(n_fitted)))
        return Region(*self._surrogate.fit_part(near, fitted), near, near.rows.min(axis=0), near.rows.max(axis=0))

    def _near(self, observed: Observations, incumbent: Floats) -> Observations:
        """The third of the observations that is nearest to the incumbent, within limits."""
        n = max(MIN_LOCAL + 2 * self._encoding.n_dimensions, len(observed.values) // 3)
        return observed.nearest(min(n, MAX_LOCAL), incumbent, self._encoding.is_category)

    def _best_row(
        self,
        region: Region,
        acquisition: Acquisition,
        success: SuccessProbability | None,
        moved: Floats,
        rng: np.random.Generator,
        effort: float,
        is_allowed: Callable[[Floats], bool],
    ) -> Floats | None:
        """The allowed row with the largest acquisition function, one of `moved` if any of them is allowed.

        If some candidates are likely to succeed, only rows that are likely to succeed are allowed.

        Returns:
            None if no row is allowed.
        """
        candidates, least = self._candidates(region, rng, effort), 0.0
        if success is not None:
            least = success.least_margin(candidates)
            candidates, moved = (rows[success.margins(rows) >= least] for rows in (candidates, moved))

        def may_be_proposed(row: Floats) -> bool:
            is_likely = success is None or bool(success.margins(row[None, :])[0] >= least)
            return is_likely and is_allowed(row)

        low, high = self._box(region)
        row = None
        if len(moved):
            row = maximize(acquisition, self._encoding, moved, low, high, may_be_proposed, n_starts=0)
        if row is None:
            n_starts = math.ceil(effort * N_STARTS)
            row = maximize(acquisition, self._encoding, candidates, low, high, may_be_proposed, n_starts)
        return row

    def _candidates(self, region: Region, rng: np.random.Generator, effort: float) -> Floats:
        """Random rows of the region, and rows near its best five: shape (n, n_dimensions)."""
        is_category = self._encoding.is_category
        anywhere = self._random_rows(rng, math.ceil(effort * N_GLOBAL))
        low, high = self._box(region)
        inside = self._on_levels(np.where(is_category, anywhere, low + anywhere * (high - low)))
        best = region.observed.rows[np.argsort(region.observed.values, kind="stable")[:5]]
        around = self._rows_near(best, rng, math.ceil(effort * N_LOCAL))
        return np.vstack([inside, np.where(is_category, around, np.clip(around, low, high))])

    def _box(self, region: Region) -> tuple[Floats, Floats]:
        """The ranges of numbers in a region; those of `limit` where the region is outside of them."""
        low, high = np.maximum(region.low, self._low), np.minimum(region.high, self._high)
        is_outside = low > high
        return np.where(is_outside, self._low, low), np.where(is_outside, self._high, high)

    def _random_rows(self, rng: np.random.Generator, count: int) -> Floats:
        """Rows drawn from the priors: shape (count, n_dimensions)."""
        return self._on_levels(self._encoding.from_units(rng.random((count, self._encoding.n_dimensions))))

    def _rows_near(self, best: Floats, rng: np.random.Generator, count: int) -> Floats:
        """Rows near those of `best`: some numbers moved by 0.001 to 0.3, some categories redrawn."""
        rows = best[rng.integers(len(best), size=count)]
        scale = 10.0 ** rng.uniform(-3.0, -0.5, size=(count, 1))
        moved = np.clip(rows + scale * rng.standard_normal(rows.shape), 0.0, 1.0)
        redrawn = self._encoding.from_units(rng.random(rows.shape))
        is_changed = rng.random(rows.shape) < max(0.5, 1.0 / rows.shape[1])
        is_redrawn = is_changed & self._encoding.is_category & (rng.random(rows.shape) < 0.3)
        rows = np.where(is_changed & ~self._encoding.is_category, moved, rows)
        return self._on_levels(np.where(is_redrawn, redrawn, rows))

    def _on_levels(self, rows: Floats) -> Floats:
        """Rounds numbers with few values to the nearest of them, in place."""
        for index, levels in enumerate(self._encoding.levels):
            if levels is not None:
                rows[:, index] = levels[np.abs(rows[:, index][:, None] - levels).argmin(axis=1)]
        return rows
