"""The best trials of each category, so that a category survives that is worse at first.

Without niches, all parents soon have the category that was best among the first trials, and the others are only tried
with the numbers that are good for this one.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np

from mpi_opt.core.arrays import Bools, Floats


class Member(NamedTuple):
    """A trial that may be a parent. Members are ordered by cost, and equal ones by the order in which they ended.

    Attributes:
        cost: The cost.
        n_before: The number of trials that ended before.
        genes: Shape (n_dimensions,): the point in the unit cube.
    """

    cost: float
    n_before: int
    genes: Floats


@dataclass
class Niche:
    """The trials with one category.

    Attributes:
        members: The best ones, best first.
        n_trials: Number of all trials with this category that have started, so that those in flight count.
    """

    members: list[Member] = field(default_factory=list)
    n_trials: int = 0

    def add(self, member: Member, size: int) -> None:
        """Adds a trial; at most `size` are kept."""
        insort(self.members, member)
        del self.members[size:]


@final
class Niches:
    """A niche for each category of each hyperparameter.

    Args:
        categories: Dimension -> number of its categories, for all dimensions with more than one.
        size: Number of members of a niche.
    """

    def __init__(self, categories: dict[int, int], size: int) -> None:
        self._size = size
        self._niches = {index: [Niche() for _ in range(count)] for index, count in categories.items()}

    def start(self, row: Floats, is_active: np.ndarray) -> None:
        """Counts a trial that starts at `row` of an `Encoding`."""
        for niche in self._of(row, is_active):
            niche.n_trials += 1

    def add(self, member: Member, row: Floats, is_active: np.ndarray) -> None:
        """Adds a trial that has ended at `row`."""
        for niche in self._of(row, is_active):
            niche.add(member, self._size)

    def choose(self, dimension: int, best: int, is_left_out: Bools) -> tuple[int, list[Member]]:
        """The category, other than `best`, for the next trial, and its members.

        The trials are shared among the categories in inverse proportion to their ranks by the best cost, so that a bad
        category gets few of them but is never given up.

        Args:
            dimension: The hyperparameter.
            best: Its category at the best trial.
            is_left_out: Shape (m,): which of the first trials that ended count as failed ones, such as those with a
                penalty as their cost.
        """
        niches = self._niches[dimension]
        members = {
            index: [one for one in niche.members if one.n_before >= len(is_left_out) or not is_left_out[one.n_before]]
            for index, niche in enumerate(niches)
            if index != best
        }
        # one that has only failed is the worst; one that was never tried has the share 0 and comes first
        others = sorted(members, key=lambda index: members[index][0].cost if members[index] else np.inf)
        shares = [niches[index].n_trials * rank for rank, index in enumerate(others, 1)]
        chosen = others[int(np.argmin(shares))]
        return chosen, members[chosen]

    def _of(self, row: Floats, is_active: np.ndarray) -> list[Niche]:
        return [niches[int(row[index])] for index, niches in self._niches.items() if is_active[index]]
