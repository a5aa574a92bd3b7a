"""Where a study stands: its trials, what the strategy was told of them, and what others do to the study meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi_opt.coordinator.trial_queue import TrialQueue
from mpi_opt.core.fold_stopping import Yardstick, Yardsticks
from mpi_opt.core.limits import FATAL, HOPELESS, Rules
from mpi_opt.core.trial import Failed, Outcome, Proposal
from mpi_opt.store.errors import StoreConflictError
from mpi_opt.store.records import Finish
from mpi_opt.strategies.strategy import Decision
from mpi_opt.study.external_trials import Others
from mpi_opt.study.open_study import Past

if TYPE_CHECKING:
    from mpi_opt.coordinator.trial_queue import Running
    from mpi_opt.messages.messages import Report
    from mpi_opt.store.records import Start
    from mpi_opt.strategies.strategy import Strategy
    from mpi_opt.study.retrying_store import PatientStore


SEARCH_KILLED = "the search ended before the trial did"
"""What stands as the error of an attempt whose search was killed."""


class StudyState:
    """The coordinator's knowledge of a study, brought to where the store is.

    Args:
        store: Where everything stands.
        strategy: Knows nothing of earlier trials yet.
        rules: When to end.
        folds: K.
        yardsticks: What the folds of trials are compared with; knows of none yet.
        renew: Makes another such strategy, for when others have changed the study (None: they must not).

    Attributes:
        strategy: Knows all that was told.
        queue: Which trials wait, run, and how many there were.
        others: Which trials are run elsewhere.
        n_usable: Trials with a figure of merit, earlier searches' included.
        n_failed: Trials that failed in this one.
    """

    def __init__(
        self,
        store: PatientStore,
        strategy: Strategy,
        rules: Rules,
        folds: int,
        yardsticks: Yardsticks,
        renew: Callable[[], Strategy] | None,
    ) -> None:
        self.strategy, self.queue, self.others = strategy, TrialQueue(rules.trials), Others(store)
        self.n_usable = self.n_failed = 0
        self._store, self._rules, self._folds, self._renew = store, rules, folds, renew
        self._yardsticks = yardsticks

    def take_up(self) -> Past:
        """Continues from what the store knows: what ran when the last search ended is queued again.

        Unless it ran each of several times that a search ended so; then it has failed.
        """
        past = self._read()
        if running := self._left_running(past):
            self._store.requeue(running, SEARCH_KILLED)
        if fatal := self._fatal(past):
            self._store.finish(fatal)
            past = self._read()
        if past:
            self._learn(past)
        return past

    def begin(self, starts: list[Start]) -> bool:
        """Enters trials as running.

        Returns:
            False if a workload system has been given one of them: then none is entered, and the study is read again.

        Raises:
            StoreConflictError: Another search has started one of them.
        """
        try:
            self._store.start(starts)
        except StoreConflictError:
            past = None if self._renew is None else self._read()
            if past is None or self._left_running(past):
                raise
            self.strategy = self._renew()
            self._learn(past)
            return False
        return True

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        """Tells the strategy what came of a trial."""
        if outcome.figure_of_merit is None:
            self.n_failed += 1
            self.strategy.tell(proposal, Failed(outcome.error or "failed"))
        else:
            self.n_usable += 1
            self.strategy.tell(proposal, self._rules.merits.minimised(outcome, self._folds))
        if outcome.state == "complete":
            self._yardsticks.take(proposal, outcome.figure_of_merit, outcome.folds)

    def prunes(self, running: Running, rank: int, report: Report) -> bool:
        """Takes an intermediate value of a trial from a rank; whether the strategy wants no more of the trial."""
        value = running.reports.take(rank, report.fold, report.step, report.value)
        if value is None:
            return False
        decision = self.strategy.report(running.proposal, report.step, self._rules.merits.sign * value)
        return decision is Decision.STOP

    def yardstick(self, proposal: Proposal) -> Yardstick | None:
        """What the folds of a trial are to be compared with while it runs."""
        return self._yardsticks.of(proposal)

    @property
    def is_hopeless(self) -> bool:
        """Whether something must be wrong with all trials: with as many as say so, or with all that there are."""
        if self.n_usable or not self.n_failed:
            return False
        is_all = self.strategy.finished and not self.is_waiting_for_results and not self.queue.waiting
        return self.n_failed >= min(HOPELESS, self._rules.trials) or is_all

    @property
    def is_waiting_for_results(self) -> bool:
        """Whether trials run, here or elsewhere."""
        return bool(self.queue.running or self.others.running)

    def _read(self) -> Past:
        return Past.read(self._store.store, self._store.study_id, self._rules.merits, self._folds)

    def _left_running(self, past: Past) -> list[int]:
        """The trials that run in the store, and neither here nor at a workload system."""
        known = past.outside | set(self.queue.running)
        return [one.number for one in past.unfinished if one.state == "running" and one.number not in known]

    def _fatal(self, past: Past) -> list[Finish]:
        """Trials that likely end every search that runs them."""
        tried = [one.number for one in past.unfinished if one.attempts >= FATAL and one.number not in past.outside]
        attempts = self._store.store.attempts(self._store.study_id, tried) if tried else []
        latest = {one.number: one for one in attempts}
        n_ends = Counter(one.number for one in attempts if one.error == SEARCH_KILLED)
        error = f"the search ended without a word each of the {FATAL} times that this trial ran: likely because of it"
        return [
            Finish(Outcome(one.number, "failed", None, None, 0.0, error=error), one.attempt, one.block)
            for one in latest.values()
            if n_ends[one.number] >= FATAL
        ]

    def _learn(self, past: Past) -> None:
        past.teach(self.strategy)
        if self._yardsticks.n_folds > 1:
            past.measure(self._yardsticks, self._store.store.folds(self._store.study_id))
        self.queue.take_up(past)
        self.others.take_up(past)
        self.n_usable = sum(record.figure_of_merit is not None for record in past.ended)
