"""An attempt to run a trial, from the queue of a search to its outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpi_opt.core.limits import SearchLimits
from mpi_opt.core.trial import Outcome, Proposal


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt to run a trial. It waits for a block, runs on it, and ends with an outcome or without one.

    The store records proposal, number, block, ranks, hosts, code and outcome. Only a search uses the other attributes;
    their times are in seconds by the clock of its `BlockPool`. The pool sets the block, its ranks and hosts, and the
    times when it assigns the block; `TrialQueue` sets the outcome and all attributes that follow `due_s`.

    Attributes:
        proposal: The proposal, as the strategy made it.
        attempt: The number of the attempt, from 1.
        block: The index of the block.
        ranks: The world ranks of the block, e.g. ``"1,2,3"``.
        hosts: The hosts of these ranks without duplicates, separated by commas.
        code: The number of the code that runs it, as in `CodeRecord`; None if unknown.
        before_s: Seconds that the trial has run before, on other ranks from which it continues.
        holders: The world ranks that keep the last finished epoch of the attempt before; empty if there are none.
        outcome: The outcome that the block has reported.
        started_at_s: When the trial started.
        due_s: When the block is given up if it has not answered.
        error: The error of a rank on which the trial has failed, while other ranks may wait for it; None if none has.
        is_requeued: Whether the trial is queued in the store, because the search ends or its host has failed. A
            workload system may take it.
        is_held: Whether it has failed and left its block without a verdict (see `HostFaults`).
    """

    proposal: Proposal
    attempt: int = 1
    block: int = -1
    ranks: str = ""
    hosts: str = ""
    code: int | None = None
    before_s: float = 0.0
    holders: tuple[int, ...] = ()
    outcome: Outcome | None = None
    started_at_s: float = 0.0
    due_s: float = math.inf
    error: str | None = None
    is_requeued: bool = False
    is_held: bool = False

    @property
    def number(self) -> int:
        """The number of the trial."""
        return self.proposal.number

    @property
    def result(self) -> Outcome:
        """The outcome of an attempt that has ended with one."""
        assert self.outcome is not None, "it has not ended"
        return self.outcome

    def seconds(self, now_s: float) -> float:
        """How long the trial has run, also on other numbers of ranks, by the clock of the pool."""
        return self.before_s + now_s - self.started_at_s

    def failure(self, now_s: float, limits: SearchLimits, why: str) -> str | None:
        """The error of a trial that has raised an exception or exceeds its timeout; None if it may run again.

        Args:
            now_s: The time by the clock of the pool.
            limits: The limits of the search.
            why: The reason why the trial has not answered.
        """
        if self.error is None and limits.is_too_long(self.seconds(now_s)):
            return f"the trial took longer than trial.timeout, {limits.timeout_s:g} s: {why}"
        return self.error
