"""Which rank of a training does what. Plain integers, no MPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpi_learn.errors import ConfigurationError


@dataclass(frozen=True)
class Layout:
    """Masters and groups of workers.

    Attributes:
        size: Number of ranks.
        masters: Ranks that only serve; the first is the top of the tree. Empty: there is no master.
        groups: The workers, in groups of ranks that compute a gradient together; the first rank of each leads it.
    """

    size: int
    masters: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def workers(self) -> tuple[int, ...]:
        """All ranks that compute gradients, in the order in which they share the samples."""
        return tuple(rank for group in self.groups for rank in group)

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each group."""
        return tuple(group[0] for group in self.groups)

    def group_of(self, rank: int) -> tuple[int, ...]:
        """The group that a worker belongs to; empty for a master."""
        return next((group for group in self.groups if rank in group), ())

    def parent(self, rank: int) -> int | None:
        """The master of a master or of a group's leader; None at the top, and where there is no master."""
        if not self.masters or rank == self.masters[0]:
            return None
        if rank in self.masters:
            return self.masters[0]
        lower = self.masters[1:] or self.masters
        return lower[self.leaders.index(rank) % len(lower)]

    def children(self, rank: int) -> tuple[int, ...]:
        """Whom a master serves."""
        if rank not in self.masters:
            return ()
        return tuple(other for other in (*self.masters, *self.leaders) if self.parent(other) == rank)

    def is_idle(self, rank: int) -> bool:
        """Whether it is a master without anybody to serve: there are fewer groups than masters."""
        return rank in self.masters and not self.children(rank)


def lay_out(size: int, *, masters: int = 0, processes: int = 1) -> Layout:
    """The layout of `size` ranks.

    Args:
        masters: Ranks that only serve. With several, the first is the master of the others. One rank alone is a worker.
        processes: Ranks per group of workers; what does not divide makes some groups larger.

    Raises:
        ConfigurationError: There are too few ranks.
    """
    if size == 1 or masters == 0:
        return Layout(size, (), _groups(0, size, processes))
    lowest = masters + max(masters - 1, 1)
    if size < lowest:
        raise ConfigurationError(
            f"{masters} masters, each of the lower ones with a worker, need {lowest} ranks; there are {size}",
            where="algorithm.masters",
            cure="start more ranks, or write fewer masters",
        )
    return Layout(size, tuple(range(masters)), _groups(masters, size, processes))


def _groups(first: int, size: int, processes: int) -> tuple[tuple[int, ...], ...]:
    n = max(1, (size - first) // processes)
    bounds = [first + (size - first) * i // n for i in range(n + 1)]
    return tuple(tuple(range(bounds[i], bounds[i + 1])) for i in range(n))


def layout_of(options: Any, size: int) -> Layout:
    """The layout that an algorithm's options ask for on `size` ranks; a cluster is a group of workers."""
    ranks = options.size if options.name == "clusters" else getattr(options, "processes", 1)
    return lay_out(size, masters=getattr(options, "masters", 0), processes=ranks)
