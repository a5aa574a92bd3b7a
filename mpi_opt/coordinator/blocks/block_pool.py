"""The pool of blocks: forms them, disbands them when a rank is lost, and recreates them from the surviving ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from mpi_learn.mpi.host_fault import FULL_DISK
from mpi_learn.settings.user_files import SourceCode
from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.faults import CURE
from mpi_opt.coordinator.blocks.listening_clock import ListeningClock
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.block_layout import BlockLayout, even_parts, fold_groups
from mpi_opt.core.objective import Choice
from mpi_opt.errors import HostFailed
from mpi_opt.messages.messages import (
    Broken,
    CoordinatorLink,
    Disband,
    Dismissal,
    EndProcess,
    Join,
    LeftBlock,
    Lost,
    Ready,
    Stop,
    ToCoordinator,
)

TICK_S = 0.1
"""The longest wait for messages between two rounds of the search loop, in seconds."""

TIMEOUT_SLACK_S = 20.0
"""Time after ``trial.timeout`` at which a block is given up, in seconds. Its watchdogs should have acted by then."""

PARTING_S = 2.0
"""The longest wait at the end of the search for ranks that enter or leave a block, in seconds."""

FORMING_ATTEMPTS = 3
"""A rank is retired after this number of consecutive blocks that could not be formed with it."""


class BlockPool:
    """The blocks and the spare ranks: all ranks except the coordinator's.

    Attributes:
        idle: Blocks without a trial; the one that has waited longest comes first. Only this class changes it.
        choice: See `Assignment`; new blocks receive it, too.
    """

    def __init__(self, link: CoordinatorLink, membership: BlockMembership) -> None:
        self.link, self.membership = link, membership
        self.idle: list[int] = []
        self._clock = ListeningClock()
        self._hosts: dict[int, str] = {}
        self._preparing: set[int] = set()  # the blocks that were formed and are not ready
        self._n_failed_formations: Counter[int] = Counter()
        self._last_mpi_error = ""
        self._barred: set[int] = set()  # the ranks of retired blocks
        self._disbanded_at_s: dict[int, float] = {}
        self._is_assembled = self._is_dismissed = self._has_been_silent = False
        self._resting: dict[int, float] = {}
        self._code: SourceCode | None = None
        self.choice: Choice | None = None

    def __len__(self) -> int:
        return len(self.membership.blocks)

    def __contains__(self, block: int) -> bool:
        return block in self.membership.blocks

    @property
    def now_s(self) -> float:
        """The time in which messages could arrive, in seconds since the creation of the pool."""
        return self._clock.now_s

    def receive(
        self, timeout_s: float, is_interrupted: Callable[[], bool] = lambda: False
    ) -> list[tuple[int, ToCoordinator]]:
        """Waits for messages, as `CoordinatorLink.receive` does."""
        self._clock.count()
        try:
            messages = self.link.receive(timeout_s, is_interrupted)
        finally:
            self._clock.count()
        # all at once: if one of them ends the search with an error, those that follow are not handled, and a block that
        # seems to prepare its objective would be awaited and then killed
        self._preparing.difference_update(message.block for _, message in messages if isinstance(message, Ready))
        return messages

    @property
    def is_empty(self) -> bool:
        """Whether no rank can run a trial, now or later."""
        return self.membership.is_empty

    def ranks(self, block: int) -> tuple[int, ...]:
        """The world ranks of a block, the leader first."""
        return self.membership.blocks[block]

    def first_ranks_of_folds(self, block: int, n_folds: int) -> list[int]:
        """The world rank of the first rank of each fold group of a block."""
        ranks = self.ranks(block)
        return [ranks[group[0]] for group in fold_groups(len(ranks), n_folds)]

    def stop(self, running: Attempt, n_folds: int) -> None:
        """Asks the first rank of each fold group, which decides whether its fold continues, to stop a trial."""
        for rank in self.first_ranks_of_folds(running.block, n_folds):
            self.link.send(rank, Stop(running.number))

    def describe(self, rank: int) -> str:
        """The role of a rank as text."""
        block = self.membership.block_of(rank)
        return "a spare rank" if block is None else f"of block {block} on {self._hosts.get(block) or 'its host'}"

    def are_moving(self, ranks: Iterable[int]) -> bool:
        """Whether some of these ranks are about to be in an idle block."""
        return any(
            self.membership.is_moving(rank) or self.membership.block_of(rank) in self._preparing for rank in ranks
        )

    def assign(self, attempt: Attempt, timeout_s: float | None) -> None:
        """Takes an idle block for a trial, which starts now: one from which it continues, or the longest idle one."""
        holders, now_s = set(attempt.holders), self.now_s
        block = self.idle[0]
        if holders:  # otherwise no block needs to be searched for, which takes long with thousands of idle ones
            block = next((one for one in self.idle if holders.intersection(self.ranks(one))), block)
            if not holders.intersection(self.ranks(block)):  # it begins again
                attempt.before_s = 0.0
        self.idle.remove(block)
        attempt.block, attempt.ranks, attempt.hosts = block, ",".join(map(str, self.ranks(block))), self._hosts[block]
        attempt.started_at_s = now_s
        attempt.due_s = now_s + (timeout_s or math.inf) + TIMEOUT_SLACK_S - attempt.before_s

    def assemble(self, code: SourceCode | None = None) -> None:
        """Forms the first blocks of the search, whose ranks run the user's files in `code`. Later calls do nothing."""
        if self._is_assembled:
            return
        self._code, self._is_assembled = code, True
        for block in self.membership.blocks:
            self._join(block)

    def choose(self, choice: Choice) -> None:
        """Sets `choice`, which new blocks then need not measure."""
        self.choice = choice

    def mark_ready(self, ready: Ready) -> bool:
        """Records that a block is ready; returns whether it still exists.

        Raises:
            UserError: The preparation of its objective has failed because of invalid input.
            TrainingError: The preparation has failed with an unexpected error.
            HostFailed: It has failed because of a full disk, or another fault of its hosts after blocks had been ready.
        """
        self._preparing.discard(ready.block)
        if ready.error is not None:
            if ready.error.host_fault == FULL_DISK or (ready.error.host_fault and self.has_been_ready):
                raise HostFailed(f"a block cannot prepare for trials: {ready.error}\n  → {CURE}") from ready.error
            raise ready.error
        if ready.block not in self:
            return False
        self._hosts[ready.block] = ready.hosts
        for rank in self.ranks(ready.block):  # only failures in a row count
            del self._n_failed_formations[rank]
        self.idle.append(ready.block)
        return True

    def rest(self, block: int, pause_s: float = 0.0) -> None:
        """Makes a block idle, after a pause in seconds."""
        if pause_s > 0:
            self._resting[block] = self.now_s + pause_s
        else:
            self.idle.append(block)

    def wake(self) -> None:
        """Makes the blocks idle whose pause is over."""
        for block in [one for one, until_s in self._resting.items() if until_s <= self.now_s]:
            del self._resting[block]
            self.idle.append(block)

    def mark_broken(self, broken: Broken) -> None:
        """Records that communication in a block has failed, before it is disbanded."""
        if broken.block in self._preparing:  # the block could not be formed
            self._last_mpi_error = broken.reason
            self._n_failed_formations.update(self.ranks(broken.block))

    @property
    def has_been_ready(self) -> bool:
        """Whether any block has been ready for trials."""
        return bool(self._hosts)

    @property
    def may_work_later(self) -> bool:
        """Whether a new start may help if no rank is left: blocks have been ready, or ranks were only silent."""
        return self.has_been_ready or self._has_been_silent

    @property
    def why_empty(self) -> str:
        """The reason why no rank can run a trial."""
        if self.membership.retired and self._last_mpi_error:
            return f"no block of ranks could be formed; MPI says: {self._last_mpi_error}"
        if not self.may_work_later:
            return "every rank was lost before its first trial, while it loaded its data or model (out of memory?)"
        return "every rank that could run a trial was lost"

    def not_yet_lost(self, ranks: frozenset[int]) -> list[int]:
        """Those of `ranks` that are not recorded as lost, ascending."""
        return sorted(ranks - self.membership.lost)

    def lose(self, ranks: frozenset[int]) -> list[int]:
        """Records lost ranks; returns their blocks, which must be disbanded."""
        blocks = self.membership.lose(ranks)
        self._form()  # the spare ranks may have waited for a rank that was leaving its block
        return blocks

    def lose_silent(self, ranks: set[int]) -> list[int]:
        """Records ranks as lost that may still exist, and asks them to end; returns their blocks, see `lose`."""
        self._has_been_silent = True
        for rank in ranks:
            self.link.send(rank, EndProcess())
        return self.lose(frozenset(ranks))

    def disband(self, block: int) -> list[int]:
        """Disbands a block; returns its live ranks, which send `LeftBlock` when they have left it."""
        survivors = self.membership.disband(block)
        self._disbanded_at_s |= dict.fromkeys(survivors, self.now_s)
        self._forget(block)
        for rank in survivors:
            self.link.send(rank, Disband(block))
        self._form()  # spare ranks may be enough for a block without these survivors
        return survivors

    def n_parts(self, block: int) -> int:
        """Number of complete blocks into which the ranks of a block can be divided; 1 unless ranks were added to it."""
        return max(1, len(self.ranks(block)) // self.membership.block_size)

    def regroup(self, blocks: Collection[int], *, divide: bool = False) -> None:
        """Makes one block of several, or with `divide` complete blocks of a single one. None of them runs a trial."""
        ranks = sorted(rank for block in blocks for rank in self.ranks(block))
        parts = even_parts(len(ranks), self.n_parts(*blocks) if divide else 1)
        of_ranks = {rank: block for block in blocks for rank in self.ranks(block)}
        self.membership.regroup(blocks, [ranks[part.start : part.stop] for part in parts])
        self._let_leave(of_ranks)

    def rearrange(self, layout: BlockLayout) -> None:
        """Makes the blocks of `layout` of all ranks. Trials that run are interrupted."""
        if not self._is_assembled:
            old = self.membership
            self.membership = BlockMembership.of(layout, old.indices, may_shrink=old.may_shrink)
            return
        of_ranks = {rank: block for block, ranks in self.membership.blocks.items() for rank in ranks}
        self.membership.rearrange(layout)
        self._let_leave(of_ranks)

    def _let_leave(self, of_ranks: Mapping[int, int]) -> None:
        """Asks ranks to leave their blocks. `of_ranks` is rank -> block."""
        self._disbanded_at_s |= dict.fromkeys(of_ranks, self.now_s)
        for block in set(of_ranks.values()):
            self._forget(block)
        for rank, block in of_ranks.items():
            self.link.send(rank, Disband(block))

    @property
    def is_settled(self) -> bool:
        """Whether all blocks are formed and ready, and no rank is leaving its block."""
        return not (self.membership.leaving or self._preparing)

    def retire(self, block: int) -> None:
        """Disbands a block on which trials fail, and ends the processes of its ranks.

        Without protection that would end the job: its ranks leave the block and join no other.
        """
        if not self.link.is_protected:
            self._barred.update(self.ranks(block))
            self.disband(block)
            return
        survivors = self.membership.disband(block)
        self._forget(block)
        self.membership.lose(survivors)
        for rank in survivors:
            self.link.send(rank, EndProcess())
        self._form()

    def mark_left(self, rank: int) -> None:
        """Records that a rank has left its block. It joins another unless it is retired."""
        self.membership.leave(rank)
        if rank in self._barred or self._n_failed_formations[rank] >= FORMING_ATTEMPTS:
            self.membership.retire(rank)
        self._form()

    def give_up_unresponsive(self) -> set[int]:
        """Gives up ranks that do not leave their disbanded block in time; returns them."""
        if not self.membership.leaving:
            return set()
        limit_s = self.now_s - self.link.leave_s
        gone = {rank for rank in self.membership.leaving if self._disbanded_at_s[rank] <= limit_s}
        if gone:
            # with protection their processes end; otherwise they may still answer when their user code returns
            self.membership.give_up(gone, may_return=not self.link.is_protected)
            for rank in gone:
                self.link.send(rank, EndProcess())
            self._form()
        return gone

    def dismiss(self, busy: Collection[int] = ()) -> None:
        """Dismisses all ranks, once. Ranks that run a trial or do not answer must end their processes.

        So must ranks that still prepare their objective, unless the program continues after the search.

        Args:
            busy: The blocks that run a trial.
        """
        if self._is_dismissed:
            return
        self._is_dismissed = True
        self._await_moving()
        blocks = set(busy) if self.link.processes_continue else self._preparing.union(busy)
        occupied = {rank for block in blocks if block in self for rank in self.ranks(block)} | self.membership.leaving
        for rank in self.membership.ranks:
            if rank in occupied:
                self.link.send(rank, EndProcess())
            else:
                self.link.send(rank, Dismissal())

    def _await_moving(self) -> None:
        """Waits at most `PARTING_S` for ranks that leave their block, and for blocks that prepare their objective."""
        until_s = self.now_s + PARTING_S
        while (self.membership.leaving or self._preparing) and self.now_s < until_s:
            for rank, message in self.receive(TICK_S):
                match message:  # all others concern trials, of which none is wanted any more
                    case LeftBlock():
                        self.membership.leave(rank)
                    case Ready():
                        self._preparing.discard(message.block)
                    case Lost():
                        self.membership.lose(message.ranks)

    def _forget(self, block: int) -> None:
        self._preparing.discard(block)
        self._resting.pop(block, None)
        if block in self.idle:
            self.idle.remove(block)

    def _form(self) -> None:
        for block in self.membership.form():
            self._join(block)

    def _join(self, block: int) -> None:
        ranks = self.ranks(block)
        self._preparing.add(block)
        for rank in ranks:
            self.link.send(rank, Join(block, ranks, self._code, self.choice))
