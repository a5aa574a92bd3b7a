"""Asynchronous successive halving (Li et al., MLSys 2020, algorithm 2) and Hyperband (Li et al., JMLR 18, 2018).

Many configurations get few epochs; the best third of them goes on to three times as many, and so on. A promoted trial
resumes from its own checkpoint, so no epoch is spent twice. Of several figures of merit the best are those of the first
Pareto fronts, and on one front the lonely ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

from pydantic import Field

from mpi_opt.core.pareto import order
from mpi_opt.core.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.bayesian import Bayesian
from mpi_opt.strategies.points.bookkeeping import Ledger
from mpi_opt.strategies.points.options import Options, read_options
from mpi_opt.strategies.random_search import RandomSearch
from mpi_opt.strategies.strategy import Cost, Decision, Strategy
from mpi_opt.strategies.surrogates.rung_model import RungModel

PROPOSERS: dict[str, type[Strategy]] = {"random": RandomSearch, "bayesian": Bayesian}


class HalvingOptions(Options):
    """What `Halving` takes.

    Attributes:
        min_budget: Epochs of the first rung; default: a 27th of the full training, but no less than one.
        max_budget: Epochs of a full training.
        factor: One in so many is promoted, to so many times the epochs.
        brackets: With more than one (Hyperband), every second, third, … configuration starts a rung higher.
        exploration: Part of the epochs that go to new configurations; promotions, but the first of each rung, wait for
            that. 0: they never wait, and every rung gets about as much (as published).
        proposer: Where new configurations come from: ``bayesian`` learns from the highest rung that says enough.
        await_refit_up_to: With at most so many trials pending a new configuration of ``bayesian`` waits for a model of
            all that was told; with more pending, it comes from a stock that is prepared beside.
        resume: Promoted trials are new trials that go on from a checkpoint. If false, every trial has the full budget
            and is stopped at a rung, by what it reports, unless it is among the best there.
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
    """All that reached one budget: values by configuration, None if failed, and who was promoted from here.

    No more than one in `factor` is promoted in all, also where the best have changed meanwhile (delayed promotion, Li
    et al., VLDB 15(6), 2022): a promotion that a few early values asked for has had its turn.
    """

    budget: float
    values: dict[int, Cost | None] = field(default_factory=dict)
    promoted: set[int] = field(default_factory=set)

    def to_promote(self, factor: float) -> int | None:
        """The configuration to be promoted next, if there is one."""
        if len(self.promoted) >= int(len(self.values) / factor):
            return None
        return next((one for one in self.best(factor) if one not in self.promoted), None)

    def best(self, factor: float) -> list[int]:
        """The best of the configurations here, one in `factor`, best first."""
        known = sorted(one for one, value in self.values.items() if value is not None)
        ranked = [known[index] for index in order([self.values[one] for one in known])]
        return ranked[: int(len(self.values) / factor)]


