"""Faults of blocks, hosts and ranks: which of them cause failed trials, and which ranks give no sign of life.

A full disk is never the fault of a trial. Too little memory or a broken connection may be: of one trial that asks for
too much memory, or of all because another program has taken it. Such a trial is *held*, without a verdict, until
another one succeeds, which shows that the fault is its own, or until several have failed in the same way one after the
other. Trials that have failed because of their hosts are queued again, and their blocks wait for growing times.

MPI reports the death of a process, but not a host that stops answering. A second thread of each worker therefore sends
`Alive` at intervals, also while user code runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mpi_learn.mpi.host_fault import FULL_DISK

FEW = 3
"""This number of different trials that fail in the same way one after the other have failed because of their hosts."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0
"""Time for which a block waits after a trial that has failed because of its host; it is doubled each time."""

PATIENCE_S, DISK_PATIENCE_S = 30.0, 180.0
"""A search ends if no trial succeeds for this time, because of its hosts; on a full disk, the user may make space."""

MIN_FAULTS = 2
"""A search ends only after this number of trials in a row on every block: one may take longer than `PATIENCE_S`."""

CURE = "remove the cause; the same command then continues the study"


class HostFaults:
    """The trials that have failed with the same kind of fault since a trial last succeeded.

    Attributes:
        kind: The kind of fault; empty if the last trial that ended was not affected.
        since_s: When the first of them ended, in seconds.
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, int]] = set()
        self.clear()

    def clear(self) -> None:
        """Records that a trial has succeeded: the hosts work."""
        self.kind, self.since_s = "", 0.0
        self._numbers: set[int] = set()
        self._n_by_block: Counter[int] = Counter()

    def add(self, kind: str, number: int, block: int, now_s: float) -> None:
        """Records a trial that has failed with a fault of its host."""
        if kind != self.kind:
            self.clear()
            self.kind, self.since_s = kind, now_s
        self._numbers.add(number)
        self._n_by_block[block] += 1

    @property
    def are_certain(self) -> bool:
        """Whether the hosts are the reason, and not the trials."""
        return self.kind == FULL_DISK or len(self._numbers) >= FEW

    def is_new(self, block: int) -> bool:
        """Whether this kind of fault is new on a block, and worth a message. True once."""
        is_new = (self.kind, block) not in self._known
        self._known.add((self.kind, block))
        return is_new

    def pause_s(self, block: int) -> float:
        """How long a block waits before its next trial, in seconds; 0 as long as it may run another trial."""
        if not self.are_certain:
            return 0.0
        return float(min(FIRST_PAUSE_S * 2 ** (self._n_by_block[block] - 1), LONGEST_PAUSE_S))

    def must_end(self, blocks: Iterable[int], now_s: float) -> bool:
        """Whether the search ends: no block of `blocks` has run a trial successfully for a long time."""
        patience_s = DISK_PATIENCE_S if self.kind == FULL_DISK else PATIENCE_S
        all_failed = all(self._n_by_block[block] >= MIN_FAULTS for block in blocks)
        return self.are_certain and all_failed and now_s - self.since_s >= patience_s


MIN_FAILURES = 5
"""Fewest consecutive failed trials after which a block is retired, if trials rarely fail on other blocks."""

UNLIKELY = 1e-6
"""A block is retired if its consecutive failures are less probable than this at the failure rate of the others."""


class BlockHealth:
    """Counts failed trials by block."""

    def __init__(self) -> None:
        self._ended: Counter[int] = Counter()
        self._failed: Counter[int] = Counter()
        self._in_a_row: Counter[int] = Counter()

    def record(self, block: int, has_failed: bool) -> None:
        """Records that a trial ended on this block."""
        self._ended[block] += 1
        self._failed[block] += has_failed
        self._in_a_row[block] = self._in_a_row[block] + 1 if has_failed else 0

    def in_a_row(self, block: int) -> int:
        """Number of consecutive failed trials on this block."""
        return self._in_a_row[block]

    def is_unhealthy(self, block: int) -> bool:
        """Whether the block's consecutive failures are very improbable at the failure rate of the other blocks."""
        if (n_in_a_row := self._in_a_row[block]) < MIN_FAILURES:
            return False
        n_ended = self._ended.total() - self._ended[block]
        n_failed = self._failed.total() - self._failed[block]
        rate = (n_failed + 1) / (n_ended + 2)  # Laplace's rule of succession
        return n_failed < n_ended and rate**n_in_a_row < UNLIKELY


CHECKS = 8
"""The ranks are checked this number of times per time limit."""


class SilentRanks:
    """When each rank was last heard. Times are those of the clock of the pool, which does not run while rank 0 is busy.

    Args:
        limit_s: Time without an `Alive` after which a rank is silent, in seconds; None for no limit.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s
        self._heard_s: dict[int, float] = {}
        self._next_check_s = 0.0

    def hear(self, rank: int, now_s: float) -> None:
        """Records a sign of life. Ranks that have never given one are not judged: they may have no second thread."""
        self._heard_s[rank] = now_s

    def take(self, now_s: float) -> set[int]:
        """The ranks that have become silent since the last call; they are not judged again before they are heard."""
        if self.limit_s is None or now_s < self._next_check_s:
            return set()
        self._next_check_s = now_s + self.limit_s / CHECKS
        silent = {rank for rank, heard_s in self._heard_s.items() if now_s - heard_s > self.limit_s}
        for rank in silent:
            del self._heard_s[rank]
        return silent
