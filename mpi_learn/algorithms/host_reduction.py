"""Compressed sums over hosts of several ranks: compression between the hosts, exact sums inside a host."""

from __future__ import annotations

from typing import final

import numpy as np

from mpi_learn.algorithms.reduction import Reduction
from mpi_learn.mpi.collectives import broadcast_in_place, sum_in_place
from mpi_learn.mpi.communicators import Communicator, on_this_host, subset


@final
class BetweenHosts(Reduction):
    """Sums step vectors exactly inside each host, and with another reduction between the hosts.

    Memory shared by the ranks of a host is much faster than a network. Only the first rank of each host compresses and
    communicates with other hosts. An exchange over the network therefore has fewer ranks, and a compression error is
    that of a host, not of a rank.

    Args:
        host: The ranks of this host. `close` frees it.
        leaders: The first rank of each host; None on other ranks. `close` frees it.
        reduction: Sums step vectors over `leaders`.
    """

    def __init__(self, host: Communicator, leaders: Communicator | None, reduction: Reduction) -> None:
        self._host, self._leaders, self._reduction = host, leaders, reduction

    def sum(self, comm: Communicator, step: np.ndarray) -> None:
        sum_in_place(self._host, step)
        if self._leaders is not None:
            self._reduction.sum(self._leaders, step)
        broadcast_in_place(self._host, step)

    def state(self) -> dict[str, np.ndarray]:
        return self._reduction.state()

    def rank_state(self) -> dict[str, np.ndarray]:
        return self._reduction.rank_state()

    def close(self) -> None:
        if self._leaders is not None:
            self._leaders.Free()
        self._host.Free()


def between_hosts(comm: Communicator, reduction: Reduction) -> Reduction:
    """`reduction` between the hosts of `comm`; `reduction` itself if there is one host, or one rank per host.

    Collective over `comm`.
    """
    host = on_this_host(comm)
    leaders = subset(comm, 0 if host.rank == 0 else None)
    n_hosts = comm.bcast(leaders.size if leaders is not None else None, root=0)
    made = BetweenHosts(host, leaders, reduction)
    if 1 < n_hosts < comm.size:
        return made
    made.close()
    return reduction
