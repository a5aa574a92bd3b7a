"""Population-based training (Jaderberg et al. 2017): hyperparameters change while the networks are trained.

A population of networks is trained a few epochs at a time. One that is among the worst takes over weights and
hyperparameters of one of the best (exploit), its real hyperparameters a little changed (explore). The best lineage is a
learnt schedule. Of several figures of merit the best are those of the first Pareto fronts, and on one front the lonely
ones; the schedule is that of the best first figure.

Selection is greedy: what pays at once, such as a small learning rate, may cost later (Dalibard and Jaderberg 2021). So
networks start evenly spread, are compared with those that had as many epochs, and few are replaced at first; many at
the end, where what pays at once is what counts.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np
from pydantic import Field

from mpi_learn.settings.yaml_file import nearest
from mpi_opt.core.pareto import order
from mpi_opt.core.space import Integer, Parameters, Real, Space, Value
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.bookkeeping import Ledger
from mpi_opt.strategies.points.options import Options, read_options
from mpi_opt.strategies.points.sampling import Draws
from mpi_opt.strategies.points.sobol import SobolPoints
from mpi_opt.strategies.strategy import Cost, Strategy


class PopulationOptions(Options):
    """What `Population` takes.

    Attributes:
        population: How many networks are trained side by side; more if more trials are asked for at once.
        interval: Epochs of one trial; then it is compared.
        max_budget: Epochs after which a network is done; none: the number of trials decides.
        quantile: The worst and the best are this part of the population; with a `max_budget` on average: half of it at
            first, twice at the end.
        change: A number with a log-uniform prior is multiplied or divided by 1 + this; another is moved by a sixth of
            this part of its range.
        resample: Probability that a number is drawn anew instead. A category is, with at least a tenth.
        perturb: The hyperparameters that may change during a training; default: the real ones. Those that shape the
            network must not.
    """

    population: int = Field(default=8, ge=2)
    interval: float = Field(default=1, gt=0)
    max_budget: float | None = Field(default=None, gt=0)
    quantile: float = Field(default=0.25, gt=0, le=0.5)
    change: float = Field(default=0.6, gt=0)
    resample: float = Field(default=0, ge=0, le=1)
    perturb: tuple[str, ...] | None = None


PART_OF_RANGE = 1 / 6
"""By default a tenth of the range: about what the default factor is of three decades."""

LEAST_RESAMPLED = 0.1
"""The probability that a category is drawn anew: there is no smaller change of one."""


@final
class Population(Strategy):
    """Trials that ended wait in the order in which they did; a proposal continues, or replaces, the first of them."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(PopulationOptions, options)
        self._space, self._seed = space, abs(seed)
        self._ledger = Ledger(space, self._options)
        self._draws, self._design = Draws(space, seed), SobolPoints(len(space), seed)
        self._perturbed = self._names_to_perturb()
        self._trials: dict[int, Proposal] = {}
        self._values: dict[int, Cost] = {}
        self._waiting: deque[int] = deque()
        self._recent = self._some()
        self._told_at: defaultdict[float, deque[int]] = defaultdict(self._some)
        self._resumable: set[int] = set()

    def expect(self, n_merits: int) -> None:
        """Compares by Pareto front."""

    def ask(self, count: int) -> list[Proposal]:
        """Goes on with trials that ended, or starts networks; none if all networks are done or being trained."""
        proposals: list[Proposal] = []
        while len(proposals) < count:
            n_alive = len(self._waiting) + len(self._ledger.pending)
            if n_alive < self._options.population and not self._is_closed:
                proposals.append(self._started())
            elif self._waiting:
                proposals.append(self._continued(self._waiting.popleft()))
            elif self._options.max_budget is None:
                proposals.append(self._started())
            else:
                break
        return proposals

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """The trial waits to be continued or replaced."""
        self._trials[proposal.number] = proposal
        self._resumable.add(proposal.number)
        value = self._ledger.settle(proposal, outcome)
        if value is not None:
            self._values[proposal.number] = value
            self._recent.append(proposal.number)
            self._told_at[proposal.budget or 0.0].append(proposal.number)
        if (value is not None or self._recent) and not self._is_done(proposal):
            self._waiting.append(proposal.number)

    def resume(self, told: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Takes up the population: every trial that goes on from another took the first that waited."""
        told, pending = list(told), list(pending)
        for proposal in pending:
            self._ledger.enter(proposal)
        for proposal, outcome in told:
            self.tell(proposal, outcome)
        n_continued = sum(one.resume_from is not None for one in [*pending, *(proposal for proposal, _ in told)])
        for _ in range(min(n_continued, len(self._waiting))):
            self._waiting.popleft()

    @property
    def finished(self) -> bool:
        """Whether every network has had its `max_budget`."""
        return self._is_closed and not self._waiting and not self._ledger.pending

    @property
    def waits(self) -> bool:
        """With a `max_budget`: for a network that is being trained."""
        return self._options.max_budget is not None

    def obsolete(self) -> list[int]:
        """Trials that neither wait, nor can be compared with others, nor are resumed by a pending one.

        Once no new network can start, none is compared any more with trials of fewer epochs than every network has.
        """
        pending = self._ledger.pending.values()
        alive = [one.budget or 0.0 for one in (*pending, *(self._trials[number] for number in self._waiting))]
        least = min(alive, default=math.inf) if self._is_closed else 0.0
        needed = {*self._waiting, *self._recent, *(one.resume_from for one in pending)}
        needed.update(number for budget, same in self._told_at.items() if budget >= least for number in same)
        found = sorted(self._resumable - needed)
        self._resumable &= needed
        return found

    def state(self) -> dict[str, Any]:
        """The books in short, and the schedule of the best network: from when on it had which hyperparameters."""
        return self._ledger.state() | {"schedule": self.schedule()}

    def schedule(self) -> list[dict[str, Any]]:
        """The best trial's lineage: for each trial the epoch up to which it trained, and its hyperparameters."""
        if not self._values:
            return []
        lineage = [min(self._values, key=lambda number: self._values[number])]
        while (before := self._trials[lineage[-1]].resume_from) in self._trials:
            lineage.append(before)
        trials = [self._trials[number] for number in reversed(lineage)]
        return [{"trial": one.number, "until": one.budget, "parameters": one.parameters} for one in trials]

    @property
    def _is_closed(self) -> bool:
        """Whether no new network is started any more."""
        return self._options.max_budget is not None and self._n_started >= self._options.population

    @property
    def _n_started(self) -> int:
        everyone = self._trials | self._ledger.pending
        return sum(proposal.resume_from is None for proposal in everyone.values())

    def _is_done(self, proposal: Proposal) -> bool:
        return self._options.max_budget is not None and (proposal.budget or 0) >= self._options.max_budget

    def _started(self) -> Proposal:
        point = self._ledger.initial()
        if point is None:
            point = self._space.decode(self._design.point(self._ledger.n_asked))
            if not (self._ledger.allows(point) and self._ledger.is_new(point)):
                point = self._draws.new_point(self._ledger)
        return self._ledger.propose(point, budget=self._options.interval)

    def _continued(self, number: int) -> Proposal:
        rng = np.random.default_rng([self._seed, self._ledger.n_asked])
        parent, parameters = self._trials[number], self._trials[number].parameters
        peers = self._peers(parent.budget or 0.0)
        ranked = [peers[index] for index in order([self._values[one] for one in peers])]
        n_best = self._n_best(len(ranked), parent.budget or 0.0)
        is_failed, is_bad = number not in self._values, number in ranked[-n_best:] and len(ranked) > n_best
        if is_failed or is_bad:
            parent = self._trials[ranked[int(rng.integers(n_best))]]
            parameters = self._explored(parent.parameters, rng)
        budget = (parent.budget or 0) + self._options.interval
        return self._ledger.propose(parameters, budget=budget, resume_from=parent.number)

    def _peers(self, budget: float) -> list[int]:
        """Those told last with as many epochs; if these are few, because it ran ahead or fell back, all told last."""
        same = self._told_at[budget]
        return sorted(same if 2 * len(same) >= self._options.population else self._recent)

    def _n_best(self, n: int, budget: float) -> int:
        """How many of `n` networks are the best, and how many the worst, after so many epochs."""
        part, interval, full = self._options.quantile, self._options.interval, self._options.max_budget
        if full is not None and full > 2 * interval:
            part *= 0.5 + 1.5 * min(max((budget - interval) / (full - 2 * interval), 0.0), 1.0)
        return max(1, min(round(part * n), n // 2))

    def _some(self) -> deque[int]:
        return deque(maxlen=max(self._options.population, 4))

    def _explored(self, parameters: Parameters, rng: np.random.Generator) -> Parameters:
        changed = {
            name: self._changed(name, value, rng) if name in self._perturbed else value
            for name, value in parameters.items()
        }
        return changed if self._ledger.allows(changed) else parameters

    def _changed(self, name: str, value: Value, rng: np.random.Generator) -> Value:
        dimension, factor = self._space[name], 1.0 + self._options.change
        is_number = isinstance(dimension, Real | Integer)
        resample = self._options.resample if is_number else max(self._options.resample, LEAST_RESAMPLED)
        is_drawn, is_up = rng.random() < resample, rng.random() < 0.5
        fresh = dimension.sample(rng)
        if is_drawn or not is_number:
            return fresh if is_drawn else value
        if dimension.prior == "log-uniform":
            moved = value * factor if is_up else value / factor
        else:
            part = PART_OF_RANGE * self._options.change * (dimension.high - dimension.low)
            moved = value + part if is_up else value - part
        if isinstance(dimension, Integer):
            moved = math.ceil(moved) if is_up else math.floor(moved)
        return dimension.decode(dimension.encode(min(max(moved, dimension.low), dimension.high)))

    def _names_to_perturb(self) -> set[str]:
        names = self._options.perturb
        if names is None:
            return {name for name, dimension in self._space.items() if isinstance(dimension, Real)}
        parents = {parent for dimension in self._space.values() for parent in dimension.when or ()}
        for name in names:
            if name not in self._space or name in parents:
                near = nearest(name, self._space)
                problem = "others depend on it" if name in self._space else "is not a hyperparameter"
                hint = f"did you mean {near}?" if near and near != name else ""
                raise ConfigurationError(f"{name}: {problem}", where="search.options.perturb", cure=hint)
        return set(names)
