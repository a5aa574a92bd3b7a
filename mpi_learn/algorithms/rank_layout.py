"""The role of each rank in a training. Plain integers, no MPI."""

from __future__ import annotations

from dataclasses import dataclass

from mpi_learn.algorithms.configuration import AnyAlgorithm, Clusters, ParameterServer
from mpi_learn.errors import ConfigurationError


@dataclass(frozen=True)
class RankLayout:
    """Masters and groups of workers.

    Attributes:
        size: Number of ranks.
        masters: Ranks that hold weights and do not train; the first is the master of the others. May be empty.
        groups: The workers, in groups of ranks that compute a gradient together; the first rank of each leads it.
        stages: Number of ranks that hold one model. If it is not 1, each group is a replica of the model, with one rank
            per stage.
    """

    size: int
    masters: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    stages: int = 1

    @property
    def n_replicas(self) -> int:
        """Number of models that are trained on samples of their own."""
        return len(self.workers) // self.stages

    def replica(self, rank: int) -> int | None:
        """The index of the model of a rank, of which it holds all or one stage; None for a master."""
        return self.workers.index(rank) // self.stages if rank in self.workers else None

    def stage(self, rank: int) -> int:
        """The index of the stage that a rank holds; 0 without several stages."""
        return self.workers.index(rank) % self.stages if self.stages > 1 else 0

    @property
    def workers(self) -> tuple[int, ...]:
        """All ranks that compute gradients, in the order in which they share the samples."""
        return tuple(rank for group in self.groups for rank in group)

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each group."""
        return tuple(group[0] for group in self.groups)

    def group_of(self, rank: int) -> tuple[int, ...]:
        """The group of a worker; empty for a master."""
        return next((group for group in self.groups if rank in group), ())

    def parent(self, rank: int) -> int | None:
        """The master of a master or of a group's leader; None for other ranks and for the first master.

        Leaders are assigned to the masters 1, 2, …, 0 in turn. The first master is last, because it also serves the
        other masters.
        """
        if rank in self.masters[1:]:
            return self.masters[0]
        if not self.masters or rank not in self.leaders:
            return None
        return self.masters[(self.leaders.index(rank) + 1) % len(self.masters)]

    def children(self, rank: int) -> tuple[int, ...]:
        """The ranks that a master serves: lower masters, then leaders of groups."""
        if rank not in self.masters:
            return ()
        return tuple(other for other in (*self.masters, *self.leaders) if self.parent(other) == rank)


def make_rank_layout(size: int, *, masters: int = 0, processes: int = 1) -> RankLayout:
    """The layout of `size` ranks; a single rank is a worker.

    Args:
        masters: Ranks that hold weights and do not train.
        processes: Ranks per group of workers; if they do not divide the number of workers, some groups are larger.

    Raises:
        ConfigurationError: There are too few ranks.
    """
    if size == 1 or masters == 0:
        return RankLayout(size, (), _groups(0, size, processes))
    lowest = masters + max(masters - 1, 1) * processes
    if size < lowest:
        who = "a master" if masters == 1 else f"{masters} masters with a worker for each lower one"
        whose = f" and {processes} processes per worker" if processes > 1 else ""
        raise ConfigurationError(
            f"too few ranks for {who}{whose}: expected {lowest} or more, found {size}",
            where="algorithm.masters" if masters > 1 else "algorithm.processes",
            cure=f"start {lowest} ranks or more, or write {_smaller(size, masters, processes)}",
        )
    return RankLayout(size, tuple(range(masters)), _groups(masters, size, processes))


def rank_layout_of(options: AnyAlgorithm, size: int, stages: int = 1) -> RankLayout:
    """The layout of `size` ranks for an algorithm; a cluster is a group of workers. A single rank holds all stages.

    Raises:
        ConfigurationError: There are too few ranks.
    """
    if size > 1 and stages > 1:
        return _with_stages(size, stages)
    if isinstance(options, ParameterServer):
        return make_rank_layout(size, masters=options.masters, processes=options.processes)
    if not isinstance(options, Clusters):
        return make_rank_layout(size)
    if size not in (1, options.size) and size < 2 * options.size:
        raise ConfigurationError(
            f"two clusters of {options.size} ranks need {2 * options.size} ranks; there are {size}",
            where="algorithm.size",
            cure=f"start {2 * options.size} ranks or more, or write a smaller size",
        )
    return make_rank_layout(size, processes=options.size)


def _with_stages(size: int, stages: int) -> RankLayout:
    if size % stages:
        more = stages * (size // stages + 1)
        raise ConfigurationError(
            f"a model of {stages} stages needs a multiple of {stages} ranks, found {size}",
            where="pipeline.stages",
            cure=f"train it on {more} ranks" + (f" or {more - stages}" if size > stages else "") + ", or on one",
        )
    return RankLayout(size, (), _groups(0, size, stages), stages)


def _smaller(size: int, masters: int, processes: int) -> str:
    """The text of the cure if `size` ranks are too few."""
    if masters == 1:
        return f"`processes: {size - 1}`" + (" or less" if size > 2 else "")
    return "fewer masters or processes" if processes > 1 else "fewer masters"


def _groups(first: int, size: int, processes: int) -> tuple[tuple[int, ...], ...]:
    n = max(1, (size - first) // processes)
    bounds = [first + (size - first) * i // n for i in range(n + 1)]
    return tuple(tuple(range(bounds[i], bounds[i + 1])) for i in range(n))
