"""A prototype of a strategy that models configuration and epoch jointly (as in Swersky, Snoek and Adams, 2014).

It proposes new configurations, and continues trials that pause, from rung to rung. It has the interface of `halving`:
a continuation is a new trial that resumes from the one before.
"""

from __future__ import annotations

import numpy as np
from joint_model import Likelihood, Posterior
from scipy.special import ndtr

from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.points.encoding import Encoding

FACTOR = 1.6
"""The ratio of the epochs of two rungs."""
N_FIRST, N_FULL = 8, 2
"""The number of first configurations, which are random, and how many of them are trained to the end at once."""
RANDOM = 0.25
"""The probability that a proposal is a random configuration. One epoch of it costs little."""
MAX_VALUES, LAST_VALUES = 150, 90
"""The number of values in a model, and how many of them are the last one of a configuration."""
FIT_GROWTH = 1.25
N_NEW, N_LOCAL, N_KEPT = 250, 75, 25
"""New configurations to choose from; how many of them are near good ones; and how many of these and of the paused ones
are compared at each rung."""
MIN_DISTANCE = 0.05
"""Of new configurations from the others, times √dimensions."""
SHARPNESS = 0.3


def rungs(n_epochs: int) -> list[int]:
    """Epochs, from 1 to `n_epochs`."""
    found = [1]
    while found[-1] < n_epochs / 1.25:
        found.append(max(found[-1] + 1, round(found[-1] * FACTOR)))
    return [*found[:-1], n_epochs] if found[-1] > n_epochs / 1.25 else [*found, n_epochs]


