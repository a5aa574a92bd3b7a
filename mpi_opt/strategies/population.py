"""Population-based training (Jaderberg et al., arXiv:1711.09846, 2017): hyperparameters change during the training.

A population of networks is trained for a few epochs at a time. A network that is among the worst takes over the weights
and the hyperparameters of one of the best (exploit), with its real hyperparameters changed slightly (explore). The
lineage of the best network is a schedule of the hyperparameters.

Selection is greedy: it favours hyperparameters that improve the network soon, such as a small learning rate, even if
others lead to a better network in the end (Dalibard and Jaderberg, arXiv:2109.13800, 2021); see
``experiments/population``. The method differs from the paper as follows:

- Networks start on a scrambled Sobol sequence instead of random points.
- A network is compared with those that were trained for as many epochs (truncation selection among peers).
- With a `max_budget` few networks are replaced at first and many at the end, when greedy selection does no harm.
- There is no barrier: each trial continues, or replaces, the network that has waited longest.
- Numbers with a log-uniform prior are multiplied or divided by 1 + `change`; others move by a part of their range.
- With several figures of merit the best networks are those of the first Pareto fronts, and within a front those with
  the largest crowding distance; the reported schedule is that of the best first figure.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np
from pydantic import Field

from mpi_opt.core.figures_of_merit import order
from mpi_opt.core.search_space.space import Integer, Parameters, Real, Space, Value
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.beliefs import SobolDesign
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, proposals_up_to, read_options
from mpi_opt.strategies.points.checks import unknown_hyperparameter
from mpi_opt.strategies.strategy import Cost, Strategy


class PopulationOptions(Options):
    """The options of `Population`.

    Attributes:
        population: Number of networks that are trained side by side. Without `max_budget`, more are trained if more
            trials are requested at once, and at least ``lag`` with ``reproducible``. With `max_budget`, further blocks
            are idle. When a study is continued, `population` must not increase and `max_budget` must not be added,
            because some checkpoints were removed.
        interval: Epochs of one trial, after which it is compared. The last trial of a network has fewer if `max_budget`
            is not a multiple.
        max_budget: Epochs after which a network is complete. By default the number of trials ends the search.
        quantile: Fraction of the population that counts as the best, and as the worst. With a `max_budget` it
            grows from half of this value at first to twice this value, but at most 0.5, at the end.
        change: A number with a log-uniform prior is multiplied or divided by 1 + `change`; any other number moves by
            a sixth of `change` times its range.
        resample: Probability that a number is drawn at random instead. For categories it is at least 0.1.
        perturb: The hyperparameters that may change during a training; by default the real ones on which no
            other depends. Hyperparameters that define the shape of the network must not change.
    """

    population: int = Field(default=8, ge=2)
    interval: float = Field(default=1, gt=0)
    max_budget: float | None = Field(default=None, gt=0)
    quantile: float = Field(default=0.25, gt=0, le=0.5)
    change: float = Field(default=0.6, gt=0)
    resample: float = Field(default=0, ge=0, le=1)
    perturb: tuple[str, ...] | None = None


PART_OF_RANGE = 1 / 6
"""Part of the range by which a number changes, in units of `change`: with the default, a tenth of the range."""

MIN_RESAMPLING_PROBABILITY = 0.1
"""Least probability that a category is drawn at random, because a category has no small changes."""


@final
class Population(Strategy):
    """Completed trials wait in the order in which they ended. A proposal continues or replaces the first of them."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(PopulationOptions, options)
        self._space, self._seed = space, seed
        self._bookkeeping = Bookkeeping(space, self._options)
        self._design = SobolDesign(space, seed)
        self._perturbed = self._names_to_perturb()
        self._trials: dict[int, Proposal] = {}
        self._costs: dict[int, Cost] = {}
        self._waiting: deque[int] = deque()
        self._recent = self._new_peers()
        self._recent_at: defaultdict[float, deque[int]] = defaultdict(self._new_peers)
        self._resumable: set[int] = set()
        self._given_up: set[int] = set()
        self._n_without_successor = 0

    def expect(self, n_figures: int) -> None:
        self._bookkeeping.expect(n_figures)

    def ask(self, count: int) -> list[Proposal]:
        """Continues trials that ended, or starts networks; nothing if all networks are complete or in training."""
        return proposals_up_to(count, self._proposal)

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Records the outcome. The trial then waits to be continued or replaced."""
        cost = self._bookkeeping.observe(proposal, outcome)
        if proposal.budget is None:  # a trial of another strategy, from which no network can resume
            return
        self._trials[proposal.number] = proposal
        self._resumable.add(proposal.number)
        if cost is not None:
            self._costs[proposal.number] = cost
            self._recent_at[proposal.budget or 0.0].append(proposal.number)
            if not self._is_complete(proposal):
                self._recent.append(proposal.number)
            if self._options.max_budget is None:
                self._give_up_short_trainings()
        if self._is_complete(proposal):
            return
        if cost is not None or self._recent:
            self._waiting.append(proposal.number)
        else:  # no network can take its place, because none has succeeded yet: another one is started
            self._n_without_successor += 1

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Rebuilds the population: each trial that resumes another one took the place of the first that waited."""
        observed, pending = list(observed), list(pending)
        self._bookkeeping.resume(self.tell, observed, pending)
        proposals = [*pending, *(proposal for proposal, _ in observed)]
        n_continued = sum(proposal.resume_from is not None for proposal in proposals)
        for _ in range(min(n_continued, len(self._waiting))):
            self._waiting.popleft()

    @property
    def finished(self) -> bool:
        """Whether every network was trained for `max_budget` epochs."""
        return self._is_closed and not self._waiting and not self._bookkeeping.pending

    @property
    def waits(self) -> bool:
        """Whether there is a `max_budget`, so that `ask` may wait for a network in training."""
        return self._options.max_budget is not None

    def obsolete(self) -> list[int]:
        """Trials that neither wait, nor can be compared with others, nor are resumed by a pending one.

        Once no new network can start, trials with fewer epochs than all networks are not compared any more.
        """
        pending = self._bookkeeping.pending.values()
        alive = [proposal.budget or 0.0 for proposal in (*pending, *(self._trials[number] for number in self._waiting))]
        least = min(alive, default=math.inf) if self._is_closed else 0.0
        peers = {number for budget, same in self._recent_at.items() if budget >= least for number in same}
        resumed = {proposal.resume_from for proposal in pending}
        needed = {*self._waiting, *self._recent, *resumed, *(peers - self._given_up)}
        found = sorted(self._resumable - needed)
        self._resumable &= needed
        return found

    def _proposal(self) -> Proposal | None:
        n_alive = len(self._waiting) + len(self._bookkeeping.pending)
        if n_alive < self._options.population and not self._is_closed:
            return self._start_network()
        if self._waiting:
            return self._continue_network(self._waiting.popleft())
        return self._start_network() if self._options.max_budget is None else None

    @property
    def _is_closed(self) -> bool:
        """Whether no more networks are started."""
        return self._options.max_budget is not None and self._n_started >= self._options.population

    @property
    def _n_started(self) -> int:
        trials = self._trials | self._bookkeeping.pending
        n_first = sum(proposal.resume_from is None and proposal.budget is not None for proposal in trials.values())
        return n_first - self._n_without_successor

    def _is_complete(self, proposal: Proposal) -> bool:
        return self._options.max_budget is not None and (proposal.budget or 0) >= self._options.max_budget

    def _start_network(self) -> Proposal:
        point = self._bookkeeping.next_known_point() or self._design.new_point(self._bookkeeping)
        return self._bookkeeping.propose(point, budget=self._next_budget(0.0))

    def _continue_network(self, number: int) -> Proposal:
        """The next trial of the network that ended trial `number`, or of a better one in its place."""
        rng = np.random.default_rng([self._seed, self._bookkeeping.n_asked])
        parent, parameters = self._trials[number], self._trials[number].parameters
        peers = self._peers(parent.budget or 0.0)
        ranked = [peers[index] for index in order([self._costs[peer] for peer in peers])]
        n_best = self._n_best(len(ranked), parent.budget or 0.0)
        # in a population of one or two, the best are also the worst: then no network is replaced
        is_failed, is_bad = number not in self._costs, number in ranked[-n_best:] and len(ranked) > n_best
        if is_failed or is_bad:
            parents = [peer for peer in ranked[:n_best] if peer not in self._given_up] or sorted(self._recent)
            parent = self._trials[parents[int(rng.integers(len(parents)))]]
            parameters = self._explored(parent.parameters, rng)
        budget = self._next_budget(parent.budget or 0.0)
        return self._bookkeeping.propose(parameters, budget=budget, resume_from=parent.number)

    def _give_up_short_trainings(self) -> None:
        """No network takes over a trial that has fewer epochs than all recent ones: its checkpoint is not needed.

        Depends on the order of the outcomes only, so that it is the same in a search that is continued.
        """
        if len(self._recent) == self._recent.maxlen:
            least = min(self._trials[number].budget or 0.0 for number in self._recent)
            self._given_up.update(n for budget, same in self._recent_at.items() if budget < least for n in same)

    def _next_budget(self, budget: float) -> float:
        """The epochs after which the next trial of a network with `budget` epochs ends."""
        longer, full = budget + self._options.interval, self._options.max_budget
        return longer if full is None else min(longer, full)

    def _peers(self, budget: float) -> list[int]:
        """The latest trials with the same budget; if these are fewer than half a population, the latest that are not
        complete."""
        same = self._recent_at[budget]
        return sorted(same if 2 * len(same) >= self._options.population else self._recent)

    def _n_best(self, n: int, budget: float) -> int:
        """How many of `n` networks count as the best, and how many as the worst, after `budget` epochs."""
        part, interval, full = self._options.quantile, self._options.interval, self._options.max_budget
        if full is not None and full > 2 * interval:
            part *= 0.5 + 1.5 * min(max((budget - interval) / (full - 2 * interval), 0.0), 1.0)
        return max(1, min(round(part * n), n // 2))

    def _new_peers(self) -> deque[int]:
        return deque(maxlen=max(self._options.population, 4))

    def _explored(self, parameters: Parameters, rng: np.random.Generator) -> Parameters:
        changed = {
            name: self._changed(name, value, rng) if name in self._perturbed else value
            for name, value in parameters.items()
        }
        return changed if self._bookkeeping.allows(changed) else parameters

    def _changed(self, name: str, value: Value, rng: np.random.Generator) -> Value:
        dimension = self._space[name]
        is_number = isinstance(dimension, Real | Integer)
        resample = self._options.resample if is_number else max(self._options.resample, MIN_RESAMPLING_PROBABILITY)
        is_drawn, is_up = rng.random() < resample, rng.random() < 0.5
        drawn = dimension.sample(rng)
        if is_drawn:
            return drawn
        return self._moved(dimension, value, is_up) if isinstance(dimension, Real | Integer) else value

    def _moved(self, dimension: Real | Integer, value: Value, is_up: bool) -> Value:
        """A number changed by one step up or down, within its bounds."""
        assert isinstance(value, int | float)
        if dimension.prior == "log-uniform":
            factor = 1.0 + self._options.change
            moved = value * factor if is_up else value / factor
        else:
            step = PART_OF_RANGE * self._options.change * (dimension.high - dimension.low)
            moved = value + step if is_up else value - step
        least = dimension.step or 0  # a smaller change would be rounded away
        moved = max(moved, value + least) if is_up else min(moved, value - least)
        return dimension.decode(dimension.encode(min(max(moved, dimension.low), dimension.high)))

    def _names_to_perturb(self) -> set[str]:
        names, where = self._options.perturb, "search.options.perturb"
        parents = {parent for dimension in self._space.values() for parent in dimension.when or ()}
        if names is None:
            numbers = {name for name, dimension in self._space.items() if isinstance(dimension, Real)}
            return numbers - parents
        for name in names:
            if name not in self._space:
                raise unknown_hyperparameter(name, self._space, where)
            if name in parents:
                raise ConfigurationError(
                    f"{name} cannot be perturbed, because the condition of another hyperparameter depends on it",
                    where=where,
                    cure=f"remove {name} from the list",
                )
        return set(names)
