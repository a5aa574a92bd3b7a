"""Reproducible searches: the same trials in parallel, regardless of timing.

The wrapped strategy receives outcomes in the order of the trial numbers and with a fixed lag, so that the order in
which trials end has no influence. The option ``reproducible: true`` of any strategy applies it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.bookkeeping import proposals_up_to, reported_twice
from mpi_opt.strategies.points.checks import observed_cost, whole_number
from mpi_opt.strategies.strategy import Cost, Strategy


@final
class Reproducible(Strategy):
    """Proposal k depends on the outcomes of trials 0 to k - lag, observed in the order of their numbers.

    At most `lag` trials are in flight, and each proposal is based on slightly less information. While the wrapped
    strategy waits for outcomes, it receives as many as it needs, in order. Only trials that the strategy proposed can
    be reported. Intermediate values are ignored, because their arrival depends on timing.

    Args:
        make: Constructs the wrapped strategy, which numbers its proposals from 0 and is deterministic.
        lag: At least the number of blocks, so that no block waits.
        n_figures: Number of figures of merit.
    """

    def __init__(self, make: Callable[[], Strategy], lag: int, n_figures: int = 1) -> None:
        self._make, self._strategy, self._lag, self._n_figures = make, make(), lag, n_figures
        self._proposals: dict[int, Proposal] = {}
        self._outcomes: dict[int, Cost | Failed] = {}
        self._n_asked = self._n_learnt = 0

    def ask(self, count: int) -> list[Proposal]:
        """Up to `count` proposals; fewer if an outcome is missing on which the next proposal depends."""
        return proposals_up_to(count, self._proposal)

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Keeps the outcome until all trials with smaller numbers have been observed.

        Raises:
            ConfigurationError: As for every strategy, or this strategy did not propose the trial.
        """
        number = whole_number(proposal.number, "tell: number of the trial")
        if number in self._outcomes or number < self._n_learnt:
            raise reported_twice(number)
        if self._proposals.get(number) != proposal:
            raise ConfigurationError(
                f"trial {number} was not proposed by this strategy",
                where="tell",
                cure="report its own proposals only, or search without `reproducible: true`",
            )
        observed_cost(proposal, outcome, self._n_figures)
        self._outcomes[number] = outcome

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Continues as if this strategy had proposed all of the trials."""
        for proposal, outcome in observed:
            self._remember(proposal)
            self.tell(proposal, outcome)
        for proposal in pending:
            self._remember(proposal)
        n_learnt = max(self._n_asked - self._lag, 0)
        if self._strategy.waits:
            n_learnt = max(n_learnt, self._n_learnt_by_replay())
        # with a smaller lag than before, a trial that still runs may have a number below n_asked - lag
        n_learnt = next((number for number in range(n_learnt) if number not in self._outcomes), n_learnt)
        learnt = [number for number in sorted(self._proposals) if number < n_learnt and number in self._outcomes]
        others = [self._proposals[number] for number in sorted(set(self._proposals) - set(learnt))]
        self._strategy.resume([(self._proposals[number], self._outcomes.pop(number)) for number in learnt], others)
        self._n_learnt = n_learnt

    def obsolete(self) -> list[int]:
        return self._strategy.obsolete()

    def problems(self) -> list[str]:
        return self._strategy.problems()

    @property
    def choice(self) -> str:
        return self._strategy.choice

    @property
    def finished(self) -> bool:
        return self._strategy.finished

    def _proposal(self) -> Proposal | None:
        """The next proposal; None if an outcome is missing on which it depends."""
        if not self._learn_until(self._n_asked - self._lag):
            return None
        while not (asked := self._strategy.ask(1)):
            if not self._learn_until(self._n_learnt):
                return None
        self._remember(asked[0])
        return asked[0]

    def _n_learnt_by_replay(self) -> int:
        """Number of outcomes that a strategy that waits had observed, found by repeating its proposals."""
        twin = Reproducible(self._make, self._lag, self._n_figures)
        twin._outcomes = dict(self._outcomes)
        while twin._n_asked < self._n_asked and twin.ask(1):
            pass
        return twin._n_learnt

    def _remember(self, proposal: Proposal) -> None:
        self._proposals[proposal.number] = proposal
        self._n_asked = max(self._n_asked, proposal.number + 1)

    def _learn_until(self, last: int) -> bool:
        """Passes on the outcomes up to that of trial `last` in order; returns False if one of them is missing."""
        while self._n_learnt <= last:
            if self._n_learnt not in self._outcomes:
                return False
            self._strategy.tell(self._proposals.pop(self._n_learnt), self._outcomes.pop(self._n_learnt))
            self._n_learnt += 1
        return True