class FreezeThaw:
    """The strategy.

    Args:
        space: The search space.
        seed: Of the random numbers.
        n_epochs: Those of a full training.
        finishing: The part of the epochs that goes to the paused trial with the largest expected improvement for each
            of its remaining epochs. Without it, many good trials pause before their end.
    """

    def __init__(self, space: Space, seed: int, n_epochs: int, finishing: float = 0.3) -> None:
        self._n_epochs, self._rungs, self._finishing = n_epochs, rungs(n_epochs), finishing
        self._encoding, self._rng = Encoding(space), np.random.default_rng([seed, 11])
        self._random = make_strategy("random", space, seed=seed)
        self._is_category = np.append(self._encoding.is_category, [False, True])
        self._rows: list[np.ndarray] = []
        self._curves: list[dict[int, float]] = []  # epochs to cost
        self._last: dict[int, Proposal] = {}
        self._pending: dict[int, int] = {}  # configuration to epochs
        self._failed: set[int] = set()
        self._configuration_of: dict[int, int] = {}
        self._theta: np.ndarray | None = None
        self._n_told = self._n_fitted = 0
        self._epochs = self._epochs_of_finishing = 0

    def tell(self, proposal: Proposal, outcome: float | Failed) -> None:
        configuration = self._configuration_of[proposal.number]
        del self._pending[configuration]
        if isinstance(outcome, Failed):
            self._failed.add(configuration)
        else:
            self._curves[configuration][int(proposal.budget)] = outcome
            self._n_told += 1

    def ask(self, count: int) -> list[Proposal]:
        return [self._proposal() for _ in range(count)]

    def _proposal(self) -> Proposal:
        if len(self._rows) < N_FIRST or sum(map(bool, self._curves)) < 4:
            return self._start(None)
        paused = self._paused()
        if first := [each for each in paused if each < N_FULL]:
            return self._continue(first[0])
        if self._rng.random() < RANDOM:
            return self._start(None)
        self._fit()
        if paused and self._epochs_of_finishing < self._finishing * self._epochs:
            left = np.array([self._n_epochs - self._trained(each) for each in paused])
            gains = _improvement(self._best, *self._predict(np.array([self._rows[each] for each in paused]), paused))
            proposal = self._continue(paused[int(np.argmax(gains / left))])
            self._epochs_of_finishing += int(proposal.budget) - self._trained(self._configuration_of[proposal.number])
            return proposal
        return self._by_rate(paused)

    def _start(self, row: np.ndarray | None) -> Proposal:
        point = self._random.ask(1)[0].parameters if row is None else self._encoding.point(row)
        self._rows.append(self._encoding.row(point))
        self._curves.append({})
        return self._propose(len(self._rows) - 1, point, None)

    def _continue(self, configuration: int) -> Proposal:
        last = self._last[configuration]
        return self._propose(configuration, last.parameters, last.number)

    def _propose(self, configuration: int, point: Parameters, resume_from: int | None) -> Proposal:
        trained = self._trained(configuration)
        epochs = self._next_rung(trained)
        proposal = Proposal(len(self._configuration_of), point, float(epochs), resume_from)
        self._configuration_of[proposal.number], self._pending[configuration] = configuration, epochs
        self._last[configuration] = proposal
        self._epochs += epochs - trained
        return proposal

    def _trained(self, configuration: int) -> int:
        return max(self._curves[configuration], default=0)

    def _next_rung(self, trained: int) -> int:
        return next(rung for rung in self._rungs if rung > trained)

    def _paused(self) -> list[int]:
        """The configurations that can continue."""
        is_free = [bool(curve) and self._n_epochs not in curve for curve in self._curves]
        busy = self._failed | set(self._pending)
        return [each for each, free in enumerate(is_free) if free and each not in busy]

    def _fit(self) -> None:
        values = self._values()
        latest = [curve[max(curve)] for curve in self._curves if curve]
        best = min(min(curve.values()) for curve in self._curves if curve)
        scale = float(np.quantile(latest, 0.25)) - best or 1.0
        warped = np.arcsinh(np.clip((np.array([cost for *_, cost in values]) - best) / scale, -10, 30) / SHARPNESS)
        shift, spread = warped.mean(), warped.std() + 1e-9

        def warp(cost: float) -> float:
            return float((np.arcsinh(np.clip((cost - best) / scale, -10, 30) / SHARPNESS) - shift) / spread)

        self._warp = warp
        self._trend = self._mean_curve()
        numbers, epochs = (np.array([value[index] for value in values]) for index in (0, 1))
        costs = (warped - shift) / spread
        x = self._points(np.array([self._rows[each] for each in numbers]), epochs, numbers)
        residuals = costs - np.interp(epochs, self._rungs, self._trend)
        if self._theta is None or self._n_told >= FIT_GROWTH * self._n_fitted:
            likelihood = Likelihood(x, self._is_category)
            self._theta = likelihood.fit(residuals, self._theta, 25 if self._theta is None else 10)
            self._n_fitted = self._n_told
        self._model = Posterior(x, residuals, self._is_category, self._theta)
        predicted = self._model.predict(x)[0] + np.interp(epochs, self._rungs, self._trend)
        self._best = float((predicted if self._model.noise > 1e-3 else costs).min())
        if self._pending:
            numbers = list(self._pending)
            rows = np.array([self._rows[each] for each in numbers])
            self._model.add_pending(self._points(rows, np.array(list(self._pending.values())), numbers))

    def _values(self) -> list[tuple[int, int, float]]:
        """Configuration, epochs and cost of the values in the model: the last ones, then others of long trainings."""
        known = [each for each, curve in enumerate(self._curves) if curve]
        good = sorted(known, key=lambda each: min(self._curves[each].values()))
        longest = sorted(good, key=lambda each: -self._trained(each))
        first = longest[: LAST_VALUES // 3] if len(good) > LAST_VALUES else good
        last = list(dict.fromkeys([*first, *good]))[:LAST_VALUES]
        found = [(each, self._trained(each)) for each in last]
        earlier = sorted(
            (place + rank / 6, each, epochs)
            for rank, each in enumerate(longest)
            for place, epochs in enumerate(sorted(self._curves[each])[-2::-1])
        )
        found += [(each, epochs) for _, each, epochs in earlier[: MAX_VALUES - len(found)]]
        return [(each, epochs, self._curves[each][epochs]) for each, epochs in found]

    def _mean_curve(self) -> np.ndarray:
        """The mean change of the curves from rung to rung; beyond the longest curves it gets smaller."""
        mean, slope = [0.0], 0.0
        for rung, higher in zip(self._rungs, self._rungs[1:], strict=False):
            both = [curve for curve in self._curves if rung in curve and higher in curve]
            changes = [self._warp(curve[higher]) - self._warp(curve[rung]) for curve in both]
            slope = (sum(changes) + 0.7 * slope) / (len(changes) + 1)
            mean.append(mean[-1] + slope)
        return np.array(mean)

    def _points(self, rows: np.ndarray, epochs: np.ndarray, numbers: object) -> np.ndarray:
        return np.column_stack([rows, np.log(epochs) / np.log(self._n_epochs), numbers])

    def _predict(self, rows: np.ndarray, numbers: object) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation after all epochs."""
        mean, std = self._model.predict(self._points(rows, np.full(len(rows), self._n_epochs), numbers))
        return mean + self._trend[-1], std

    def _candidates(self, paused: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, numbers (-1: new) and epochs of the paused configurations and of new ones."""
        n_dimensions, known = self._encoding.n_dimensions, np.array(self._rows)
        seen = [each for each, curve in enumerate(self._curves) if curve]
        good = np.array(seen)[np.argsort(self._predict(known[seen], seen)[0])[:5]]
        units = self._rng.random((N_NEW, n_dimensions))
        steps = self._rng.standard_normal((N_LOCAL, n_dimensions)) * 10 ** self._rng.uniform(-1.2, -0.4, (N_LOCAL, 1))
        steps *= self._rng.random((N_LOCAL, n_dimensions)) < 0.5
        units[:N_LOCAL] = np.clip(self._encoding.units(known[self._rng.choice(good, N_LOCAL)]) + steps, 0, 1)
        new = self._encoding.rows_of_units(units)
        is_far = ((new[:, None] - known) ** 2).sum(axis=2).min(axis=1) > MIN_DISTANCE**2 * n_dimensions
        new = new[is_far] if is_far.sum() > 20 else new
        rows = np.vstack([known[paused].reshape(-1, new.shape[1]), new])
        trained = [self._trained(each) for each in paused] + [0] * len(new)
        return rows, np.array(paused + [-1] * len(new)), np.array(trained)

    def _by_rate(self, paused: list[int]) -> Proposal:
        """Trains the configuration with the largest expected improvement per epoch to its next rung.

        A policy trains it to some rung, and to the end if the prediction is then good enough. The rate of the best such
        policy is an approximation of the Gittins index.
        """
        rows, numbers, trained = self._candidates(paused)
        mean, std = self._predict(rows, numbers)
        gains, n = _improvement(self._best, mean, std), len(paused)
        kept = [*np.argsort(-gains[:n])[:N_KEPT], *(n + np.argsort(-gains[n:])[:N_KEPT])]
        pairs = np.array([(each, rung) for each in kept for rung in self._rungs if rung > trained[each]])
        index, epochs = pairs.T
        last = self._points(rows[index], np.full(len(index), self._n_epochs), numbers[index])
        resolved = self._model.resolved(self._points(rows[index], epochs, numbers[index]), last)
        near = epochs - trained[index]
        rates = _rate(self._best, mean[index], resolved, self._n_epochs - epochs, near)
        good = np.flatnonzero(rates >= 0.999 * rates.max())
        return self._run(index[good[np.argmin(near[good])]], rows, numbers)

    def _run(self, index: int, rows: np.ndarray, numbers: np.ndarray) -> Proposal:
        return self._start(rows[index]) if numbers[index] < 0 else self._continue(int(numbers[index]))


def _improvement(best: np.ndarray | float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """The expected improvement over `best`."""
    u = (best - mean) / std
    return std * (u * ndtr(u) + np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi))


def _rate(best: float, mean: np.ndarray, std: np.ndarray, far: np.ndarray, near: np.ndarray) -> np.ndarray:
    """The rate with which `near` epochs, and `far` further ones if they pay at this rate, pay on average."""
    low, high = np.zeros(len(mean)), _improvement(best, mean, std) / near
    for _ in range(25):
        middle = 0.5 * (low + high)
        pays = _improvement(best - middle * far, mean, std) > middle * near
        low, high = np.where(pays, middle, low), np.where(pays, high, middle)
    return 0.5 * (low + high)
