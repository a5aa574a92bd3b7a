"""The number of ranks of each running trial, with ``blocks.elastic``: idle ranks join trials, and are given back.

A trial leaves its block after an epoch. Its ranks and those that join it form a new block, on which it continues. Where
this pays is decided from the remaining epochs, the measured time of an epoch, the measured cost of a change, and the
speed-up curve of the study.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.study_state import StudyState
from mpi_opt.coordinator.trials.trial_queue import TrialQueue
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.scalability import SpeedUp
from mpi_opt.messages.messages import Leave, TrialProgress

GAIN = 0.03
"""A change must shorten the rest of a trial by this share, besides twice its cost: measured times scatter."""

N_COSTS = 20
"""The expected cost of a change is the mean cost of this number of changes, the latest ones."""


@dataclass
class TrialTimes:
    """The measured times of a trial.

    Attributes:
        attempt: The number of its present attempt.
        first, last: The first and the last epoch of this attempt; None before its end.
        epoch_s: Number of ranks -> seconds per epoch, without the first one of an attempt, which is longer.
        moved_at_s: When the trial left its last block, until the next attempt is measured; None otherwise.
        is_asked: Whether this attempt was asked to leave its block.
        joining: The idle blocks that will then join it.
        cost: Its last intermediate value, to be minimised.
    """

    attempt: int
    first: TrialProgress | None = None
    last: TrialProgress | None = None
    epoch_s: dict[int, float] = field(default_factory=dict)
    moved_at_s: float | None = None
    is_asked: bool = False
    joining: list[int] = field(default_factory=list)
    cost: float = math.inf

    def add(self, progress: TrialProgress, attempt: int, n_ranks: int) -> bool:
        """Takes an epoch into account, but no repeated one; returns whether it is the second one of its attempt."""
        if attempt != self.attempt:
            self.attempt, self.first, self.last, self.is_asked, self.joining = attempt, None, None, False, []
        if self.last is not None and progress.done <= self.last.done:
            return False
        is_second, self.last = self.first is not None and self.first is self.last, progress
        self.first = self.first or progress
        if self.first is not progress:
            n_epochs = progress.done - self.first.done
            self.epoch_s[n_ranks] = max(1e-6, (progress.elapsed_s - self.first.elapsed_s) / n_epochs)
        return is_second


class Widths:
    """Decides which trials leave their blocks, and regroups the ranks.

    Args:
        pool: The blocks.
        queue: The trials.
        state: The study.
        settings: The settings of the search.
    """

    def __init__(self, pool: BlockPool, queue: TrialQueue, state: StudyState, settings: SearchSettings) -> None:
        self.pool, self.queue, self.state = pool, queue, state
        self.settings, self.is_elastic, self.curve = settings, settings.is_elastic, SpeedUp()
        self._trials: dict[int, TrialTimes] = {}
        self._costs_s: deque[float] = deque(maxlen=N_COSTS)
        self._first_cost_s = math.inf
        self._warm: set[int] = set()  # ranks that have led a trial: a process loads libraries in its first one
        self._lacks_ranks = self._is_new = False

    def hear(self, rank: int, progress: TrialProgress) -> None:
        """Takes an epoch of a trial into account."""
        running = self.queue.running.get(progress.number)
        if running is None or rank not in self.pool.first_ranks_of_folds(running.block, self.settings.n_folds):
            return  # the block was given up
        n_ranks, self._is_new = self._useful(len(self.pool.ranks(running.block))), True
        times = self._trials.setdefault(progress.number, TrialTimes(running.attempt))
        if times.add(progress, running.attempt, n_ranks):
            # the cost of a change: the time without a block, and the time by which the first epoch is longer than the
            # second one, because the model is built and compiled again
            moved_s = 0.0 if times.moved_at_s is None else running.started_at_s - times.moved_at_s
            assert times.first is not None, "there are two epochs"
            step_s = progress.elapsed_s - times.first.elapsed_s  # one epoch of one fold
            cost_s = moved_s + max(0.0, times.first.elapsed_s - step_s)
            if rank in self._warm:
                self._costs_s.append(cost_s)
            self._first_cost_s = min(self._first_cost_s, cost_s)
            self._warm.add(rank)
            times.moved_at_s = None
        if progress is times.last and progress is not times.first:
            for other, epoch_s in times.epoch_s.items():
                self.curve.add(other, n_ranks, epoch_s / times.epoch_s[n_ranks])

    def note_value(self, running: Attempt, value: float) -> None:
        """Takes an intermediate value of a trial into account, or of one of its folds."""
        if self.settings.is_by_merit and math.isfinite(value):
            times = self._trials.setdefault(running.number, TrialTimes(running.attempt))
            times.cost = self.settings.limits.figures_of_merit.sign * value

    def note_started(self, n_started: int) -> None:
        """Records how many new trials start on the idle blocks. If all blocks get one, there may be more to start."""
        if n_idle := len(self.pool.idle):
            self._lacks_ranks = n_started == n_idle and self.queue.n_left > 0

    def divide_idle(self) -> None:
        """Divides the idle blocks to which ranks were added, if there are trials that could use their ranks."""
        # without elastic blocks no ranks are added, and thousands of blocks may be idle at the end of a search
        if self.is_elastic and (self.queue.running or self.queue.waiting or self.queue.n_left):
            for block in [one for one in self.pool.idle if self.pool.n_parts(one) > 1]:
                self._regroup([block], divide=True)

    def change(self) -> None:
        """Asks trials to leave their blocks that will continue on another number of ranks."""
        if not (self.is_elastic and self._is_new and self.settings.stop_condition.has_time_for_one()):
            return
        self._is_new = False
        # new trials come first: ranks are given back to them before idle ones are given away
        n_missing = self.queue.n_left + len(self.queue.waiting) if self._needs_ranks else 0
        plan = {} if n_missing else self._plan()
        for running in list(self.queue.running.values()):
            n_parts = self.pool.n_parts(running.block)
            gives_back = n_missing > 0 and n_parts > 1
            if gives_back or running.number in plan or self._is_too_wide(running):
                self._ask(running, plan.get(running.number, []))
            n_missing -= n_parts - 1 if gives_back else 0

    def leave(self, running: Attempt) -> None:
        """Queues a trial again that has left its block, and forms the block on which it continues."""
        block, ranks = running.block, self.pool.ranks(running.block)
        divide = self._needs_ranks or self._is_too_wide(running)
        times = self._trials.setdefault(running.number, TrialTimes(running.attempt))
        expected, times.joining, times.moved_at_s = times.joining, [], self.pool.now_s
        joining = [one for one in expected if one in self.pool.idle and not divide]
        self.state.requeue([running], f"it continues on another number of ranks than {len(ranks)}", "moved")
        self.state.carry_values(running)
        self.settings.progress.requeued(block)
        self.queue.put_back(running, ranks, running.seconds(self.pool.now_s))
        if joining or (divide and self.pool.n_parts(block) > 1):
            self._regroup([block, *joining], divide=divide)
        else:
            self.pool.rest(block)

    def forget(self, number: int) -> None:
        """Forgets a trial that has ended."""
        self._trials.pop(number, None)

    def _regroup(self, blocks: list[int], *, divide: bool) -> None:
        self.pool.regroup(blocks, divide=divide)
        for block in blocks:
            self.settings.progress.dissolved(block)

    def _ask(self, running: Attempt, joining: list[int]) -> None:
        times, remaining_s = self._measured(running), self._remaining_s(running)
        if times is None or times.is_asked or remaining_s is None or remaining_s <= self._cost_s:
            return
        times.is_asked, times.joining = True, joining
        for rank in self.pool.first_ranks_of_folds(running.block, self.settings.n_folds):
            self.pool.link.send(rank, Leave(running.number))

    @property
    def _needs_ranks(self) -> bool:
        """Whether trials could start on the ranks that were added to the blocks of others."""
        return not self.pool.idle and (self._lacks_ranks or any(not one.holders for one in self.queue.waiting))

    @property
    def _cost_s(self) -> float:
        """The expected cost of a change, in seconds: that of the last ones, and of the last starts of trials."""
        return sum(self._costs_s) / len(self._costs_s) if self._costs_s else self._first_cost_s

    def _measured(self, running: Attempt) -> TrialTimes | None:
        """The measured times of a trial; None before the first epoch of its attempt has ended."""
        times = self._trials.get(running.number)
        return times if times is not None and times.attempt == running.attempt else None

    def _remaining_s(self, running: Attempt) -> float | None:
        """The time for the epochs after the present one on the present ranks; None if it is unknown."""
        times = self._measured(running)
        if times is None or times.last is None or times.first is times.last:
            return None
        left = times.last.total - times.last.done - 1
        return left * times.epoch_s[self._useful(len(self.pool.ranks(running.block)))]

    def _pays(self, now_s: float, then_s: float) -> bool:
        """Whether it pays to change a trial such that its rest takes `then_s` instead of `now_s`."""
        return now_s - then_s > 2 * self._cost_s + GAIN * now_s

    def _is_too_wide(self, running: Attempt) -> bool:
        """Whether a trial would end sooner without the ranks that were added to its block."""
        n_ranks, remaining_s = len(self.pool.ranks(running.block)), self._remaining_s(running)
        n_parts = self.pool.n_parts(running.block)
        if n_parts == 1 or remaining_s is None:
            return False
        return self._pays(remaining_s, remaining_s * self._speed_up(n_ranks // n_parts, n_ranks))

    def _plan(self) -> dict[int, list[int]]:
        """The idle blocks that join running trials: number of the trial -> blocks.

        Each idle block joins a trial that ends sooner with it: the one that ends last, or with `merit` the best one.
        """
        measured = filter(None, map(self._measured, self.queue.running.values()))
        taken = {block for times in measured for block in times.joining}
        if not (idle := [block for block in self.pool.idle if block not in taken]):
            return {}
        sizes, remaining_s, last = {}, {}, list[tuple[float, float, int]]()
        for number, running in self.queue.running.items():
            if (rest_s := self._remaining_s(running)) is not None and not self._trials[number].is_asked:
                sizes[number], remaining_s[number] = len(self.pool.ranks(running.block)), rest_s
                last.append((self._merit(number), -rest_s, number))
        heapq.heapify(last)  # the search ends with its last trial, so that one gets ranks first
        plan: dict[int, list[int]] = {}
        wider, then_s = dict(sizes), dict(remaining_s)
        for block in idle:
            while last:  # the first trial that ends sooner with this block gets it
                merit, _, number = last[0]
                n_ranks = wider[number] + len(self.pool.ranks(block))
                ends_s = self._ends_s(number, remaining_s[number], sizes[number], n_ranks)
                if n_ranks <= self._most_ranks(number, sizes[number]) and ends_s < then_s[number]:
                    plan.setdefault(number, []).append(block)
                    wider[number], then_s[number] = n_ranks, ends_s
                    heapq.heapreplace(last, (merit, -ends_s, number))
                    break
                heapq.heappop(last)  # it gains nothing from another block, also from the next ones
        return {number: blocks for number, blocks in plan.items() if self._pays(remaining_s[number], then_s[number])}

    def _merit(self, number: int) -> float:
        """A smaller number for a trial that gets idle ranks before others; 0 for all unless merit counts."""
        return self._trials[number].cost if self.settings.is_by_merit else 0.0

    def _useful(self, n_ranks: int) -> int:
        """The number of ranks that determines the time of a trial: parallel folds wait for the one with the fewest."""
        n_folds = self.settings.n_folds
        return n_ranks if n_ranks < n_folds else n_ranks // n_folds * n_folds

    def _speed_up(self, few: int, many: int) -> float:
        return self.curve.factor(self._useful(few), self._useful(many))

    def _ends_s(self, number: int, rest_s: float, few: int, many: int) -> float:
        """The time for the rest of a trial on `many` ranks, which is `rest_s` on `few`."""
        times, n_folds = self._trials[number], self.settings.n_folds
        if few < n_folds <= many and times.last is not None:
            # folds in turn will run at the same time: one that has not begun has all its epochs left
            left = min(times.last.total, n_folds * (times.last.total - times.last.done))
            rest_s = max(rest_s, left * times.epoch_s[few])
        return rest_s / self._speed_up(few, many)

    def _most_ranks(self, number: int, now: int) -> int:
        progress = self._trials[number].last
        assert progress is not None, "its remaining time is known"
        return min(progress.most_ranks, self.curve.most_ranks(now))