@final
class Halving(Strategy):
    """A *configuration* is a point of the space; each of its trials takes it one rung further."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(HalvingOptions, options)
        self._space = space
        self._rungs = [Rung(budget) for budget in _budgets(self._options)]
        self._ledger = Ledger(space, Options())
        own = self._options.model_dump(include={"initial", "constraints"})
        await_up_to = self._options.await_refit_up_to
        self._model: RungModel | None = None
        if self._options.proposer == "bayesian":
            self._model = RungModel(space, seed, own, await_up_to)
            own["await_refit_up_to"] = await_up_to
        self._proposer = PROPOSERS[self._options.proposer](space, seed=seed, options=own)
        self._configuration_of: dict[int, int] = {}
        self._latest: dict[int, Proposal] = {}
        self._new: dict[int, Proposal] = {}
        self._spent_on_new, self._spent_on_promoted = 0.0, 0.0
        self._obsolete: list[int] = []

    def expect(self, n_merits: int) -> None:
        """Promotes by Pareto front.

        Raises:
            ConfigurationError: Trials are to be stopped by what they report, which is one number.
        """
        if not self._options.resume:
            raise ConfigurationError(
                f"what a trial reports is one number, and there are {n_merits} figures of merit",
                where="search.options.resume",
                cure="resume: true compares trials that ended",
            )
        self._proposer.expect(n_merits)
        if self._model is not None:
            self._model.expect(n_merits)

    def ask(self, count: int) -> list[Proposal]:
        """Promotions first, from the top, as long as they are affordable; then new configurations."""
        proposals: list[Proposal] = []
        while len(proposals) < count:
            made = self._promotion() or self._first_trial()
            if made is None:
                break
            proposals.append(made)
        return proposals

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Enters the value at the trial's rung; the proposer learns a configuration's first value."""
        self._admit(proposal)
        value = self._ledger.settle(proposal, outcome)
        configuration = self._configuration_of[proposal.number]
        if self._options.resume or proposal.budget is not None:
            self._rung_at(proposal.budget).values[configuration] = value
        self._note_obsolete(proposal, value)
        if configuration in self._new:
            self._proposer.tell(self._new.pop(configuration), outcome)

    def resume(self, told: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Takes up configurations and rungs."""
        told, pending = list(told), list(pending)
        for proposal in sorted([proposal for proposal, _ in told] + pending, key=lambda one: one.number):
            self._admit(proposal)
            self._ledger.enter(proposal)
        first = {proposal.number: proposal for proposal in self._new.values()}
        outcomes = []
        for proposal, outcome in told:
            value = self._ledger.settle(proposal, outcome)
            configuration = self._configuration_of[proposal.number]
            if self._options.resume or proposal.budget is not None:
                self._rung_at(proposal.budget).values[configuration] = value
            self._note_obsolete(proposal, value)
            if configuration in self._new and proposal.resume_from is None:
                outcomes.append((self._new.pop(configuration), outcome))
        left = [first[number] for number in sorted(first) if first[number] in self._new.values()]
        self._proposer.resume(outcomes, left)

    def report(self, proposal: Proposal, step: int, value: float) -> Decision:
        """Without resuming: stops the trial at a rung unless it is among the best that came there."""
        if self._options.resume:
            return Decision.CONTINUE
        self._admit(proposal)
        configuration = self._configuration_of[proposal.number]
        for rung in self._rungs[:-1]:
            if step + 1 >= rung.budget and configuration not in rung.values:
                rung.values[configuration] = value if math.isfinite(value) else None
                if len(rung.values) >= self._options.factor and configuration not in rung.best(self._options.factor):
                    return Decision.STOP
        return Decision.CONTINUE

    def obsolete(self) -> list[int]:
        """Trials that failed, reached the last rung, or were resumed by a promoted trial that ended."""
        found, self._obsolete = self._obsolete, []
        return found

    def state(self) -> dict[str, Any]:
        """The books in short, and how many configurations reached each rung and were promoted from it."""
        rungs = [{"budget": r.budget, "reached": len(r.values), "promoted": len(r.promoted)} for r in self._rungs]
        return self._ledger.state() | {"rungs": rungs}

    def _promotion(self) -> Proposal | None:
        """The highest one that is due; none if it is not affordable yet, or cheaper ones would be made in its place."""
        if not self._options.resume:
            return None
        for rung, higher in reversed(list(zip(self._rungs, self._rungs[1:], strict=False))):
            configuration = rung.to_promote(self._options.factor)
            if configuration is not None:
                if rung.promoted and not self._affords(higher.budget - rung.budget):
                    return None
                last = self._latest[configuration]
                proposal = self._ledger.propose(last.parameters, budget=higher.budget, resume_from=last.number)
                self._admit(proposal)
                return proposal
        return None

    def _affords(self, n_epochs: float) -> bool:
        """Whether promotions keep to their part of all epochs with so many more, or no new configurations are left."""
        if len(self._latest) >= self._space.size:
            return True
        promoted = self._spent_on_promoted + n_epochs
        return promoted <= (1.0 - self._options.exploration) * (promoted + self._spent_on_new) * (1 + 1e-9)

    def _first_trial(self) -> Proposal | None:
        point = self._point()
        if point is None:
            return None
        budget = self._rungs[self._bracket(len(self._latest))].budget if self._options.resume else None
        proposal = self._ledger.propose(point, budget=budget)
        self._admit(proposal)
        return proposal

    def _point(self) -> Parameters | None:
        if self._model is not None:
            points = [self._latest[configuration].parameters for configuration in range(len(self._latest))]
            point = self._model.point(points, [rung.values for rung in self._rungs], len(self._ledger.pending))
            if point is not None:
                return point
        asked = self._proposer.ask(1)
        return asked[0].parameters if asked else None

    def _bracket(self, configuration: int) -> int:
        """The rung at which a configuration starts; a higher one for the fewer the costlier it is."""
        n_brackets = min(self._options.brackets, len(self._rungs))
        weights = [self._options.factor**-index * (index + 1) for index in range(n_brackets)]
        position = (configuration * 0.6180339887498949) % 1.0 * sum(weights)
        for index, weight in enumerate(weights):
            position -= weight
            if position < 0:
                return index
        return 0

    def _admit(self, proposal: Proposal) -> None:
        """Enters a trial: a configuration's first, or one that takes it further."""
        if proposal.number in self._configuration_of:
            return
        if proposal.resume_from in self._configuration_of:
            configuration = self._configuration_of[proposal.resume_from]
            before = self._latest[configuration].budget
            promoted = self._rung_at(before).promoted
            self._spent_on_promoted += ((proposal.budget or 0.0) - (before or 0.0)) * bool(promoted)
            promoted.add(configuration)
        else:
            configuration = len(self._latest)
            self._new[configuration] = Proposal(configuration, proposal.parameters)
            self._spent_on_new += proposal.budget or 0.0
        self._configuration_of[proposal.number] = configuration
        self._latest[configuration] = proposal

    def _note_obsolete(self, proposal: Proposal, value: Cost | None) -> None:
        if proposal.resume_from is not None:
            self._obsolete.append(proposal.resume_from)
        if proposal.budget is not None and (value is None or self._rung_at(proposal.budget) is self._rungs[-1]):
            self._obsolete.append(proposal.number)

    def _rung_at(self, budget: float | None) -> Rung:
        """The highest rung that a budget reaches."""
        reached = [rung for rung in self._rungs if budget is None or rung.budget <= budget * (1 + 1e-9)]
        return reached[-1] if reached else self._rungs[0]


def _budgets(options: HalvingOptions) -> list[float]:
    """Between the least and the full budget by about `factor` each, whole epochs if those two are, smallest first."""
    least = options.min_budget
    if least is None:
        least = max(round(options.max_budget / 27), 1) if options.max_budget >= 1 else options.max_budget
    if least > options.max_budget:
        raise ConfigurationError(
            f"expected min_budget ≤ max_budget, found {least:g} > {options.max_budget:g}",
            where="search.options.min_budget",
        )
    ratio = options.max_budget / least
    n_steps = max(round(math.log(ratio) / math.log(options.factor)), int(ratio > 1))
    budgets = [least * ratio ** (index / max(n_steps, 1)) for index in range(n_steps)] + [options.max_budget]
    if float(least).is_integer() and float(options.max_budget).is_integer():
        budgets = [float(round(budget)) for budget in budgets]
    return sorted(set(budgets))
