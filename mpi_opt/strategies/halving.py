"""Asynchronous successive halving (ASHA; Li et al., MLSys 2020, algorithm 2) and Hyperband (Li et al., JMLR 18, 2018).

Many configurations are trained for a few epochs; the best of them are trained for `factor` times as many, and so on. A
promoted trial resumes from its own checkpoint, so that no epoch is computed twice.

It differs from the papers as follows:

- Promotions are delayed (Li et al., PVLDB 15(6), 2022): at most one in `factor` is ever promoted from a
  rung, even if the ranking changes.
- A part of all epochs, `exploration`, goes to new configurations. The first promotion from each rung never waits. Every
  later one waits until new configurations have received this part. Where early costs say little about final ones,
  trying more configurations pays more than training more of them to the end (measured in ``experiments/halving``).
- New configurations may come from a Gaussian process of the costs at the highest rung with enough of them, as in BOHB
  (Falkner, Klein and Hutter, ICML 2018, section 4), which uses kernel density estimates.
- Hyperband's brackets are interleaved: the rung at which a configuration starts is a function of its number.
- The fraction of configurations that start at rung i (from 0) is proportional to (i + 1) / `factor`^i. In the Hyperband
  paper (algorithm 1), with equal budgets of all brackets, it is proportional to 1 / ((n - i) `factor`^i) for n rungs.
  With three or more rungs, more configurations start between the first and the last rung here.
- With several figures of merit the best configurations are those of the first Pareto fronts, and within a front those
  with the largest crowding distance.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, Literal, final

from pydantic import Field

from mpi_opt.core.figures_of_merit import order
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.bayesian import Bayesian
from mpi_opt.strategies.designs.random_search import RandomSearch
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, proposals_up_to, read_options
from mpi_opt.strategies.points.sampling import n_allowed_points
from mpi_opt.strategies.strategy import Cost, Decision, Strategy
from mpi_opt.strategies.surrogates.rung_model import RungModel
from mpi_opt.strategies.wrappers import Guarded, Problems

GOLDEN_RATIO = 0.6180339887498949


class HalvingOptions(Options):
    """The options of `Halving`.

    Attributes:
        min_budget: Epochs of the first rung; by default 1/27 of the full training, but at least one.
        max_budget: Epochs of a full training; in a ``space.yaml`` by default ``training.epochs``. It must not increase
            when a study is continued: the checkpoints of its last rung were removed.
        factor: One in `factor` configurations is promoted to the next rung, which has about `factor` times the epochs:
            the ratio is the same for all rungs, from `min_budget` to `max_budget`. By default the rungs are 1, 5 and 27
            epochs.
        brackets: Number of rungs at which new configurations start; 1 is successive halving, more is Hyperband.
        exploration: Fraction of all epochs that goes to new configurations. 0: promotions never wait, as published.
        proposer: The source of new configurations: random points, or a model of the highest rung that has enough costs.
        await_refit_up_to: With at most this many trials pending, a new configuration of ``bayesian`` waits for a model
            of all outcomes. With more, it is prepared in the background, or is a child of the best configurations as
            long as no rung above the first has enough costs.
        resume: Whether a promotion is a new trial. True: it is; the new trial resumes from the checkpoint of the trial
            before. False: one trial trains a configuration from the first rung to the last one. At each rung it is
            stopped, unless the value that it reports there is among the best 1/`factor` of the trials so far. When a
            search is continued, it compares only values of its own trials. The model of ``bayesian`` then does not use
            the values of full trainings. With ``reproducible``, no trial is stopped.
    """

    min_budget: float | None = Field(default=None, gt=0)
    max_budget: float = Field(default=27, gt=0)
    factor: float = Field(default=4, gt=1)
    brackets: int = Field(default=1, ge=1)
    exploration: float = Field(default=0.7, ge=0, lt=1)
    proposer: Literal["random", "bayesian"] = "bayesian"
    await_refit_up_to: int = Field(default=16, ge=0)
    resume: bool = True


@dataclass
class Rung:
    """The configurations that reached a budget.

    Attributes:
        budget: Epochs.
        costs: Configuration to cost; None if its trial failed.
        promoted: The configurations that were promoted from this rung.
        stopped: The configurations whose trial was stopped at this rung. It may run again after the loss of a rank.
    """

    budget: float
    costs: dict[int, Cost | None] = field(default_factory=dict)
    promoted: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)

    def to_promote(self, factor: float) -> int | None:
        """The configuration to promote next; None if there is none."""
        if len(self.promoted) >= int(len(self.costs) / factor):
            return None
        return next((configuration for configuration in self.best(factor) if configuration not in self.promoted), None)

    def best(self, factor: float) -> list[int]:
        """The best one in `factor` of the configurations, best first."""
        succeeded = {configuration: cost for configuration, cost in sorted(self.costs.items()) if cost is not None}
        configurations = list(succeeded)
        ranked = order(list(succeeded.values()))[: int(len(self.costs) / factor)]
        return [configurations[index] for index in ranked]


@final
class Halving(Strategy):
    """A *configuration* is a point of the space. Each of its trials takes it to a higher rung."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(HalvingOptions, options)
        self._space = space
        self._rungs = [Rung(budget) for budget in _budgets(self._options)]
        self._bookkeeping = Bookkeeping(space, Options(constraints=self._options.constraints))
        common = self._options.model_dump(include={"initial", "constraints"})
        self._model: RungModel | None = None
        self._proposer: Strategy
        if self._options.proposer == "bayesian":
            await_up_to = self._options.await_refit_up_to
            self._model = RungModel(space, seed, common, await_up_to)
            waiting = common | {"await_refit_up_to": await_up_to}
            make = partial(Bayesian, space, seed=seed, options=waiting)
            # guarded here, because a random point needs the budget of its rung as well
            self._proposer = Guarded("bayesian", make, space, seed, self._options.constraints)
        else:
            self._proposer = RandomSearch(space, seed=seed, options=common)
        self._configuration_of: dict[int, int] = {}
        self._last_trial_of: dict[int, Proposal] = {}
        self._new: dict[int, Proposal] = {}
        self._epochs_of_new, self._epochs_of_promoted = 0.0, 0.0
        self._obsolete: list[int] = []
        self._problems = Problems()

    def expect(self, n_figures: int) -> None:
        """Promotes by Pareto front.

        Raises:
            ConfigurationError: Trials are stopped by the values that they report, which are single numbers.
        """
        if not self._options.resume:
            raise ConfigurationError(
                f"a trial reports one number, but there are {n_figures} figures of merit",
                where="search.options.resume",
                cure="write resume: true, which compares trials after they ended",
            )
        self._bookkeeping.expect(n_figures)
        self._proposer.expect(n_figures)
        if self._model is not None:
            self._model.expect(n_figures)

    def ask(self, count: int) -> list[Proposal]:
        """Promotions from the highest rung down, as far as `exploration` allows them, then new configurations."""
        return proposals_up_to(count, lambda: self._promotion() or self._first_trial())

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Enters the cost at the trial's rung. The proposer observes the first cost of each configuration."""
        cost = self._bookkeeping.observe(proposal, outcome)
        self._admit(proposal)
        configuration = self._configuration_of[proposal.number]
        self._record_cost(proposal, cost)
        if configuration in self._new:
            self._proposer.tell(self._new.pop(configuration), outcome)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Rebuilds configurations and rungs."""
        observed, pending = list(observed), list(pending)
        for proposal in sorted([proposal for proposal, _ in observed] + pending, key=lambda proposal: proposal.number):
            self._admit(proposal)
            self._bookkeeping.add_pending(proposal)
        outcomes = []
        for proposal, outcome in observed:
            self._record_cost(proposal, self._bookkeeping.observe(proposal, outcome))
            configuration = self._configuration_of[proposal.number]
            if configuration in self._new and proposal.resume_from is None:
                outcomes.append((self._new.pop(configuration), outcome))
        self._proposer.resume(outcomes, list(self._new.values()))

    def report(self, proposal: Proposal, step: int, value: float) -> Decision:
        """With ``resume: false``, stops the trial at a rung unless it is among the best that reached the rung."""
        if self._options.resume:
            return Decision.CONTINUE
        self._admit(proposal)
        configuration = self._configuration_of[proposal.number]
        for rung in self._rungs[:-1]:
            if step + 1 < rung.budget:
                break
            if configuration not in rung.costs:
                rung.costs[configuration] = value if math.isfinite(value) else None
                if len(rung.costs) >= self._options.factor and configuration not in rung.best(self._options.factor):
                    rung.stopped.add(configuration)
            if configuration in rung.stopped:
                return Decision.STOP
        return Decision.CONTINUE

    def obsolete(self) -> list[int]:
        """Trials that failed, reached the last rung, or were resumed by a promoted trial that ended."""
        found, self._obsolete = self._obsolete, []
        return found

    def problems(self) -> list[str]:
        return self._problems.take() + self._proposer.problems()

    def _promotion(self) -> Proposal | None:
        """The next promotion of the highest rung that has one; None if `exploration` does not allow it yet."""
        if not self._options.resume:
            return None
        for rung, higher in reversed(list(zip(self._rungs, self._rungs[1:], strict=False))):
            configuration = rung.to_promote(self._options.factor)
            if configuration is not None:
                if rung.promoted and not self._allows_promotion(higher.budget - rung.budget):
                    return None
                last = self._last_trial_of[configuration]
                proposal = self._bookkeeping.propose(last.parameters, budget=higher.budget, resume_from=last.number)
                self._admit(proposal)
                return proposal
        return None

    def _allows_promotion(self, n_epochs: float) -> bool:
        """Whether new configurations keep their part of all epochs, or the space cannot have more configurations."""
        if len(self._last_trial_of) >= self._n_points:
            return True
        promoted = self._epochs_of_promoted + n_epochs
        # 1e-9: a promotion with which the part is met exactly must not depend on rounding
        return promoted <= (1.0 - self._options.exploration) * (promoted + self._epochs_of_new) * (1 + 1e-9)

    @cached_property
    def _n_points(self) -> float:
        """The largest possible number of configurations that differ."""
        return n_allowed_points(self._space, self._bookkeeping.allows)

    def _first_trial(self) -> Proposal | None:
        point = self._point()
        if point is None:
            return None
        budget = self._rungs[self._first_rung(len(self._last_trial_of))].budget if self._options.resume else None
        proposal = self._bookkeeping.propose(point, budget=budget)
        self._admit(proposal)
        return proposal

    def _point(self) -> Parameters | None:
        if self._model is not None:
            points = [trial.parameters for _, trial in sorted(self._last_trial_of.items())]
            costs, n_pending = [rung.costs for rung in self._rungs], len(self._bookkeeping.pending)
            try:
                point = self._model.point(points, costs, n_pending)
            except Exception as error:  # noqa: BLE001 - of the numerics of any library
                point = None
                self._problems.add("halving: the model of a rung", error, "the next point is that of the first rung")
            if point is not None:
                return point
        asked = self._proposer.ask(1)
        return asked[0].parameters if asked else None

    def _first_rung(self, configuration: int) -> int:
        """The rung at which a configuration starts: rung i for a fraction proportional to (i + 1) / `factor`^i."""
        n_brackets = min(self._options.brackets, len(self._rungs))
        ends = list(accumulate(self._options.factor**-index * (index + 1) for index in range(n_brackets)))
        return bisect_right(ends[:-1], (configuration * GOLDEN_RATIO) % 1.0 * ends[-1])

    def _admit(self, proposal: Proposal) -> None:
        """Assigns a trial to a new configuration, or to that of the trial from which it resumes."""
        if proposal.number in self._configuration_of:
            return
        if proposal.resume_from in self._configuration_of:
            configuration = self._configuration_of[proposal.resume_from]
            before = self._last_trial_of[configuration].budget
            promoted = self._rung_at(before).promoted
            self._epochs_of_promoted += ((proposal.budget or 0.0) - (before or 0.0)) * bool(promoted)
            promoted.add(configuration)
        else:
            configuration = len(self._last_trial_of)
            self._new[configuration] = Proposal(configuration, proposal.parameters)
            self._epochs_of_new += proposal.budget or 0.0
        self._configuration_of[proposal.number] = configuration
        self._last_trial_of[configuration] = proposal

    def _record_cost(self, proposal: Proposal, cost: Cost | None) -> None:
        """Enters a cost at the trial's rung, and records trials from whose checkpoints no other trial will resume."""
        if self._options.resume or proposal.budget is not None:
            self._rung_at(proposal.budget).costs[self._configuration_of[proposal.number]] = cost
        if proposal.resume_from is not None:
            self._obsolete.append(proposal.resume_from)
        if proposal.budget is not None and (cost is None or self._rung_at(proposal.budget) is self._rungs[-1]):
            self._obsolete.append(proposal.number)

    def _rung_at(self, budget: float | None) -> Rung:
        """The highest rung that a budget reaches."""
        # 1e-9: budgets are computed, so that equal ones may differ by rounding
        reached = [rung for rung in self._rungs if budget is None or rung.budget <= budget * (1 + 1e-9)]
        return reached[-1] if reached else self._rungs[0]


def _budgets(options: HalvingOptions) -> list[float]:
    """Budgets from the smallest to the full one, about `factor` apart; whole epochs if both ends are."""
    least = options.min_budget
    if least is None:
        least = max(round(options.max_budget / 27), 1) if options.max_budget >= 1 else options.max_budget
    if least > options.max_budget:
        raise ConfigurationError(
            f"expected min_budget ≤ max_budget, found {least:g} > {options.max_budget:g}",
            where="search.options.min_budget",
            cure="decrease min_budget, or increase max_budget, by default training.epochs",
        )
    ratio = options.max_budget / least
    n_steps = max(round(math.log(ratio) / math.log(options.factor)), int(ratio > 1))
    budgets = [least * ratio ** (index / max(n_steps, 1)) for index in range(n_steps)] + [options.max_budget]
    if float(least).is_integer() and float(options.max_budget).is_integer():
        budgets = [float(round(budget)) for budget in budgets]
    return sorted(set(budgets))
