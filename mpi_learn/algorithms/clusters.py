"""Clusters: synchronous inside, parameters exchanged between them while they go on computing; no master anywhere.

Inside a cluster every step takes the mean gradient of its ranks. Every H steps a cluster's leader sends a snapshot of
the weights to other clusters and goes on; when theirs have come, the cluster applies the *delta rule*

    ``w ← w + (mean of the snapshots − own snapshot)``

so that the steps made meanwhile are kept. The leader's word "now" rides in the next step's collective inside the
cluster. An exchange that is still under way when the next is due makes that one wait its turn: a slow link slows the
exchanges, never the steps. The averaging in random pairs is that of gossip (Blot et al. 2016); with ``neighbours: all``
and a large H it is local SGD (Stich 2019). After each epoch all clusters take the common mean.
"""

from __future__ import annotations

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm
from mpi_learn.algorithms.pair_exchange import Exchange, partners
from mpi_learn.flat_layout import FAILED, N_SAMPLES, WORD
from mpi_learn.mpi.collectives import broadcast_in_place, maximum, sum_in_place
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.optimizers.optimizer import Optimizer


class DecentralisedClusters(Algorithm):
    """One rank of one cluster.

    Args:
        comm: Of the training.
        cluster: Of this rank's cluster; its rank 0 is the leader.
        leaders: Of all leaders; None on other ranks.
        optimizer: Makes the same step on every rank of the cluster.
        n_sums: Length of the sums behind a gradient.
        exchange_every: H.
        neighbours: ``ring``, ``random`` or ``all``.
    """

    def __init__(
        self,
        comm: Communicator,
        cluster: Communicator,
        leaders: Communicator | None,
        optimizer: Optimizer,
        n_sums: int,
        exchange_every: int,
        neighbours: str,
    ) -> None:
        self.comm, self.cluster, self.leaders, self.optimizer = comm, cluster, leaders, optimizer
        self.n_sums, self.exchange_every, self.neighbours = n_sums, exchange_every, neighbours
        self._counts = np.zeros(2, np.int64)  # steps and exchanges; an array, so that a checkpoint can hold it
        self._exchange: Exchange | None = None
        self._is_leaving = False

    def exchange(self, weights: np.ndarray, step: np.ndarray) -> np.ndarray | None:
        """One step of the cluster, and where it has come, what the other clusters know."""
        n = weights.size
        delta = self._looked(step) if self.leaders is not None else None
        sum_in_place(self.cluster, step)
        sums = step[n:]
        if sums[FAILED] > 0:
            self._leave()
            return None
        if sums[N_SAMPLES] > 0:  # an epoch's last batch may leave some clusters without
            self.optimizer.update(weights, step[:n], 1.0 / float(sums[N_SAMPLES]))
        if sums[WORD] > 0:
            self._apply(weights, delta)
        self._counts[0] += 1
        if self.leaders is not None and self._counts[0] % self.exchange_every == 0 and self._exchange is None:
            self._begin(weights)
        return sums if self.leaders is not None else np.zeros_like(sums)

    def serve(self, weights: np.ndarray) -> None:
        """There is no master here."""

    def total(self, sums: np.ndarray) -> np.ndarray:
        """The leaders have added up their clusters'."""
        total = sums.copy()
        sum_in_place(self.comm, total)
        return total

    def settle(self, weights: np.ndarray) -> None:
        """Ends what is under way, then all take the mean of the clusters' weights."""
        if self.leaders is not None:
            target = maximum(self.leaders, self._n_rounds)
            while self._exchange is not None or self._n_rounds < target:
                if self._exchange is None:
                    self._begin(weights)
                weights += self._exchange.wait()
                self._exchange = None
            sum_in_place(self.leaders, weights)
            weights /= self.leaders.size
        broadcast_in_place(self.cluster, weights)

    def arrays(self) -> dict[str, np.ndarray]:
        """The optimizer's state, of the cluster of rank 0."""
        return self.optimizer.arrays()

    def own_arrays(self) -> dict[str, np.ndarray]:
        """The optimizer's state of this rank's cluster, and how many steps and exchanges there were."""
        return self.optimizer.arrays() | {"counts": self._counts}

    def close(self) -> None:
        """See `Algorithm.close`."""
        self.cluster.Free()
        if self.leaders is not None:
            self.leaders.Free()

    def sign_off(self) -> None:
        """Joins the step that its cluster is in with the word that it failed, and tells the other clusters."""
        step = np.zeros(self.optimizer.layout.size + self.n_sums, np.float32)
        step[FAILED] = 1.0
        sum_in_place(self.cluster, step)
        self._leave()

    @property
    def _n_rounds(self) -> int:
        return int(self._counts[1])

    def _looked(self, step: np.ndarray) -> np.ndarray | None:
        """A leader looks whether others failed or an exchange is complete, and puts its word behind the gradient."""
        if self.leaders.size == 1:
            return None
        if Exchange.is_alarmed(self.leaders):
            step[FAILED] = 1.0
            return None
        delta = self._exchange.result() if self._exchange is not None else None
        if delta is not None:
            step[WORD] = 1.0
            self._exchange = None
        return delta

    def _apply(self, weights: np.ndarray, delta: np.ndarray | None) -> None:
        if delta is None:
            delta = np.empty(weights.size, np.float32)
        broadcast_in_place(self.cluster, delta)
        weights += delta

    def _begin(self, weights: np.ndarray) -> None:
        if self.leaders.size == 1:
            return
        whom = partners(self.neighbours, self.leaders.rank, self.leaders.size, self._n_rounds)
        self._exchange = Exchange(self.leaders, weights, whom, self._n_rounds)
        self._counts[1] += 1

    def _leave(self) -> None:
        """The first to know tells all other leaders, once."""
        if self.leaders is None or self._is_leaving:
            return
        self._is_leaving = True
        Exchange.alarm(self.leaders)
        if self._exchange is not None:
            self._exchange.abandon()
