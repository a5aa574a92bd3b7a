"""Decides about trials whose block, host or rank fails: they run again, perhaps on the remaining ranks, or fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mpi_learn.mpi.host_fault import MEMORY, kind_of_text
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.blocks.faults import CURE, BlockHealth, HostFaults, SilentRanks
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.study_state import StudyState
from mpi_opt.coordinator.trials.trial_queue import TrialQueue
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.trial import Outcome
from mpi_opt.errors import HostFailed
from mpi_opt.messages.messages import Broken
from mpi_opt.store.events import BLOCK_LOST, BLOCK_RETIRED, HOST_FAULT, RANK_LOST, SEARCH_STOPPED


class Recovery:
    """Gives up ranks and blocks that fail, and decides whether their trials run again.

    Args:
        pool: The blocks.
        queue: The trials.
        state: The study.
        settings: The settings of the search.
    """

    def __init__(self, pool: BlockPool, queue: TrialQueue, state: StudyState, settings: SearchSettings) -> None:
        self.pool, self.queue, self.state, self.settings = pool, queue, state, settings
        self.limits, self.progress, self.stop_condition = settings.limits, settings.progress, settings.stop_condition
        self._n_lost_attempts: Counter[int] = Counter()  # trial number -> lost attempts in this search
        self._health = BlockHealth()
        self._silent = SilentRanks(settings.silence_s)
        self._faults = HostFaults()

    def hear(self, rank: int) -> None:
        """Records a sign of life of a rank."""
        self._silent.hear(rank, self.pool.now_s)

    def note_success(self) -> None:
        """Records that a trial has ended without a fault: the hosts work, and held trials get their verdict."""
        if self._faults.kind:
            self._faults.clear()
            self.judge_held()

    def handle_host_fault(self, running: Attempt, outcome: Outcome) -> None:
        """Queues a trial again that has failed because of its host, or holds it while this is uncertain.

        Raises:
            HostFailed: No trial can run.
        """
        faults, block = self._faults, running.block
        faults.add(outcome.host_fault, running.number, block, self.pool.now_s)
        first_line, _, _ = (outcome.error or "").partition("\n")
        reason = f"{outcome.host_fault}: {first_line}"
        # queued in the store while it is held: if the search is killed before the verdict, the next one runs it again
        self.state.requeue([running], reason)
        self.queue.hold(running, outcome)
        self.progress.requeued(block)
        self.free_block(block, outcome, faults.pause_s(block))
        if not faults.are_certain:
            return
        self.queue.put_held_back()
        if faults.is_new(block):
            self.state.announce(HOST_FAULT, f"block {block} waits, and its trial runs again, because of {reason}")
        if faults.must_end(self.pool.membership.blocks, self.pool.now_s):
            why = f"no trial has succeeded for {self.pool.now_s - faults.since_s:.0f} s because of {reason}"
            self.state.event(SEARCH_STOPPED, why)
            raise HostFailed(f"{why}\n  → {CURE}")

    def judge_held(self) -> None:
        """Ends the held trials, whose hosts work: they fail, or run again if the fault may have been a short one."""
        for running in self.queue.take_held():
            self._n_lost_attempts[running.number] += 1
            may_run_again = self._n_lost_attempts[running.number] <= self.limits.retries
            if may_run_again and running.result.host_fault != MEMORY:  # it would probably need as much memory again
                self.queue.put_back(running)
            else:
                self.queue.end(running, running.result)

    def handle_broken(self, broken: Broken) -> None:
        """Gives up a block whose ranks cannot communicate."""
        if broken.block in self.pool:
            self.pool.mark_broken(broken)
            self.state.announce(BLOCK_LOST, f"the ranks of block {broken.block} cannot communicate: {broken.reason}")
            self.give_up(broken.block, "the ranks of its block could not communicate")

    def handle_consequence(self, running: Attempt, outcome: Outcome) -> None:
        """Gives up a block whose trial has failed because its ranks could not communicate, for an unknown reason."""
        first_line, _, _ = (outcome.error or "").partition("\n")
        self.state.announce(BLOCK_LOST, f"the ranks of block {running.block} could not communicate: {first_line}")
        self.give_up(running.block, "the ranks of its block could not communicate")

    def handle_losses(self, ranks: frozenset[int]) -> None:
        """Gives up the blocks of lost ranks."""
        for rank in self.pool.not_yet_lost(ranks):  # ranks that were given up have been reported already
            self.state.announce(RANK_LOST, f"rank {rank}, {self.pool.describe(rank)}")
        for block in self.pool.lose(ranks):
            self.give_up(block, "a rank of its block was lost")

    def give_up_silent(self) -> None:
        """Gives up ranks that give no sign of life: their host may be frozen, or the network cut."""
        silent = self._silent.take(self.pool.now_s)
        new = self.pool.not_yet_lost(frozenset(silent))
        for rank in new:
            why = f"no sign of life for {self._silent.limit_s:g} s (blocks.silence)"
            self.state.announce(RANK_LOST, f"rank {rank}, {self.pool.describe(rank)}: {why}")
        for block in self.pool.lose_silent(set(new)) if new else ():
            self.give_up(block, "a rank of its block gave no sign of life")

    def give_up_unanswering(self) -> None:
        """Gives up ranks that do not leave their block and blocks that do not answer."""
        for rank in sorted(self.pool.give_up_unresponsive()):
            self.state.announce(RANK_LOST, f"rank {rank} did not leave its block")
        for running in self.queue.overdue(self.pool.now_s):
            when = f"in trial {running.number}" if running.error is None else f"after trial {running.number} failed"
            self.state.announce(BLOCK_LOST, f"block {running.block} does not answer {when}")
            self.give_up(running.block, "its block does not answer")

    def free_block(self, block: int, outcome: Outcome, pause_s: float = 0.0) -> None:
        """Makes the block of a trial that has ended idle after a pause, or retires it if too many of them fail."""
        if block not in self.pool:
            return
        if not outcome.host_fault:
            self.stop_condition.add_duration(outcome.duration_s)
        self._health.record(block, outcome.state == "failed")
        # the last block is not retired: the search would end
        if len(self.pool) > 1 and self._health.is_unhealthy(block):
            self.state.announce(BLOCK_RETIRED, f"block {block} failed {self._health.in_a_row(block)} trials in a row")
            self.pool.retire(block)
            self.progress.given_up(block)
        else:
            self.pool.rest(block, pause_s)

    def give_up(self, block: int, why: str) -> None:
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
            self.queue.fail(running, self.pool.now_s, error)
            return
        self._n_lost_attempts[running.number] += 1
        if self._n_lost_attempts[running.number] <= self.limits.retries or self.stop_condition.wait_for_cancellation():
            self.requeue(running, why, survivors if self.settings.continues_on_fewer_ranks else ())
        else:
            attempts = f"attempt {running.attempt} was the last (trial.retries: {self.limits.retries})"
            self.queue.fail(running, self.pool.now_s, f"{why}; {attempts}")

    def requeue(self, running: Attempt, why: str, holders: Sequence[int] = ()) -> None:
        """Puts a trial back, to continue from the ranks `holders` if there are any.

        If no rank is left, its attempt counts as one that has killed the search, unless the job is being cancelled. If
        an epoch is known to have ended, the trial continues, and its timeout includes the time so far. Otherwise it
        probably begins again, with its whole timeout.
        """
        if not running.is_requeued:
            is_suspect = self.pool.is_empty and not self.stop_condition.wait_for_cancellation()
            self.state.requeue([running], why, "killed" if is_suspect else "lost")
        continues = bool(holders) and (running.before_s > 0 or self.state.has_reported(running))
        self.queue.put_back(running, holders, running.seconds(self.pool.now_s) if continues else 0.0)
