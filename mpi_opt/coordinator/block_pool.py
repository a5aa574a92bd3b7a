"""The blocks as the coordinator sees them: formed, free or busy, disbanded when a rank is lost, formed anew."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from mpi_opt.coordinator.block_membership import BlockMembership
from mpi_opt.coordinator.trial_queue import Running
from mpi_opt.core.block_layout import fold_groups
from mpi_opt.messages.link import CoordinatorLink
from mpi_opt.messages.messages import Broken, Disband, Dismissal, End, Freed, Join, Lost, Ready, ToCoordinator
from mpi_opt.store.records import Start

TICK_S = 0.1
"""The longest wait for messages before other duties, in seconds."""

AWAY_S = 1.0
"""The pool's clock goes on for so long, in seconds, when nobody listens any more; then it stands still."""


PARTING_S = 2.0
"""How long the end of the search waits for ranks that are leaving their block, in seconds."""

FORMING_ATTEMPTS = 3
"""A rank retires after this number of blocks in a row that could not be formed with it."""


class BlockPool:
    """All ranks but the coordinator's.

    Args:
        link: The way to them.
        membership: Which of them form which blocks.

    Attributes:
        free: Blocks that wait for a trial, longest first.
    """

    def __init__(self, link: CoordinatorLink, membership: BlockMembership) -> None:
        self.link, self.membership = link, membership
        self.free: list[int] = []
        self._hosts: dict[int, str] = {}
        self._failures: Counter[int] = Counter()
        self._failure = ""
        self._heard_at, self._listened_s = time.monotonic(), 0.0
        self._disbanded_at = 0.0
        self._is_dismissed = False

    def __len__(self) -> int:
        return len(self.membership.blocks)

    def __contains__(self, block: int) -> bool:
        return block in self.membership.blocks

    @property
    def now_s(self) -> float:
        """Seconds of a clock that stands still while nobody listens: who is not heard meanwhile is not late for it."""
        return self._listened_s + min(time.monotonic() - self._heard_at, AWAY_S)

    def hear(self, timeout_s: float) -> list[tuple[int, ToCoordinator]]:
        """All that has come, with the world rank that sent it; waits for the first of it, at most `timeout_s`."""
        self._listened_s, began = self.now_s, time.monotonic()
        messages = self.link.receive(timeout_s)
        self._heard_at = time.monotonic()
        self._listened_s += self._heard_at - began
        return messages

    @property
    def is_empty(self) -> bool:
        """Whether no rank is left that could run a trial, now or soon."""
        return self.membership.is_empty

    def ranks(self, block: int) -> tuple[int, ...]:
        """The world ranks of a block, the leader first."""
        return self.membership.blocks[block]

    def hosts(self, block: int) -> str:
        """The hosts of a block, separated by commas."""
        return self._hosts.get(block, "")

    def n_groups(self, block: int, folds: int) -> int:
        """Into how many groups of ranks, each with a fold of its own, a block is cut."""
        return len(fold_groups(len(self.ranks(block)), folds))

    def part_of(self, rank: int) -> str:
        """What a rank is, in words."""
        block = self.membership.block_of(rank)
        return "a spare rank" if block is None else f"of block {block} on {self.hosts(block) or 'its host'}"

    def start_of(self, running: Running) -> Start:
        """What the store wants to know of a trial that is about to begin on its block."""
        proposal = running.proposal
        return Start(
            number=proposal.number,
            parameters=proposal.parameters,
            attempt=running.attempt,
            block=running.block,
            ranks=",".join(map(str, self.ranks(running.block))),
            hosts=self.hosts(running.block),
            budget=proposal.budget,
            resume_from=proposal.resume_from,
        )

    def assemble(self) -> None:
        """Forms the blocks of the beginning."""
        for block in self.membership.blocks:
            self._join(block)

    def take_ready(self, ready: Ready) -> bool:
        """Takes a block's word that it is ready; returns whether it still exists.

        Raises:
            UserError: It is not, and the user must mend something.
            TrainingError: It is not, because of what nobody foresaw.
        """
        if ready.error is not None:
            raise ready.error
        if ready.block not in self:
            return False
        self._hosts[ready.block] = ready.hosts
        for rank in self.ranks(ready.block):
            del self._failures[rank]
        self.free.append(ready.block)
        return True

    def take_broken(self, broken: Broken) -> None:
        """Learns that a communication in a block failed, before it is disbanded."""
        if broken.block not in self._hosts:  # it was not ready yet
            self._failure = broken.reason
            self._failures.update(self.ranks(broken.block))

    @property
    def why_empty(self) -> str:
        """Why no rank is left."""
        if self.membership.retired:
            return f"no block of ranks could be formed; MPI says: {self._failure}"
        return "every rank that could run a trial was lost; the same command goes on from here"

    def lose(self, ranks: frozenset[int]) -> list[int]:
        """Takes deaths into account; returns the blocks that must be disbanded for it."""
        return self.membership.lose(ranks)

    def disband(self, block: int) -> None:
        """Ends a block; its surviving ranks will say when they have left it."""
        survivors = self.membership.disband(block)
        self._forget(block)
        for rank in survivors:
            self.link.call(rank, Disband(block))
        self._form()

    def dissolve(self, block: int) -> None:
        """Ends a block, and its ranks with it: they are not to be trusted."""
        survivors = self.membership.disband(block)
        self._forget(block)
        self.membership.lose(survivors)
        for rank in survivors:
            self.link.call(rank, End())
        self._form()

    def take_freed(self, rank: int) -> None:
        """A rank has left its block: it can join another, unless it has failed to do so again and again."""
        self.membership.free(rank)
        if self._failures[rank] >= FORMING_ATTEMPTS:
            self.membership.retire(rank)
        self._form()

    def watch(self) -> set[int]:
        """Gives up ranks that were told to leave their block and do not answer; returns them."""
        if not self.membership.leaving or self.now_s - self._disbanded_at < self.link.leave_s:
            return set()
        gone = self.membership.give_up_leaving()
        for rank in gone:
            self.link.call(rank, End())
        self._form()
        return gone

    def dismiss(self, busy: Iterable[int] = ()) -> None:
        """Dismisses all ranks, once. Ranks that do not receive messages end their processes.

        Args:
            busy: The blocks whose ranks are still in a trial.
        """
        if self._is_dismissed:
            return
        self._is_dismissed = True
        self._await_leaving()
        for rank in self.membership.ranks:
            if self.membership.block_of(rank) in busy or rank in self.membership.leaving:
                self.link.call(rank, End())
            else:
                self.link.send(rank, Dismissal())

    def _await_leaving(self) -> None:
        """Waits a moment for ranks that were just told to leave their block."""
        until = time.monotonic() + PARTING_S
        while self.membership.leaving and time.monotonic() < until:
            for rank, message in self.hear(TICK_S):
                if isinstance(message, Freed):
                    self.membership.free(rank)
                elif isinstance(message, Lost):
                    self.membership.lose(message.ranks)

    def _forget(self, block: int) -> None:
        self._disbanded_at = self.now_s
        if block in self.free:
            self.free.remove(block)

    def _form(self) -> None:
        for block in self.membership.form():
            self._join(block)

    def _join(self, block: int) -> None:
        ranks = self.ranks(block)
        for rank in ranks:
            self.link.send(rank, Join(block, ranks))
