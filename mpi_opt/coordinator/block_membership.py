"""Which ranks form which blocks. Pure bookkeeping of the coordinator: no messages, no clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mpi_opt.core.block_layout import Layout


@dataclass
class BlockMembership:
    """Who is where.

    Attributes:
        block_size: Ranks of a whole block.
        blocks: Index -> world ranks, the leader first; of the blocks that exist or are being formed.
        spare: Ranks that wait for a block.
        leaving: Ranks of disbanded blocks that have not yet said that they are free.
        lost: Ranks that have died, or were given up.
        given_up: Those that were given up because they did not leave their block; some may do so later.
        retired: Ranks that get no more work: no block could be formed with them.
        numbers: Of the blocks to come, ascending.
    """

    block_size: int
    blocks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    spare: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)
    retired: set[int] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def of(cls, layout: Layout, numbers: Iterator[int] | None = None) -> BlockMembership:
        """The membership at the start: every block of the layout, its spare ranks waiting."""
        membership = cls(min((len(block) for block in layout.blocks), default=1), spare=set(layout.spare_ranks))
        membership.numbers = numbers or membership.numbers
        for ranks in layout.blocks:
            membership._add(ranks)
        return membership

    @property
    def ranks(self) -> list[int]:
        """All ranks that may still listen."""
        members = {rank for ranks in self.blocks.values() for rank in ranks}
        return sorted((members | self.spare | self.leaving | self.retired) - self.lost)

    @property
    def is_empty(self) -> bool:
        """Whether there is no rank left to run a trial, now or soon."""
        return not (self.blocks or self.spare or self.leaving)

    def block_of(self, rank: int) -> int | None:
        """The block of a rank."""
        return next((block for block, ranks in self.blocks.items() if rank in ranks), None)

    def lose(self, ranks: Iterable[int]) -> list[int]:
        """Takes deaths into account; returns the blocks that must be disbanded for it."""
        new = set(ranks) - self.lost
        self.lost |= new
        self.spare -= new
        self.leaving -= new
        self.retired -= new
        return sorted({block for rank in new if (block := self.block_of(rank)) is not None})

    def disband(self, block: int) -> list[int]:
        """Ends a block; returns its surviving ranks, who are expected to say that they are free."""
        survivors = [rank for rank in self.blocks.pop(block) if rank not in self.lost]
        self.leaving |= set(survivors)
        return survivors

    def free(self, rank: int) -> None:
        """A rank has left its block, perhaps after it was given up."""
        if rank in self.given_up:
            self.given_up.remove(rank)
            self.lost.remove(rank)
        if rank not in self.lost:
            self.leaving.discard(rank)
            self.spare.add(rank)

    def retire(self, rank: int) -> None:
        """A rank that has left its block joins no other."""
        self.spare.discard(rank)
        self.retired.add(rank)

    def give_up_leaving(self) -> set[int]:
        """Ranks that had to leave their block and have not answered count as lost from now on."""
        gone, self.leaving = self.leaving, set()
        self.given_up |= gone
        self.lost |= gone
        return gone

    def form(self) -> list[int]:
        """New blocks of spare ranks, as many whole ones as there are; a smaller one if there would be none at all."""
        formed = []
        while len(self.spare) >= self.block_size:
            formed.append(self._add(sorted(self.spare)[: self.block_size]))
        if not self.blocks and self.spare and not self.leaving:
            formed.append(self._add(sorted(self.spare)))
        return formed

    def _add(self, ranks: Iterable[int]) -> int:
        block = next(self.numbers)
        self.blocks[block] = tuple(ranks)
        self.spare -= set(ranks)
        return block
