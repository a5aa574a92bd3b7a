"""Records which ranks form which blocks. Sends no messages and reads no clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mpi_opt.core.block_layout import BlockLayout


@dataclass
class BlockMembership:
    """The state of every rank: member of a block, spare, leaving, lost or retired.

    Attributes:
        block_size: Number of ranks in a complete block.
        blocks: Index -> world ranks, the leader first, of the blocks that exist or are being formed.
        spare: Ranks that wait for a block.
        leaving: Ranks of disbanded blocks that have not left them yet.
        lost: Ranks that have died or were given up.
        given_up: Lost ranks that did not leave their block in time, and may leave it later.
        retired: Live ranks that join no more blocks: no block could be formed with them, or too many trials failed in
            their block.
        indices: The indices of future blocks, ascending.
        may_shrink: Whether the ranks of a disbanded block form the next one together, without those that were lost.
        unit: Every block has a multiple of this number of ranks.
        reserve: Spare ranks that join no block before ranks are lost.
        groups: The ranks that will form a block together, until all of them have left theirs.
    """

    block_size: int
    blocks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    spare: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)
    retired: set[int] = field(default_factory=set)
    indices: Iterator[int] = field(default_factory=itertools.count)
    may_shrink: bool = False
    unit: int = 1
    reserve: frozenset[int] = frozenset()
    groups: list[frozenset[int]] = field(default_factory=list)

    @classmethod
    def of(
        cls, layout: BlockLayout, indices: Iterator[int] | None = None, *, may_shrink: bool = False
    ) -> BlockMembership:
        """The membership at the start of a search: all blocks and spare ranks of the layout."""
        membership = cls(min((len(block) for block in layout.blocks), default=1), spare=set(layout.spare_ranks))
        membership.indices, membership.may_shrink = indices or membership.indices, may_shrink
        membership.unit, membership.reserve = layout.unit, frozenset(layout.spare_ranks)
        for ranks in layout.blocks:
            membership._add(ranks)
        return membership

    @property
    def ranks(self) -> list[int]:
        """All ranks that may be alive, ascending."""
        members = {rank for ranks in self.blocks.values() for rank in ranks}
        return sorted((members | self.spare | self.leaving | self.retired) - self.lost)

    @property
    def is_empty(self) -> bool:
        """Whether no rank can run a trial, now or later."""
        return not (self.blocks or len(self.spare) >= self.unit or self.leaving)

    def block_of(self, rank: int) -> int | None:
        """The block of a rank; None if it is in no block."""
        return next((block for block, ranks in self.blocks.items() if rank in ranks), None)

    def lose(self, ranks: Iterable[int]) -> list[int]:
        """Records lost ranks; returns their blocks, which must be disbanded."""
        new = set(ranks) - self.lost
        self.lost |= new
        self.given_up -= set(ranks)  # their last message, that they have left their block, may still arrive
        self.spare -= new
        self.leaving -= new
        self.retired -= new
        return sorted({block for rank in new if (block := self.block_of(rank)) is not None})

    def disband(self, block: int) -> list[int]:
        """Removes a block; returns its live ranks, which must leave it before they are spare."""
        survivors = [rank for rank in self.blocks.pop(block) if rank not in self.lost]
        self.leaving |= set(survivors)
        if self.may_shrink:
            self.groups.append(frozenset(survivors))
        return survivors

    def regroup(self, blocks: Iterable[int], groups: Iterable[Iterable[int]]) -> None:
        """Removes blocks whose ranks will form others: those of each group together, when they have left theirs."""
        for block in blocks:
            self.leaving |= set(self.blocks.pop(block))
        self.groups += map(frozenset, groups)

    def rearrange(self, layout: BlockLayout) -> None:
        """Removes all blocks; their ranks and the spare ones will form those of `layout`."""
        self.block_size, self.unit = min(map(len, layout.blocks)), layout.unit
        self.reserve = frozenset(layout.spare_ranks)
        self.groups.clear()
        self.regroup(list(self.blocks), layout.blocks)

    def leave(self, rank: int) -> None:
        """Records that a rank has left its block, possibly after it was given up."""
        if rank in self.given_up:
            self.given_up.remove(rank)
            self.lost.remove(rank)
        if rank not in self.lost:
            self.leaving.discard(rank)
            self.spare.add(rank)

    def retire(self, rank: int) -> None:
        """Excludes a spare rank from all future blocks."""
        self.spare.discard(rank)
        self.retired.add(rank)

    def give_up(self, ranks: set[int], *, may_return: bool) -> None:
        """Marks ranks that have not left their disbanded block as lost.

        If `may_return`, they are spare again when they leave it later.
        """
        self.leaving -= ranks
        if may_return:
            self.given_up |= ranks
        self.lost |= ranks

    def is_moving(self, rank: int) -> bool:
        """Whether a rank leaves its block, or waits for others to form the next one together."""
        return rank in self.leaving or any(rank in group & self.spare for group in self.groups)

    def form(self) -> list[int]:
        """Forms as many complete blocks of spare ranks as possible; a smaller one if there is no other block.

        Before, ranks that form a block together do so, with other spare ranks in place of lost ones if there are any.
        """
        formed = []
        for group in [one for one in self.groups if not one & self.leaving]:  # others wait for their last ranks
            self.groups.remove(group)
            if own := group & self.spare:
                others = [rank for rank in self._free() if rank not in own]
                formed.append(self._add(sorted([*own, *others[: max(0, self.block_size - len(own))]])))
        while len(free := self._free()) >= self.block_size:
            formed.append(self._add(free[: self.block_size]))
        if not self.blocks and len(self.spare) >= self.unit and not self.leaving:
            formed.append(self._add(sorted(self.spare)[: len(self.spare) // self.unit * self.unit]))
        return formed

    def _free(self) -> list[int]:
        """The spare ranks that wait for no others and need not replace any, ascending."""
        reserve = frozenset() if self.lost or self.retired else self.reserve
        return sorted(self.spare.difference(reserve, *self.groups))

    def _add(self, ranks: Iterable[int]) -> int:
        block = next(self.indices)
        self.blocks[block] = tuple(ranks)
        self.spare -= set(ranks)
        return block
