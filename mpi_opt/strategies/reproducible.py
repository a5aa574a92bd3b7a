"""The same trials in parallel, whatever the timing: a strategy that learns in canonical order and with a fixed lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final

from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.strategy import Strategy


@final
class Reproducible(Strategy):
    """Proposal k is decided from the outcomes of trials 0 to k - lag, told in the order of their numbers.

    Which trial ends first then changes nothing. The price: at most `lag` trials are in flight, and each proposal knows
    somewhat less. A strategy that proposes nothing until it is told more is told the next outcomes in order, as many as
    it waits for. Trials of others than the strategy itself cannot be told. What a trial reports while it runs is not
    used, because when it comes is a matter of timing.

    Args:
        make: Gives a new strategy, which numbers its proposals from 0 and answers every call in the same way each time.
        lag: At least as many as there are blocks, so that none waits.
    """

    def __init__(self, make: Callable[[], Strategy], lag: int) -> None:
        self._make, self._strategy, self._lag = make, make(), lag
        self._proposals: dict[int, Proposal] = {}
        self._outcomes: dict[int, float | Failed] = {}
        self._n_asked = self._n_learnt = 0

    def ask(self, count: int) -> list[Proposal]:
        """Up to `count` proposals; fewer if an outcome is missing that the next one depends on."""
        proposals: list[Proposal] = []
        while len(proposals) < count and self._learn_until(self._n_asked - self._lag):
            asked = self._strategy.ask(1)
            if asked:
                self._enter(asked[0])
                proposals += asked
            elif not self._learn_until(self._n_learnt):
                break
        return proposals

    def tell(self, proposal: Proposal, outcome: float | Failed) -> None:
        """Keeps the outcome until its turn comes."""
        self._proposals.setdefault(proposal.number, proposal)
        self._outcomes[proposal.number] = outcome

    def resume(self, told: Iterable[tuple[Proposal, float | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Goes on as if every proposal had been asked for here."""
        for proposal, outcome in told:
            self._enter(proposal)
            self._outcomes[proposal.number] = outcome
        for proposal in pending:
            self._enter(proposal)
        n_learnt = max(self._n_asked - self._lag, 0)
        if self._strategy.waits:
            n_learnt = max(n_learnt, self._n_learnt_by_then())
        learnt = [number for number in sorted(self._proposals) if number < n_learnt and number in self._outcomes]
        open_ = [self._proposals[number] for number in sorted(set(self._proposals) - set(learnt))]
        self._strategy.resume([(self._proposals[number], self._outcomes.pop(number)) for number in learnt], open_)
        self._n_learnt = n_learnt

    def obsolete(self) -> list[int]:
        """Those of the strategy within."""
        return self._strategy.obsolete()

    @property
    def finished(self) -> bool:
        """Whether the strategy within has finished."""
        return self._strategy.finished

    def state(self) -> dict[str, Any]:
        """That of the strategy within."""
        return self._strategy.state() | {"lag": self._lag}

    def _n_learnt_by_then(self) -> int:
        """How many outcomes a strategy that waits had been told: nothing but making its proposals again says that."""
        twin = Reproducible(self._make, self._lag)
        twin._outcomes = dict(self._outcomes)
        while twin._n_asked < self._n_asked and twin.ask(1):
            pass
        return twin._n_learnt

    def _enter(self, proposal: Proposal) -> None:
        self._proposals[proposal.number] = proposal
        self._n_asked = max(self._n_asked, proposal.number + 1)

    def _learn_until(self, last: int) -> bool:
        """Tells the outcomes up to that of trial `last`, in order; whether none of them was missing."""
        while self._n_learnt <= last:
            if self._n_learnt not in self._outcomes:
                return False
            self._strategy.tell(self._proposals.pop(self._n_learnt), self._outcomes.pop(self._n_learnt))
            self._n_learnt += 1
        return True
