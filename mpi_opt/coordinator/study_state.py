"""The state of a study: its store, its strategy, and the trials that a workload system runs."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence, Set
from contextlib import suppress
from itertools import chain

from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.trials.first_failures import FirstFailures
from mpi_opt.coordinator.trials.from_others import ExternalTrials, HintReader
from mpi_opt.coordinator.trials.intermediate_values import IntermediateValues
from mpi_opt.coordinator.trials.trial_queue import TrialQueue
from mpi_opt.coordinator.trials.waiting_budget import WaitingBudget
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.counted import counted
from mpi_opt.core.folds.fold_stopping import ReferenceTrial
from mpi_opt.core.limits import MAX_CRASHES
from mpi_opt.core.objective import CHECKPOINT_S, Choice
from mpi_opt.core.search_space.space import Parameters, points_and_limits, points_in
from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.errors import ConfigurationError, MPILearnError, StoreError
from mpi_opt.messages.messages import Report
from mpi_opt.store.errors import StoreConflictError, StoreDamagedError, StoreMovedError
from mpi_opt.store.events import BATCH_SIZE_CHOSEN
from mpi_opt.store.records import GivenUp
from mpi_opt.strategies.strategy import Decision, Strategy
from mpi_opt.study.reading import PastTrials

SLOW_ASK_S = 0.1
"""If the last call of `ask` took longer, outcomes are committed before the next one, in which rank 0 may be killed."""


class StudyState:
    """The state of a study in this search, which follows the store: its strategy and what is known of its trials.

    Only this class and the readers that it owns use the store and the strategy.

    Attributes:
        past: The trials of the study when it was last read from the store.
        ended: The numbers of the trials that have ended, as far as the search knows.
        n_usable: Number of trials with a figure of merit, including earlier searches.
        failures: The trials that have failed in this search before the first success of the study.
        has_repeated_step: Whether a fold of a trial has reported several values for one step.
    """

    def __init__(self, store: RetryingStore, strategy: Strategy, queue: TrialQueue, settings: SearchSettings) -> None:
        self.ended: set[int] = set()
        self.n_usable, self.failures, self.has_repeated_step = 0, FirstFailures(), False
        self._queue, self._strategy, self._external, self._store = queue, strategy, ExternalTrials(store), store
        self._hints, self._space = HintReader(store), settings.space
        self._values: dict[tuple[int, int], IntermediateValues] = {}  # (trial, attempt) -> what it has reported
        # hashes of the points at which trials have ended, without those that continue a training; and their number
        self._points, self._n_at_points = set[int](), 0
        self._limits, self._n_folds, self._new_strategy = settings.limits, settings.n_folds, settings.new_strategy
        self._complete_trials, self._pruning_rule = settings.complete_trials, settings.pruning_rule
        self._died_at = settings.died_at
        self._budget = WaitingBudget()
        self._asked_s = math.inf  # the last call of `ask`; unknown before the first one
        self._strategy_choice, self._progress = "", settings.progress

    def resume(self, max_crashes: int = MAX_CRASHES) -> PastTrials:
        """Reads the study from the store into `past`. Trials that ran when the last search was killed are queued again.

        A trial that had started less than `CHECKPOINT_S` before each of `max_crashes` such ends has failed instead.
        """
        past = self._read()
        if running := self._left_running(past):
            self._store.requeue_killed(running, "the search ended before the trial did", self._died_at)
        if fatal := self._fatal(past, max_crashes):
            self._store.record(fatal)
            past = self._read()
        if past:
            self._replay(past)
        return past

    def ask(self, count: int) -> list[Attempt]:
        """At most `count` trials to start.

        Raises:
            ConfigurationError: The user's strategy makes an invalid proposal.
        """
        return self._queue.take(count, self._propose)

    def record(self, ended: list[Attempt], started: list[Attempt]) -> list[TrialRecord] | None:
        """Commits the outcomes of trials, and records others as running, in one transaction.

        Returns:
            None; or, if a workload system has started one of `started`, the trials that it has ended since the store
            was last asked. Then only the outcomes are recorded, the study is read again into `past`, and a new strategy
            continues it.

        Raises:
            StoreConflictError: Another search has ended or started one of the trials.
        """
        try:
            self._store.record(ended, started)
        except StoreConflictError:
            if not started:
                raise
            if ended:  # alone: if they are the cause, this raises the error again
                self.record(ended, [])
            past = self._read()
            if self._new_strategy is None or self._left_running(past):  # another search, not a workload system
                raise
            known = self.ended
            self._strategy = self._new_strategy()
            self._replay(past, started)
            return [record for record in past.ended if record.number not in known]
        self._release(ended)
        self._queue.mark_running(started)
        return None

    def record_first(self) -> list[Attempt]:
        """Commits the outcomes, and returns the trials without those that a workload system has received meanwhile.

        It can receive trials that the search has requeued because it ends.

        Raises:
            StoreConflictError: Another search has ended one of the trials or started it again.
        """
        ended = self._queue.ended
        try:
            self._store.record(ended)
        except StoreConflictError:
            taken = [one for one in ended if self._is_taken(one)]
            if not taken:
                raise
            self._release(taken)
            return self.record_first()
        self._release(ended)
        return ended

    def save_after(self, error: Exception) -> None:
        """Commits the outcomes and requeues the running trials after an error that ends the search.

        Otherwise, the next search would count these trials as killed. If the file of the store was deleted, replaced or
        damaged, they are written to a copy beside it, which the message of `error` then names. After another error of
        the store nothing is written.
        """
        is_lost = isinstance(error, StoreMovedError | StoreDamagedError)
        if isinstance(error, StoreError) and not (is_lost and self._store.move_to_copy()):
            return
        text = str(error) if isinstance(error, MPILearnError) else f"{type(error).__name__}: {error}"
        first_line, _, _ = text.partition("\n")
        running = [one for one in self._queue.running.values() if not one.is_requeued]
        with suppress(StoreError):  # the first error is reported
            if self._queue.ended:
                self.record_first()
            self.requeue(running, f"the search ended with an error: {first_line}")
            if isinstance(error, StoreError):
                url = self._store.store.url
                error.cure = f"the results are in a new file, with which the search continues: --store {url}"
                self._store.store.close()

    def requeue(self, running: list[Attempt], why: str, outcome: GivenUp = "lost") -> None:
        """Puts running trials back into the queue of the store; their attempts end with `outcome`."""
        if running:
            self._store.requeue([one.number for one in running], why, outcome)
            self._queue.mark_requeued(running)

    def mark_lost(self, killed: list[Attempt]) -> None:
        """Records attempts as lost instead of killed."""
        self._store.mark_lost([(one.number, one.attempt) for one in killed])

    def event(self, kind: str, detail: str) -> None:
        """Records an event of the search."""
        self._store.event(kind, detail)

    def choose(self, choice: Choice) -> None:
        """Records the choice of a block, such as the batch size, for all trials of the study; later searches use it."""
        self._store.choose(choice.values)
        self.announce(BATCH_SIZE_CHOSEN, choice.why)

    def announce(self, kind: str, detail: str) -> None:
        """Shows the first line of an event to the user, and records it."""
        first_line, _, _ = detail.partition("\n")
        self._progress.note(f"{kind.replace('_', ' ')}: {first_line}")
        self.event(kind, detail)

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        """Passes the outcome of a trial to the strategy."""
        self.ended.add(proposal.number)
        self._count_point(proposal)
        self._budget.earn(outcome.duration_s)
        self._strategy.tell(proposal, self._limits.figures_of_merit.measured_cost(outcome, self._n_folds))
        if outcome.figure_of_merit is not None:
            self.n_usable += 1
        elif not self.n_usable:
            self.failures.add(outcome)
        if self._n_folds > 1 and outcome.state == "complete" and outcome.figure_of_merit is not None:
            folds = {fold.fold: fold.figure_of_merit for fold in outcome.folds}
            self._complete_trials.add(proposal, outcome.figure_of_merit, folds)

    def follow_hints(self) -> list[str]:
        """Passes new hints of users to the strategy; returns sentences about them."""
        if (hints := self._hints.read()) is None:
            return []
        points, limits = points_and_limits(hints)
        begun = self._points | {_point(one.proposal.parameters) for one in self._queue.running.values()}
        known = points if self._space is None else points_in(self._space, points)
        new = [point for point in known if _point(point) not in begun]
        try:
            self._strategy.steer(new, limits)
        except ConfigurationError as error:
            return [f"hint ignored: {error}"]
        ranges = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in limits.items())
        return [f"hint: {counted(len(new), 'point')} to try next; {f'range of {ranges}' if ranges else 'all ranges'}"]

    def prunes(self, running: Attempt, report: Report, n_groups: int) -> bool:
        """Records an intermediate value of a trial; returns whether the strategy or the pruning rule stops the trial.

        `n_groups` is the number of folds that the trial runs in parallel.
        """
        key = running.number, running.attempt
        if (values := self._values.get(key)) is None:
            values = self._values[key] = IntermediateValues(n_groups, self._limits.figures_of_merit)
        value = values.add(report.fold, report.step, report.value)
        self.has_repeated_step |= values.has_repeated_step
        if value is None:
            # a trial that has left its block may not have received that it must stop
            return values.is_pruned and values.is_carried
        cost = self._limits.figures_of_merit.sign * value
        values.is_pruned |= self._strategy.report(running.proposal, report.step, cost) is Decision.STOP
        if self._pruning_rule is not None:
            values.is_pruned |= self._pruning_rule.prunes(running.proposal, running.attempt, report.step, cost)
        return values.is_pruned

    def has_reported(self, attempt: Attempt) -> bool:
        """Whether this attempt of a trial that runs has reported an intermediate value."""
        return (attempt.number, attempt.attempt) in self._values

    def carry_values(self, left: Attempt) -> None:
        """Keeps the intermediate values of a trial that has left its block, for the attempt that continues it.

        That attempt reports them again. They were good enough when they were new, and are not compared a second time
        with trials that have ended meanwhile.
        """
        key, to = (left.number, left.attempt), (left.number, left.attempt + 1)
        if (values := self._values.pop(key, None)) is not None:
            values.is_carried, self._values[to] = True, values
        if self._pruning_rule is not None:
            self._pruning_rule.carry(key, to)

    def reference(self, proposal: Proposal) -> ReferenceTrial | None:
        """The trial with which the folds of this one are compared; None to run all folds."""
        return self._complete_trials.reference_for(proposal)

    def changed_external(self) -> list[TrialRecord]:
        """The trials of a workload system that have ended or were given back since the last call."""
        return self._external.changed()

    def obsolete(self, ended: list[Attempt]) -> list[int]:
        """The numbers of trials that may have checkpoints, and from which no other trial will resume.

        Args:
            ended: The trials that have ended since the last call. Those without a budget have at most provisional
                checkpoints, for their own continuation.
        """
        own = [one for one in ended if one.proposal.budget is None]
        # shorter attempts have not written a provisional checkpoint
        is_long = [one.number for one in own if one.attempt > 1 or one.result.duration_s >= CHECKPOINT_S]
        return [*self._strategy.obsolete(), *is_long]

    @property
    def n_repeated(self) -> int:
        """Number of trials that have ended at the point of an earlier one."""
        return self._n_at_points - len(self._points)

    def new_strategy_choice(self) -> str:
        """The choice of the strategy, see `Strategy.choice`, if it has changed since the last call; otherwise empty."""
        before, self._strategy_choice = self._strategy_choice, self._strategy.choice or self._strategy_choice
        return self._strategy_choice if self._strategy_choice != before else ""

    def problems(self) -> list[str]:
        """The exceptions that the strategy has survived since the last call."""
        return self._strategy.problems()

    @property
    def asks_slowly(self) -> bool:
        """Whether the strategy needs long for its proposals, so that outcomes must be committed before."""
        return self._asked_s > SLOW_ASK_S

    @property
    def is_exhausted(self) -> bool:
        """Whether no trial waits and the strategy has no more proposals."""
        return self._strategy.finished and not (self._queue.waiting or self._queue.held)

    @property
    def is_hopeless(self) -> bool:
        """Whether no trial of the study has succeeded, and further ones would probably fail as well.

        False while a trial runs on a block, or moves to another one: it may succeed.
        """
        if self.n_usable or not self.failures.n or self._queue.running or self._queue.continuing:
            return False
        is_all = self.is_exhausted and not self.is_waiting_for_results
        return self.failures.are_enough or self.failures.n >= self._limits.n_trials or is_all

    def may_start_another(self, now_s: float) -> bool:
        """Whether another trial may start at `now_s` by the clock of the pool. If not, running trials are awaited."""
        if self.n_usable:
            return True
        running, continuing = self._queue.running, self._queue.continuing
        # ages are computed only if many trials have failed: thousands may run, and each round asks
        ages_s = chain((one.seconds(now_s) for one in running.values()), (one.before_s for one in continuing))
        return not (running or continuing) or self.failures.allow_another(ages_s)

    @property
    def external(self) -> Set[int]:
        """The numbers of the trials that a workload system runs."""
        return self._external.running

    @property
    def is_waiting_for_results(self) -> bool:
        """Whether trials run, on a block or in a workload system."""
        return bool(self._queue.running or self._external.running)

    def _propose(self, count: int) -> list[Proposal]:
        """At most `count` new proposals of the strategy, which knows how many of them may take the time of a model."""
        n_running = len(self._queue.running)
        n_models = self._budget.n_models(count, n_running)
        self._strategy.afford(n_models)
        began_s = time.monotonic()
        proposals = self._strategy.ask(count)
        self._asked_s = time.monotonic() - began_s
        self._budget.pay(self._asked_s, n_models, count, n_running)
        return proposals

    def _release(self, ended: list[Attempt]) -> None:
        """Forgets trials whose outcomes are committed, with what they have reported."""
        self._queue.forget_committed(ended)
        for one in ended:
            self._values.pop((one.number, one.attempt), None)
            if self._pruning_rule is not None:
                figure = one.result.figure_of_merit if one.result.state == "complete" else None
                self._pruning_rule.end(one.proposal, one.attempt, figure)

    def _count_point(self, proposal: Proposal) -> None:
        if proposal.resume_from is None:
            self._points.add(_point(proposal.parameters))
            self._n_at_points += 1

    def _is_taken(self, running: Attempt) -> bool:
        """Whether a workload system has received a trial that the search had requeued."""
        if not running.is_requeued:
            return False
        (record,) = self._store.read(lambda store, study_id: store.trials(study_id, numbers=[running.number]))
        return record.attempts > running.attempt

    def _read(self) -> PastTrials:
        self.past = self._store.read(
            lambda store, study_id: PastTrials.read(store, study_id, self._limits.figures_of_merit, self._n_folds)
        )
        return self.past

    def _left_running(self, past: PastTrials) -> list[int]:
        """The trials that are running in the store, but neither on a block nor in a workload system."""
        known = past.external | set(self._queue.running)
        return [record.number for record in past.unfinished if record.state == "running" and record.number not in known]

    def _fatal(self, past: PastTrials, max_crashes: int) -> list[Attempt]:
        """The outcomes of trials that probably kill every search that runs them."""
        suspects = [record.number for record in past.unfinished if record.attempts >= max_crashes]
        numbers = [number for number in suspects if number not in past.external]
        attempts = self._store.read(lambda store, study_id: store.attempts(study_id, numbers)) if numbers else []
        latest = {attempt.number: attempt for attempt in attempts}  # in this order, the last attempt remains
        killed = (attempt for attempt in attempts if attempt.outcome == "killed")
        # after that time a training has a checkpoint, from which it continues; and where trials take hours, each loss
        # of rank 0 would count against all that run
        n_ends = Counter(attempt.number for attempt in killed if (attempt.duration_s or 0.0) < CHECKPOINT_S)
        proposals = {record.number: record.proposal for record in past.unfinished}
        error = f"the search was killed {max_crashes} times soon after the start of this trial, probably because of it"
        return [
            Attempt(proposals[number], one.attempt, one.block, outcome=Outcome(number, "failed", error=error))
            for number, one in latest.items()
            if n_ends[number] >= max_crashes
        ]

    def _replay(self, past: PastTrials, not_started: Sequence[Attempt] = ()) -> None:
        past.replay(self._strategy)
        self._hints.restart()
        if self._complete_trials.n_folds > 1:
            past.add_complete(self._complete_trials, self._store.read(lambda store, study_id: store.folds(study_id)))
        if self._pruning_rule is not None:
            self._pruning_rule.resume(past.ended, self._store.read(lambda store, study_id: store.curves(study_id)))
        self._queue.resume(past, not_started)
        self._external.resume(past)
        self.ended = {record.number for record in past.ended}
        self._points, self._n_at_points = set(), 0
        self._budget = WaitingBudget()
        for record in past.ended:
            self._count_point(record.proposal)
            self._budget.earn(record.duration_s or 0.0)
        self.n_usable = sum(record.figure_of_merit is not None for record in past.ended)


def _point(parameters: Parameters) -> int:
    """A number for a point; 1 and True are different categories. Texts of all points would take much more memory."""
    return hash(repr(parameters))
