"""The importance of hyperparameters: a random forest (scikit-learn) fitted to the trials, and its fANOVA.

The share of a hyperparameter is the first-order term of the functional analysis of variance (Hutter, Hoos and
Leyton-Brown, ICML 2014, eq. 10): the variance over the hyperparameter of the mean of the forest over all other
hyperparameters, divided by the total variance of the forest. Means are over the prior and use Sobol points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_opt.core.trial import is_usable
from mpi_opt.study.study import Study

MIN_TRIALS = 10
"""The smallest number of complete trials for a forest."""

MAX_TRIALS = 2000
"""The largest number of complete trials, chosen at random, to which the forest is fitted."""

N_TREES = 64
N_BACKGROUND = 256
"""The number of Sobol points over which the forest is averaged."""

UNITS = (np.arange(24) + 0.5) / 24
"""The points in [0, 1] of one hyperparameter over which the variance of its mean curve is computed."""


class Forest:
    """A random forest over the unit cube of the space of a study.

    Attributes:
        names: The hyperparameters.
        shares: The fraction of the variance that each hyperparameter explains alone; the sum is at most about 1.
    """

    def __init__(self, names: Sequence[str], units: np.ndarray, figures: np.ndarray) -> None:
        """Fits the forest to points `units` (n_trials, n_hyperparameters) and their `figures` of merit (n_trials,)."""
        from scipy.stats import qmc
        from sklearn.ensemble import RandomForestRegressor

        self.names = list(names)
        leaf = 1 if len(figures) < 200 else 3
        # halves of values within [0, 1]: the variance of figures of merit near 1e200 would overflow
        self._low = 0.5 * float(figures.min())
        self._width = 0.5 * float(figures.max()) - self._low or 1.0
        scaled = (0.5 * figures - self._low) / self._width
        self._forest = RandomForestRegressor(N_TREES, min_samples_leaf=leaf, random_state=0).fit(units, scaled)
        self._background = qmc.Sobol(len(self.names), scramble=False).random(N_BACKGROUND)
        variance = self._forest.predict(self._background).var()
        means = [self._marginal([i], UNITS[:, None]) for i in range(len(self.names))]
        shares = [float(mean.var() / variance) if variance > 0 else 0.0 for mean in means]
        self.shares = dict(zip(self.names, shares, strict=True))

    @classmethod
    def of(cls, study: Study) -> Forest | None:
        """The forest of a study; None if too few trials are complete, or all figures of merit are equal."""
        trials = [t for t in study.trials if t.state == "complete" and is_usable(t.figure_of_merit)]
        if len(trials) > MAX_TRIALS:
            chosen = np.random.default_rng(0).choice(len(trials), MAX_TRIALS, replace=False)
            trials = [trials[i] for i in chosen]
        figures = np.array([trial.figure_of_merit for trial in trials])
        if len(trials) < MIN_TRIALS or figures.min() == figures.max():
            return None
        units = np.array([study.space.encode(trial.parameters) for trial in trials])
        return cls(list(study.space), units, _without_outliers(figures, study.record.maximize))

    def ranked(self) -> list[str]:
        """The hyperparameters, the most important first."""
        return sorted(self.names, key=lambda name: -self.shares[name])

    def curve(self, name: str, units: np.ndarray) -> np.ndarray:
        """The mean figure of merit over all other hyperparameters at `units` (m,) in [0, 1] of this one; shape (m,)."""
        return self._unscaled(self._marginal([self.names.index(name)], units[:, None]))

    def surface(self, x: str, y: str, units_x: np.ndarray, units_y: np.ndarray) -> np.ndarray:
        """The mean figure of merit over all hyperparameters except `x` and `y`.

        Returns:
            Shape (n_y, n_x), for `units_x` (n_x,) and `units_y` (n_y,), both in [0, 1].
        """
        grid = np.stack(np.meshgrid(units_x, units_y), axis=-1).reshape(-1, 2)
        means = self._marginal([self.names.index(x), self.names.index(y)], grid, n_background=64)
        return self._unscaled(means.reshape(len(units_y), len(units_x)))

    def _unscaled(self, means: np.ndarray) -> np.ndarray:
        """Figures of merit for means of the forest, whose values are within [0, 1]."""
        return 2.0 * (self._low + self._width * means)

    def _marginal(self, columns: list[int], points: np.ndarray, n_background: int = N_BACKGROUND) -> np.ndarray:
        """The mean of the forest over the Sobol points with `columns` set to each of `points`; shape (n_points,).

        Its values are within [0, 1]; see `_unscaled`.
        """
        background = self._background[:n_background]
        cube = np.tile(background, (len(points), 1))
        cube[:, columns] = np.repeat(points, len(background), axis=0)
        predictions: np.ndarray = self._forest.predict(cube)
        return np.asarray(predictions.reshape(len(points), len(background)).mean(axis=1))


def _without_outliers(figures: np.ndarray, maximize: bool) -> np.ndarray:
    """Limits very bad values, e.g. of diverged trainings, which would otherwise dominate the variance."""
    sign = -1.0 if maximize else 1.0
    values = sign * figures
    best, three_quarters = values.min(), np.quantile(values, 0.75, method="lower")
    with np.errstate(over="ignore"):  # nothing is above a limit that overflows
        limit = three_quarters + 2 * (three_quarters - best)
    return sign * np.minimum(values, limit) if limit > best else figures
