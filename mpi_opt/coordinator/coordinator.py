"""Rank 0 of a search: asks the strategy, assigns trials to blocks, and records their outcomes.

`StudyState` connects the strategy with the store; this module connects both with the blocks. `Recovery` decides what
becomes of trials whose block fails, and `SearchEnding` when the search is over. An outcome is committed before its
block receives the next trial. Figures of merit are in the user's direction; only strategies receive values to
minimise.
"""

from __future__ import annotations

from mpi_learn.job.exit_status import FAILED, UNFINISHED
from mpi_opt.coordinator.blocks.block_pool import TICK_S, BlockPool
from mpi_opt.coordinator.code_watch import CodeWatch
from mpi_opt.coordinator.recovery import Recovery
from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.coordinator.search_ending import NO_TRIALS_LEFT, SearchEnd, SearchEnding
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.study_state import StudyState
from mpi_opt.coordinator.trials.trial_queue import TrialQueue
from mpi_opt.coordinator.widths import Widths
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.counted import counted
from mpi_opt.core.limits import MAX_CRASHES, MAX_CRASHES_PROTECTED
from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.errors import SearchFailed, StoreError
from mpi_opt.messages.messages import (
    Abandoned,
    Alive,
    Assignment,
    Broken,
    LeftBlock,
    Lost,
    Ready,
    Report,
    ToCoordinator,
    TrialProgress,
)
from mpi_opt.store.errors import StudyOwnedError
from mpi_opt.store.events import CODE_CHANGED, STRATEGY_CHOSEN, STRATEGY_FAILED, STUDY_RESUMED, TRIAL_CONTINUED
from mpi_opt.store.store import Store
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.study.reading import EXTERNAL_BLOCK


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
        self.recovery = Recovery(pool, self.queue, self.state, settings)
        self.ending = SearchEnding(pool, self.queue, self.state, settings)
        self.widths = Widths(pool, self.queue, self.state, settings)
        self._is_hesitation_noted = self._is_repetition_noted = False
        self._notes: list[str] = []  # of the objective: each block sends them
        self._watch = CodeWatch(settings.code)

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
            if not self.ending.is_over():
                self.pool.assemble(self.settings.code)
                self.settings.load_library()  # meanwhile, the blocks load theirs
            while not self.ending.is_over():
                for rank, message in self.pool.receive(TICK_S, self.ending.is_interrupted):
                    self._handle(rank, message)
                self.recovery.give_up_silent()  # after the messages, which may be signs of life
                self._note_edits()
                for sentence in self.state.follow_hints():
                    self.progress.note(sentence)
                for record in self.state.changed_external():
                    self._handle_external(record)
                self.recovery.give_up_unanswering()
                self.ending.stop_if_due()
                self.ending.stop_without_ranks()
                self.settings.check_lease()
                self.ending.clear_suspects()
                self._advance()
                self.widths.change()  # after new trials have taken the ranks that they can use
                self._report_strategy()
                self.progress.tick()
            self._report_strategy()
            self.ending.conclude()
            self.ending.await_verdict_on_suspects()
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
        survives_trials = self.link.is_protected and not self.link.shares_process
        max_crashes = MAX_CRASHES_PROTECTED if survives_trials else MAX_CRASHES
        if past := self.state.resume(max_crashes):
            self.progress.resumed(past.ended)
            if self.settings.kept_models is not None:
                ended = [Attempt(one.proposal, one.attempts, outcome=one.outcome) for one in past.ended]
                for problem in self.settings.kept_models.resume(ended):
                    self.progress.note(problem)
            if self.ending.resume(past):
                self.state.announce(STUDY_RESUMED, str(past))

    def _handle(self, rank: int, message: ToCoordinator) -> None:
        # A message may be older than what rank 0 has decided since, for example of a block that was given up. The owner
        # of the state compares it with the present state, and ignores it if it does not fit.
        match message:
            case Outcome():
                self._handle_outcome(rank, message)
            case Report():
                self._handle_report(rank, message)
            case TrialProgress():
                self.widths.hear(rank, message)
            case Ready():
                if self.pool.mark_ready(message):
                    self.progress.ready(message.block)
                    if message.choice is not None and self.pool.choice is None:
                        self.pool.choose(message.choice)
                        self.state.choose(message.choice)
                for note in message.notes:
                    if note not in self._notes:
                        self._notes.append(note)
                        self.progress.note(f"note: {note}")
            case LeftBlock():
                self.pool.mark_left(rank)
            case Abandoned():
                self.queue.expect_end_soon(message.block, message.number, message.error, self.pool.now_s)
            case Broken():
                self.recovery.handle_broken(message)
            case Alive():
                self.recovery.hear(rank)
            case Lost():
                self.recovery.handle_losses(message.ranks)

    def _handle_outcome(self, rank: int, outcome: Outcome) -> None:
        running = self.queue.running.get(outcome.number)
        if running is None or rank != self.pool.ranks(running.block)[0]:
            return  # the block was given up; the trial runs again or has failed
        if outcome.state != "complete" and (why := self.stop_condition.reason):  # the stop may have caused the failure
            self.recovery.requeue(running, f"the search ended: {why}")
            return
        if outcome.host_fault:
            self.recovery.handle_host_fault(running, outcome)
            return
        if outcome.is_consequence:  # no rank of the block knows a cause, and none is reported as lost
            self.recovery.handle_consequence(running, outcome)
            return
        if outcome.state == "queued":
            self.widths.leave(running)
            return
        self.widths.forget(running.number)
        self.queue.end(running, outcome)
        if outcome.state != "failed":
            self.recovery.note_success()

    def _handle_report(self, rank: int, report: Report) -> None:
        """Passes an intermediate value to the strategy, and stops the trial if the strategy prunes it."""
        running = self.queue.running.get(report.number)
        leaders = [] if running is None else self.pool.first_ranks_of_folds(running.block, self.settings.n_folds)
        if running is None or rank not in leaders:
            return  # the block was given up; the trial runs again or has failed
        self.widths.note_value(running, report.value)
        if self.state.prunes(running, report, len(leaders)):
            self.pool.stop(running, self.settings.n_folds)
        if self.state.has_repeated_step and not self._is_repetition_noted:
            self._is_repetition_noted = True
            what = f"trial {running.number} has reported step {report.step} several times, and the first value counts"
            self.progress.note(f"{what}: call trial.report(step, value) with another step each time")

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
        ended_elsewhere = self.state.record(to_record, started) if to_record or started else None
        self._show(ended)
        if ended_elsewhere is None:
            self._send(started)
        else:
            self._handle_conflict(started, ended_elsewhere)
        if is_hopeless:
            failures, n_ended = self.state.failures, len(self.state.ended)
            has_more = n_ended > failures.n  # of earlier searches
            which = f"none of the {n_ended} trials of the study succeeded" if has_more else str(failures)
            raise SearchFailed(f"{which}{'; the last one' if n_ended > 1 else ''}:\n{ended[-1].result.error}")

    def _learn(self, attempt: Attempt) -> None:
        """Passes an outcome to the strategy, and makes the block of the trial idle."""
        self._tell(attempt.proposal, attempt.result)
        if not attempt.is_held:  # a held trial has left its block, which may have another one by now
            self.recovery.free_block(attempt.block, attempt.result)

    def _show(self, ended: list[Attempt]) -> None:
        """Shows trials whose outcomes are committed, and removes the models and checkpoints that are not needed."""
        if not ended:
            return
        for attempt in ended:
            block = EXTERNAL_BLOCK if attempt.is_held else attempt.block
            self.progress.finished(block, attempt.result, attempt.proposal)
        if self.settings.kept_models is not None:
            for problem in self.settings.kept_models.take(ended):
                self.progress.note(problem)
        if obsolete := self.state.obsolete(ended):
            self.settings.discard(self.settings.study, obsolete)

    def _tell(self, proposal: Proposal, outcome: Outcome) -> None:
        self.state.tell(proposal, outcome)
        if self.limits.reaches_target(outcome):
            self.ending.start_no_more(SearchEnd("target", f"trial {proposal.number} reached the target"))
            self.ending.stop_running()

    def _chosen(self) -> list[Attempt]:
        """The trials to start, as many as there are idle blocks, each with its block."""
        if not self.ending.may_start_trials:
            return []
        # first those that continue: no other trial may begin on the ranks that keep their last epoch
        pool = self.pool
        chosen = self.queue.take_continuing(len(pool.idle), lambda one: not pool.are_moving(one.holders))
        if not chosen:
            self.widths.divide_idle()
            chosen = self._new_trials() if pool.idle else []
            self.widths.note_started(len(chosen))
        for attempt in chosen:
            pool.assign(attempt, self.limits.timeout_s)
        return chosen

    def _new_trials(self) -> list[Attempt]:
        """The trials to start on the idle blocks, besides those that continue."""
        if self.queue.continuing and not self.stop_condition.has_time_for_one():
            return []  # they need less time than a new trial, and the search does not end before them
        if not self.stop_condition.has_time_for_one():
            self.ending.start_no_more(SearchEnd("stopped", "another trial would likely end after the time limit"))
        elif not self.state.may_start_another(self.pool.now_s):
            if not self._is_hesitation_noted:
                n, n_running = self.state.failures.n, len(self.queue.running)
                self.progress.note(
                    f"{n} trials have failed and none has succeeded: {n_running} running ones are awaited"
                )
            self._is_hesitation_noted = True
        elif chosen := self.state.ask(len(self.pool.idle)):
            return chosen
        elif self.queue.waiting:  # for the block of the ranks that keep the last epoch
            return []
        elif self.queue.held and not self.queue.running:  # no other trial will tell whose fault it is
            self.recovery.judge_held()
        elif not self.state.is_waiting_for_results:  # no result can change what the strategy proposes
            self.ending.start_no_more(NO_TRIALS_LEFT)
        return []

    def _send(self, started: list[Attempt]) -> None:
        """Sends trials, which the store has as running, to their blocks."""
        for attempt in started:
            reference, study, seed = self.state.reference(attempt.proposal), self.settings.study, self.settings.seed
            assignment = Assignment(
                attempt.proposal,
                study,
                reference,
                seed,
                attempt.before_s,
                attempt=attempt.attempt,
                choice=self.pool.choice,
            )
            ranks = self.pool.ranks(attempt.block)
            self.link.send(ranks[0], assignment)
            self.progress.started(attempt.block, attempt.number)
            if set(attempt.holders).intersection(ranks):
                on = f"{counted(len(ranks), 'rank')} ({attempt.ranks})"
                self.state.announce(TRIAL_CONTINUED, f"trial {attempt.number} continues from its last epoch on {on}")

    def _handle_conflict(self, started: list[Attempt], ended: list[TrialRecord]) -> None:
        """Handles trials of a workload system that have kept others from starting, and those that it has `ended`."""
        for attempt in started:
            self.pool.rest(attempt.block)
        for record in ended:
            self.progress.finished(EXTERNAL_BLOCK, record.outcome, record.proposal)
        self.ending.stop_if_reached(self.state.past, "a trial of a workload system reached the target")

    def _handle_external(self, record: TrialRecord) -> None:
        """Handles a trial of a workload system that has ended, or was given back and must run again."""
        if record.state == "queued":
            self.queue.put_back(Attempt(record.proposal, record.attempts))
            return
        self._tell(record.proposal, record.outcome)
        self.progress.finished(EXTERNAL_BLOCK, record.outcome, record.proposal)

    def _note_edits(self) -> None:
        """Records, once per file, that a file of the user has been edited since the start of the search."""
        if edited := self._watch.edited():
            files = ", ".join(edited)
            self.state.announce(CODE_CHANGED, f"{files}: edited during this search; the next search runs the new code")

    def _report_strategy(self) -> None:
        """Reports exceptions that the strategy has survived, and what it has chosen to do."""
        if choice := self.state.new_strategy_choice():
            self.state.announce(STRATEGY_CHOSEN, choice)
        for problem in self.state.problems():
            self.state.announce(STRATEGY_FAILED, problem)
