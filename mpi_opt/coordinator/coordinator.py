"""Rank 0 of a search: asks the strategy, assigns trials to blocks, and records their outcomes.

`StudyState` connects the strategy with the store; this module connects both with the blocks. An outcome is committed
before its block receives the next trial. Figures of merit are in the user's direction; only strategies receive values
to minimise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from mpi_learn.job.exit_status import FAILED, UNFINISHED
from mpi_learn.mpi.host_fault import MEMORY, kind_of_text
from mpi_opt.coordinator.block_health import BlockHealth
from mpi_opt.coordinator.block_pool import TICK_S, BlockPool
from mpi_opt.coordinator.code_watch import CodeWatch
from mpi_opt.coordinator.host_faults import CURE, HostFaults
from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.silent_ranks import SilentRanks
from mpi_opt.coordinator.study_state import StudyState
from mpi_opt.coordinator.trial_queue import TrialQueue
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.counted import counted
from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.errors import HostFailed, RanksLost, SearchFailed, StoreError
from mpi_opt.messages.messages import (
    Abandoned,
    Alive,
    Assignment,
    Broken,
    LeftBlock,
    Lost,
    Ready,
    Report,
    Stop,
    ToCoordinator,
)
from mpi_opt.store.errors import StoreNotReadyError, StudyOwnedError
from mpi_opt.store.store import Store
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.study.past_trials import EXTERNAL_BLOCK, PastTrials
from mpi_opt.study.reading import (
    CODE_CHANGED,
    SEARCH_FINISHED,
    SEARCH_STOPPED,
    STRATEGY_CHOSEN,
    STRATEGY_FAILED,
    STUDY_FINISHED,
    STUDY_RESUMED,
    TRIAL_CONTINUED,
)

STOPPING_S = 3.0
"""Time that running trials have to end after a request to stop the search or at its time limit, in seconds."""


@dataclass(frozen=True)
class SearchEnd:
    """Why a search starts no more trials.

    Attributes:
        kind: No trial is left, a trial has reached the target, or a limit or a request has stopped the search.
        why: The reason, for the user.
    """

    kind: Literal["no trials left", "target", "stopped"]
    why: str


class Coordinator:
    """Runs a study until it is finished or the search must end. `strategy` is new: it has received no trials."""

    def __init__(
        self, pool: BlockPool, strategy: Strategy, store: Store, study_id: int, settings: SearchSettings
    ) -> None:
        self.pool, self.link = pool, pool.link
        self.settings, self.limits = settings, settings.limits
        self.progress, self.stop_condition = settings.progress, settings.stop_condition
        retrying = RetryingStore(
            store, study_id, self.progress, self.stop_condition.is_due, check_lease=settings.check_lease
        )
        self.queue = TrialQueue(settings.limits.n_trials, settings.code_number)
        self.state = StudyState(retrying, strategy, self.queue, settings)
        self._end: SearchEnd | None = None
        self._leave_running_at_s = math.inf
        self._n_lost_attempts: Counter[int] = Counter()  # trial number -> lost attempts in this search
        self._health = BlockHealth()
        self._silent = SilentRanks(settings.silence_s)
        self._faults = HostFaults()
        self._is_hesitation_noted = self._is_repetition_noted = False
        self._watch = CodeWatch(settings.code)
        self._has_nothing_to_do = False  # the study was finished before, and still is: nothing is recorded
        self._suspects: list[Attempt] = []  # requeued as trials that may have killed the search

    def run(self, *, keeps_blocks: bool = False) -> None:
        """Runs the search loop until the search is over, then dismisses every rank.

        With `keeps_blocks`, blocks that have become idle remain, unless the search was stopped or raises an error:
        another coordinator will give them trials.

        Raises:
            UserError, TrainingError: A block could not prepare its objective.
            SearchFailed: The first trials or all trials of the study have failed, or no block could be formed.
            RanksLost: No rank can run a trial any more.
            HostFailed: No trial can run, because of a full disk or another fault of hosts.
        """
        is_done = False
        try:
            self._resume()
            if not self._is_over():
                self.pool.assemble(self.settings.code)
            while not self._is_over():
                for rank, message in self.pool.receive(TICK_S, self._is_interrupted):
                    self._handle(rank, message)
                self._give_up_silent()
                self._note_edits()
                for sentence in self.state.follow_hints():
                    self.progress.note(sentence)
                for record in self.state.changed_external():
                    self._handle_external(record)
                self._give_up_unresponsive()
                self._stop_if_due()
                self._stop_without_ranks()
                self.settings.check_lease()
                self._clear_suspects()
                self._advance()
                self._report_strategy()
                self.progress.tick()
            self._report_strategy()
            self._conclude()
            if self._suspects:
                self.stop_condition.await_copy()
                self._clear_suspects()
            is_done = not self.queue.running and not self.stop_condition.is_due()
        except Exception as error:  # also of the user's strategy
            self.state.save_after(error)
            if isinstance(error, StoreError):  # not invalid input, as it would be at the start
                error.exit_status = UNFINISHED if isinstance(error, StudyOwnedError) else FAILED
            raise
        finally:
            if not (keeps_blocks and is_done):
                self.pool.dismiss({running.block for running in self.queue.running.values()})

    def _resume(self) -> None:
        """Continues from the trials of the study in the store."""
        if past := self.state.resume():
            if self.settings.kept_models is not None:
                self.settings.kept_models.resume((one.proposal, one.outcome) for one in past.ended)
            self._stop_if_reached(past, "the target was reached before")
            # a study all of whose trials have failed is over, but not finished: `_conclude` raises an error
            self._has_nothing_to_do = self.settings.was_finished and self.state.n_usable > 0 and self._is_over()
            if not self._has_nothing_to_do:
                self._event(STUDY_RESUMED, str(past))

    def _stop_if_reached(self, past: PastTrials, why: str) -> None:
        """Stops the search if one of the trials that were read from the store reaches the target."""
        if any(self.limits.reaches_target(record) for record in past.ended):
            self._start_no_more(SearchEnd("target", why))
            self._stop_running()

    def _conclude(self) -> None:
        """Records whether the study is finished.

        Raises:
            SearchFailed: All trials have ended, and none has a figure of merit.
        """
        if self._has_nothing_to_do:
            return
        end = self._end or SearchEnd("no trials left", "all trials have ended")
        no_trials_left = self.queue.has_begun_all or self.state.is_exhausted or end.kind == "no trials left"
        if end.kind == "target":
            self.state.event(STUDY_FINISHED, end.why)
        elif self.queue.running or not no_trials_left:
            self.state.event(SEARCH_STOPPED, end.why)
        elif self.state.external:
            self.state.event(SEARCH_FINISHED, f"a workload system still runs {len(self.state.external)} of the trials")
        elif self.state.ended and not self.state.n_usable:
            raise SearchFailed(
                f"all {len(self.state.ended)} trials of the study have failed, and they are not run again"
                '\n  → correct the cause, and start a new study: --study NAME, or in Python study="NAME"'
            )
        elif self.queue.has_begun_all:
            self.state.event(STUDY_FINISHED, "all trials have ended")
        else:
            n, n_trials = self.queue.n_begun, self.limits.n_trials
            why = f"the strategy has no more points: {n} of {n_trials} trials have run"
            self.progress.note(why)
            self.state.event(STUDY_FINISHED, why)
        if (n_repeated := self.state.n_repeated) and not self.settings.repeats_points:
            self.progress.note(
                f"{n_repeated} of {len(self.state.ended)} trials have repeated the point of an earlier one"
            )

    def _is_over(self) -> bool:
        if self.queue.ended or (self.queue.running and self.pool.now_s < self._leave_running_at_s):
            return False
        return self._end is not None or self.queue.has_begun_all or self.state.is_exhausted

    def _handle(self, rank: int, message: ToCoordinator) -> None:
        match message:
            case Outcome():
                self._handle_outcome(rank, message)
            case Report():
                self._handle_report(rank, message)
            case Ready():
                if self.pool.mark_ready(message):
                    self.progress.ready(message.block)
            case LeftBlock():
                self.pool.mark_left(rank)
            case Abandoned():
                self.queue.abandon(message.block, message.number, message.error, self.pool.now_s)
            case Broken():
                self._handle_broken(message)
            case Alive():
                self._silent.hear(rank, self.pool.now_s)
            case Lost():
                self._handle_losses(message.ranks)

    def _handle_outcome(self, rank: int, outcome: Outcome) -> None:
        running = self.queue.running.get(outcome.number)
        if running is None or rank != self.pool.ranks(running.block)[0]:
            return  # the block was given up; the trial runs again or has failed
        if outcome.state != "complete" and (why := self.stop_condition.reason):  # the stop may have caused the failure
            self._requeue(running, f"the search ended: {why}")
            return
        if outcome.host_fault:
            self._handle_host_fault(running, outcome)
            return
        if outcome.is_consequence:  # no rank of the block knows a cause, and none is reported as lost
            first_line, _, _ = (outcome.error or "").partition("\n")
            self._event("block_lost", f"the ranks of block {running.block} could not communicate: {first_line}")
            self._give_up(running.block, "the ranks of its block could not communicate")
            return
        self.queue.end(running, outcome)
        if outcome.state != "failed" and self._faults.kind:
            self._faults.clear()
            self._judge_held()

    def _handle_host_fault(self, running: Attempt, outcome: Outcome) -> None:
        """Queues a trial again that has failed because of its host, or holds it while this is uncertain.

        Raises:
            HostFailed: No trial can run.
        """
        faults, block = self._faults, running.block
        faults.add(outcome.host_fault, running.number, block, self.pool.now_s)
        first_line, _, _ = (outcome.error or "").partition("\n")
        reason = f"{outcome.host_fault}: {first_line}"
        self.state.requeue([running], reason)
        self.queue.hold(running, outcome)
        self.progress.requeued(block)
        self._release(block, outcome, faults.pause_s(block))
        if not faults.are_certain:
            return
        self.queue.put_held_back()
        if faults.is_new(block):
            self._event("host_fault", f"block {block} waits, and its trial runs again, because of {reason}")
        if faults.must_end(self.pool.membership.blocks, self.pool.now_s):
            why = f"no trial has succeeded for {self.pool.now_s - faults.since_s:.0f} s because of {reason}"
            self.state.event(SEARCH_STOPPED, why)
            raise HostFailed(f"{why}\n  → {CURE}")

    def _judge_held(self) -> None:
        """Ends the held trials, whose hosts work: they fail, or run again if the fault may have been a short one."""
        for running in self.queue.release_held():
            self._n_lost_attempts[running.number] += 1
            may_run_again = self._n_lost_attempts[running.number] <= self.limits.retries
            if may_run_again and running.result.host_fault != MEMORY:  # it would probably need as much memory again
                self.queue.put_back(running)
            else:
                self.queue.end(running, running.result)

    def _handle_report(self, rank: int, report: Report) -> None:
        """Passes an intermediate value to the strategy, and stops the trial if the strategy prunes it."""
        running = self.queue.running.get(report.number)
        leaders = [] if running is None else self.pool.fold_leaders(running.block, self.settings.n_folds)
        if running is None or rank not in leaders:
            return  # the block was given up; the trial runs again or has failed
        if self.state.prunes(running, report, len(leaders)):
            self._stop_trial(running)
        if self.state.has_repeated_step and not self._is_repetition_noted:
            self._is_repetition_noted = True
            what = f"trial {running.number} has reported step {report.step} several times, and the first value counts"
            self.progress.note(f"{what}: call trial.report(step, value) with another step each time")

    def _handle_broken(self, broken: Broken) -> None:
        if broken.block in self.pool:
            self.pool.mark_broken(broken)
            self._event("block_lost", f"the ranks of block {broken.block} cannot communicate: {broken.reason}")
            self._give_up(broken.block, "the ranks of its block could not communicate")

    def _handle_losses(self, ranks: frozenset[int]) -> None:
        for rank in self.pool.not_yet_lost(ranks):  # ranks that were given up have been reported already
            self._event("rank_lost", f"rank {rank}, {self.pool.describe(rank)}")
        for block in self.pool.lose(ranks):
            self._give_up(block, "a rank of its block was lost")

    def _advance(self) -> None:
        """Passes the outcomes to the strategy, and starts trials on the idle blocks. One transaction records both.

        The trials are sent to their blocks after the commit. A strategy therefore learns outcomes that are not
        committed yet; if this process is killed before the commit, nothing depends on them. Outcomes do not wait for a
        strategy that needs long for its proposals: they are committed before.
        """
        self.pool.wake()
        to_record = ended = list(self.queue.ended)
        # only the commit shows whether a workload system has taken a trial that is requeued
        if ended and (self.state.asks_slowly or any(one.is_requeued for one in ended)):
            to_record, ended = [], self.state.record_first()
        for attempt in ended:
            self._learn(attempt)
        is_hopeless = bool(ended) and self.state.is_hopeless
        started = [] if is_hopeless else self._chosen()
        known = self.state.ended  # after a conflict, `record` assigns a new set to this attribute
        is_started = self.state.record(to_record, started) if to_record or started else True
        self._show(ended)
        if is_started:
            self._send(started)
        else:
            self._handle_conflict(started, known)
        if is_hopeless:
            failures, n_ended = self.state.failures, len(self.state.ended)
            has_more = n_ended > failures.n  # of earlier searches
            which = f"none of the {n_ended} trials of the study succeeded" if has_more else str(failures)
            raise SearchFailed(f"{which}{'; the last one' if n_ended > 1 else ''}:\n{ended[-1].result.error}")

    def _learn(self, attempt: Attempt) -> None:
        """Passes an outcome to the strategy, and makes the block of the trial idle."""
        self._tell(attempt.proposal, attempt.result)
        if not attempt.is_held:  # otherwise its block has another trial
            self._release(attempt.block, attempt.result)

    def _show(self, ended: list[Attempt]) -> None:
        """Shows trials whose outcomes are committed, and removes the models and checkpoints that are not needed."""
        if not ended:
            return
        for attempt in ended:
            block = EXTERNAL_BLOCK if attempt.is_held else attempt.block
            self.progress.finished(block, attempt.result, attempt.proposal.parameters)
        if self.settings.kept_models is not None:
            self.settings.kept_models.take((attempt.proposal, attempt.result) for attempt in ended)
        if obsolete := self.state.obsolete(ended):
            self.settings.discard(self.settings.study, obsolete)

    def _tell(self, proposal: Proposal, outcome: Outcome) -> None:
        self.state.tell(proposal, outcome)
        if self.limits.reaches_target(outcome):
            self._start_no_more(SearchEnd("target", f"trial {proposal.number} reached the target"))
            self._stop_running()

    def _release(self, block: int, outcome: Outcome, pause_s: float = 0.0) -> None:
        """Makes the block of a trial that has ended idle after a pause, or retires it if too many of them fail."""
        if block not in self.pool:
            return
        if not outcome.host_fault:
            self.stop_condition.add_duration(outcome.duration_s)
        self._health.record(block, outcome.state == "failed")
        if len(self.pool) > 1 and self._health.is_unhealthy(block):
            self._event("block_retired", f"block {block} failed {self._health.in_a_row(block)} trials in a row")
            self.pool.retire(block)
            self.progress.given_up(block)
        else:
            self.pool.rest(block, pause_s)

    def _chosen(self) -> list[Attempt]:
        """The trials to start, as many as there are idle blocks, each with its block."""
        if self._end is not None or not self.pool.idle:
            return []
        if not self.stop_condition.has_time_for_one():
            self._start_no_more(SearchEnd("stopped", "another trial would likely end after the time limit"))
        elif not self.state.may_start_another(self.pool.now_s):
            if not self._is_hesitation_noted:
                n, n_running = self.state.failures.n, len(self.queue.running)
                self.progress.note(
                    f"{n} trials have failed and none has succeeded: {n_running} running ones are awaited"
                )
            self._is_hesitation_noted = True
        elif chosen := self.state.ask(len(self.pool.idle), lambda one: not self.pool.are_moving(one.holders)):
            for attempt in sorted(chosen, key=lambda one: not one.holders):  # before their blocks have other trials
                self.pool.assign(attempt, self.limits.timeout_s)
            return chosen
        elif self.queue.waiting:  # for the block of the ranks that keep the last epoch
            return []
        elif self.queue.held and not self.queue.running:  # no other trial will tell whose fault it is
            self._judge_held()
        elif not self.state.is_waiting_for_results:  # no result can change what the strategy proposes
            self._end = SearchEnd("no trials left", "all trials have ended")
        return []

    def _send(self, started: list[Attempt]) -> None:
        """Sends trials, which the store has as running, to their blocks."""
        for attempt in started:
            reference, study, seed = self.state.reference(attempt.proposal), self.settings.study, self.settings.seed
            assignment = Assignment(attempt.proposal, study, reference, seed)
            ranks = self.pool.ranks(attempt.block)
            self.link.send(ranks[0], assignment)
            self.progress.started(attempt.block, attempt.number)
            if set(attempt.holders).intersection(ranks):
                on = f"{counted(len(ranks), 'rank')} ({attempt.ranks})"
                self._event(TRIAL_CONTINUED, f"trial {attempt.number} continues from its last epoch on {on}")

    def _handle_conflict(self, started: list[Attempt], known: set[int]) -> None:
        """Handles trials of a workload system that have kept others from starting; `known` are those of before."""
        for attempt in started:
            self.pool.rest(attempt.block)
        for record in self.state.past.ended:
            if record.number not in known:  # a workload system has ended it since the store was last asked
                self.progress.finished(EXTERNAL_BLOCK, record.outcome, record.parameters)
        self._stop_if_reached(self.state.past, "a trial of a workload system reached the target")

    def _give_up(self, block: int, why: str) -> None:
        """Disbands a block.

        Its trial is queued again. It fails if it has raised an exception, exceeded its timeout, or has no attempt left.
        """
        survivors = self.pool.disband(block)
        self.progress.given_up(block)
        running = self.queue.running_on(block)
        if running is None:
            return
        error = running.failure(self.pool.now_s, self.limits, why)
        if error is not None and not kind_of_text(error):  # it would fail again, and a retry could lose more ranks
            self._fail(running, error)
            return
        self._n_lost_attempts[running.number] += 1
        if self._n_lost_attempts[running.number] <= self.limits.retries or self.stop_condition.wait_for_cancellation():
            self._requeue(running, why, survivors if self.settings.continues_on_fewer_ranks else ())
        else:
            attempts = f"attempt {running.attempt} was the last (trial.retries: {self.limits.retries})"
            self._fail(running, f"{why}; {attempts}")

    def _fail(self, running: Attempt, error: str) -> None:
        duration_s = self.pool.now_s - running.started_at_s
        self.queue.end(running, Outcome(running.number, "failed", duration_s=duration_s, error=error))

    def _requeue(self, running: Attempt, why: str, holders: Sequence[int] = ()) -> None:
        """Puts a trial back, to continue from the ranks `holders` if there are any.

        Its attempt counts as one that killed the search if no rank is left, unless the job is being cancelled.
        """
        if not running.is_requeued:
            is_suspect = self.pool.is_empty and not self.stop_condition.wait_for_cancellation()
            self.state.requeue([running], why, "killed" if is_suspect else "lost")
        self.queue.put_back(running, holders)

    def _handle_external(self, record: TrialRecord) -> None:
        """Handles a trial of a workload system that has ended, or was given back and must run again."""
        if record.state == "queued":
            self.queue.put_back(Attempt(record.proposal, record.attempts))
            return
        self._tell(record.proposal, record.outcome)
        self.progress.finished(EXTERNAL_BLOCK, record.outcome, record.parameters)

    def _give_up_silent(self) -> None:
        """Gives up ranks that give no sign of life: their host may be frozen, or the network cut."""
        silent = self._silent.take(self.pool.now_s)
        new = self.pool.not_yet_lost(frozenset(silent))
        for rank in new:
            why = f"no sign of life for {self._silent.limit_s:g} s"
            self._event("rank_lost", f"rank {rank}, {self.pool.describe(rank)}: {why}")
        for block in self.pool.abandon(set(new)) if new else ():
            self._give_up(block, "a rank of its block gave no sign of life")

    def _give_up_unresponsive(self) -> None:
        """Gives up ranks that do not leave their block and blocks that do not answer."""
        for rank in sorted(self.pool.give_up_unresponsive()):
            self._event("rank_lost", f"rank {rank} did not leave its block")
        for running in self.queue.overdue(self.pool.now_s):
            when = f"in trial {running.number}" if running.error is None else f"after trial {running.number} failed"
            self._event("block_lost", f"block {running.block} does not answer {when}")
            self._give_up(running.block, "its block does not answer")

    def _stop_without_ranks(self) -> None:
        """Stops the search if no rank can run a trial any more.

        Raises:
            RanksLost: No rank can run a trial any more.
            SearchFailed: No rank ever could.
        """
        if not self.pool.is_empty or self._is_over():
            return
        why = self.pool.why_empty
        if not self.pool.has_been_ready:
            raise SearchFailed(why)
        self.state.event(SEARCH_STOPPED, why)
        raise RanksLost(f"{why}; the same command continues the study")

    def _is_interrupted(self) -> bool:
        """Whether something other than a message needs an answer at once."""
        return self._must_stop() or self._must_clear_suspects()

    def _must_stop(self) -> bool:
        """Whether the search must end and has not been stopped yet."""
        return self._leave_running_at_s == math.inf and self.stop_condition.is_due()

    def _stop_if_due(self) -> None:
        """Stops the search, once, on request or at its time limit."""
        if self._must_stop() and (why := self.stop_condition.reason):
            self._requeue_running(why)
            self._start_no_more(SearchEnd("stopped", why))
            self._stop_running()
            self._leave_running_at_s = self.pool.now_s + STOPPING_S

    def _requeue_running(self, why: str) -> None:
        """Requeues the running trials in the store.

        This is done first, before it is known whether a batch system cancels the job: after a signal, ``mpirun`` may
        kill this process within 0.25 s. See `_clear_suspects`.
        """
        is_suspect = not self.link.is_protected and self.stop_condition.may_be_death_of_a_rank()
        why = f"the search ended: {self._end.why if self._end else why}"
        failed = []
        for running in list(self.queue.running.values()):
            if (error := running.failure(self.pool.now_s, self.limits, why)) is not None:
                self._fail(running, error)
                failed.append(running)
        requeued = list(self.queue.running.values())
        self.state.requeue(requeued, why, "killed" if is_suspect else "lost")
        self._suspects = requeued if is_suspect else []
        for running in failed:  # the ranks of its block may hang and never receive their dismissal
            self.pool.disband(running.block)

    def _must_clear_suspects(self) -> bool:
        """Whether trials are recorded as suspects, although the job is being cancelled."""
        return bool(self._suspects) and self.stop_condition.request.has_copies

    def _clear_suspects(self) -> None:
        """Corrects the record of trials that may have killed the search, once it is clear that the job is cancelled."""
        if self._must_clear_suspects():
            with suppress(StoreNotReadyError):  # not worth an error: the next call tries again
                self.state.mark_lost(self._suspects)
                self._suspects = []

    def _start_no_more(self, end: SearchEnd) -> None:
        """Starts no more trials. If a running trial then reaches the target, this becomes the reason."""
        if self._end is None:
            self.progress.note(f"no more trials start: {end.why}")
        if self._end is None or end.kind == "target":
            self._end = end

    def _stop_running(self) -> None:
        """Asks the running trials to end at the next opportunity."""
        for running in self.queue.running.values():
            self._stop_trial(running)

    def _stop_trial(self, running: Attempt) -> None:
        """Asks the first rank of each fold group, which decides whether its fold continues, to stop a trial."""
        for rank in self.pool.fold_leaders(running.block, self.settings.n_folds):
            self.link.send(rank, Stop(running.number))

    def _note_edits(self) -> None:
        """Records, once per file, that a file of the user has been edited since the start of the search."""
        if edited := self._watch.edited():
            files = ", ".join(edited)
            self._event(CODE_CHANGED, f"{files}: edited during this search; the next search runs the new code")

    def _report_strategy(self) -> None:
        """Reports exceptions that the strategy has survived, and what it has chosen to do."""
        if choice := self.state.new_choice():
            self._event(STRATEGY_CHOSEN, choice)
        for problem in self.state.problems():
            self._event(STRATEGY_FAILED, problem)

    def _event(self, kind: str, detail: str) -> None:
        first_line, _, _ = detail.partition("\n")
        self.progress.note(f"{kind.replace('_', ' ')}: {first_line}")
        self.state.event(kind, detail)
