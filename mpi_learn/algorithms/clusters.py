"""Decentralized training: synchronous inside a cluster, with background exchanges of weights between clusters.

In every step a cluster applies the mean gradient of its ranks. Every H steps its leader sends a snapshot of the weights
to other clusters and continues to train. When their snapshots have arrived, the cluster applies the *delta rule*

    ``w ← w + (mean of the snapshots − own snapshot)``

so that the steps made in the meantime are kept. The flag that the snapshots have arrived is one of the sums of the next
step inside the cluster. While an exchange is under way, no other one begins: a slow network delays the exchanges, never
the steps. After each epoch all clusters continue from the mean of their weights.

Averaging in random pairs is gossip (Blot et al. 2016). With ``neighbours: all`` and a large H, the algorithm is local
SGD (Stich 2019). With ``outer`` it is DiLoCo (Douillard et al. 2023): an outer optimizer computes new common weights
from the mean, and these replace the mean in the delta rule.

With ``compression``, a snapshot is sent as an encoded difference, and the own snapshot in the delta rule is the one
that the partners know. The error of a message therefore stays in the weights of its cluster, and is part of the next
message.

With ``outer`` (DiLoCo, arXiv:2311.08105, algorithm 1), the k clusters start from common weights θ and train
independently for H steps to their weights wᵢ. The negative mean of their changes is the *pseudo-gradient*, ``Δ = (1/k)
Σᵢ (θ − wᵢ)``. An outer optimizer with Nesterov momentum applies it: ``v ← μv − ηΔ``, ``θ ← θ + μv − ηΔ``. With η = 1
and μ = 0 the result is the mean of the clusters' weights.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup
from mpi_learn.algorithms.cluster_exchange import Acquaintance, Alarm, Exchange, partners_of
from mpi_learn.algorithms.configuration import Clusters, Nesterov
from mpi_learn.compression.encodings import ENCODINGS
from mpi_learn.flat_layout import FAILED, FLAG, WEIGHT, FlatLayout, failed_step
from mpi_learn.mpi.communicators import Communicator, agreed_errors, broadcast_in_place, subset, sum_in_place
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.optimizer import Optimizer, make_optimizer


class DecentralizedClusters(Algorithm):
    """One rank of one cluster.

    Args:
        options: How often and with which clusters weights are exchanged.
        setup: Weights and sizes.
        cluster: This rank's cluster; its rank 0 is the leader.
        leaders: All leaders; None on other ranks.
        optimizer: Makes the same update on every rank of the cluster.
    """

    def __init__(
        self,
        options: Clusters,
        setup: AlgorithmSetup,
        cluster: Communicator,
        leaders: Communicator | None,
        optimizer: Optimizer,
    ) -> None:
        self.options, self.cluster, self.leaders, self.optimizer = options, cluster, leaders, optimizer
        self.weights, self.n, self.n_sums, self.n_steps = setup.weights, setup.n, setup.n_sums, setup.n_steps
        self._several_leaders = leaders if leaders is not None and leaders.size > 1 else None
        self.outer: OuterOptimizer | None = None
        self.alarm: Alarm | None = None
        if self._several_leaders is not None:
            self.outer = OuterOptimizer(options.outer, setup.n) if options.outer is not None else None
            self.alarm = Alarm(self._several_leaders)
        self._counts = np.zeros(2, np.int64)  # steps and exchanges; an array, so that a checkpoint can fill it
        self._exchange: Exchange | None = None
        self._acquaintance: Acquaintance | None = None
        self._n_left = 0

    @classmethod
    def build(cls, options: Clusters, setup: AlgorithmSetup) -> DecentralizedClusters:
        """The algorithm as configured. Collective over ``setup.comm``."""
        comm, layout = setup.comm, setup.rank_layout
        with agreed_errors(comm):  # before the communicators: to free one after an error would need all its ranks
            optimizer = setup.make_optimizer(None, setup.n_steps)
        leader = layout.group_of(comm.rank)[0]
        cluster = subset(comm, layout.leaders.index(leader))
        leaders = subset(comm, 0 if comm.rank == leader else None)
        assert cluster is not None
        return cls(options, setup, cluster, leaders, optimizer)

    def run(self, steps: Iterable[np.ndarray]) -> None:
        self._n_left = self.n_steps  # the cluster's other ranks wait in a step only while some are left
        try:
            if self.outer is not None and self._counts[0] == 0:
                self.outer.start(self.weights)
            if self._several_leaders is not None and self.options.compression != "none":
                encoding = ENCODINGS[self.options.compression]
                self._acquaintance = Acquaintance(encoding, self._several_leaders.rank, self.weights)
            for step in steps:
                if not self._step(step):
                    return
        except BaseException:
            if self._n_left:
                self._report_failure()
            self._alarm_leaders()
            raise

    def synchronize(self) -> None:
        """Completes the exchanges, then all clusters take the mean of their weights."""
        if self.leaders is not None:
            self._complete_exchanges(self.leaders)
            sum_in_place(self.leaders, self.weights)
            self.weights /= self.leaders.size
        broadcast_in_place(self.cluster, self.weights)

    def state(self) -> dict[str, np.ndarray]:
        """The optimizer's state in the cluster of rank 0."""
        return self.optimizer.arrays()

    def rank_state(self) -> dict[str, np.ndarray]:
        """The states of the cluster's optimizer and of the outer one, and the numbers of steps and exchanges."""
        outer = self.outer.arrays() if self.outer is not None else {}
        return self.optimizer.arrays() | outer | {"counts": self._counts}

    def close(self) -> None:
        """See `Algorithm.close`; completes the exchanges that a failure has interrupted."""
        if self.leaders is not None:
            self._complete_exchanges(self.leaders)
            if self.alarm is not None:
                self.alarm.receive_all()
            self.leaders.Free()
        self.cluster.Free()

    def _step(self, step: np.ndarray) -> bool:
        """One step of the cluster; False if a rank failed."""
        delta = self._arrived(step)  # first: it sets flags, which the sum brings to all ranks of the cluster
        sum_in_place(self.cluster, step)
        self._n_left -= 1
        sums = step[self.n :]
        if sums[FAILED] > 0:  # of this cluster, or of another one, whose alarm the leader has received
            self._alarm_leaders()
            return False
        delta = self._shared(delta) if sums[FLAG] > 0 else None
        if sums[WEIGHT] != 0:  # in the last step of an epoch some clusters may have no samples
            self.optimizer.update(self.weights, step[: self.n], 1.0 / float(sums[WEIGHT]))
        if delta is not None:
            self.weights += delta
        self._counts[0] += 1
        if self._exchange is None and self._counts[0] % self.options.exchange_every == 0:
            self._begin_exchange()
        return True

    @property
    def _n_rounds(self) -> int:
        return int(self._counts[1])

    def _arrived(self, step: np.ndarray) -> np.ndarray | None:
        """On a leader: the change of the weights by a complete exchange, if any. Sets the flags in `step`."""
        if self.alarm is not None and self.alarm.has_arrived():
            step[FAILED] = 1.0
        elif self._exchange is not None and self._exchange.is_complete():
            step[FLAG] = 1.0
            return self._delta()
        return None

    def _delta(self) -> np.ndarray:
        """The change of the weights by the complete exchange, (n,) float32. Ends the exchange."""
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        mean = exchange.mean()
        target = mean if self.outer is None else self.outer.apply(mean)
        delta: np.ndarray = target - exchange.snapshot
        if self._acquaintance is not None and self.options.chosen_neighbours != "ring":
            self._acquaintance.settle(exchange.partners, target)
        return delta

    def _shared(self, delta: np.ndarray | None) -> np.ndarray:
        """The leader's `delta` on all ranks of the cluster."""
        delta = np.empty(self.n, np.float32) if delta is None else delta
        broadcast_in_place(self.cluster, delta)
        return delta

    def _begin_exchange(self) -> None:
        """On a leader: begins the exchange of the next round, unless this cluster has no partner in it."""
        if (leaders := self._several_leaders) is None:
            return
        partners = partners_of(self.options.chosen_neighbours, leaders.rank, leaders.size, self._n_rounds)
        if partners:
            if self._acquaintance is None and self.options.compression != "none":  # `run` has failed before
                self._acquaintance = Acquaintance(ENCODINGS[self.options.compression], leaders.rank, self.weights)
            known = self._acquaintance.among(partners) if self._acquaintance is not None else None
            self._exchange = Exchange(leaders, self.weights, partners, known)
        self._counts[1] += 1  # last: a round that this cluster could not begin is begun by `close`

    def _complete_exchanges(self, leaders: Communicator) -> None:
        """Makes all clusters take part in the same number of rounds and applies them. Collective over `leaders`."""
        # a partner waits for this cluster in each round that it has begun, also if this one has left the epoch early
        n_rounds = max(leaders.allgather(self._n_rounds))
        while self._exchange is not None or self._n_rounds < n_rounds:
            if self._exchange is None:
                self._begin_exchange()
            if self._exchange is not None:
                self._exchange.wait()
                self.weights += self._delta()

    def _report_failure(self) -> None:
        """Takes part in the step in which the cluster's other ranks wait, with the flag that this rank failed."""
        sum_in_place(self.cluster, failed_step(self.n + self.n_sums))

    def _alarm_leaders(self) -> None:
        if self.alarm is not None:
            self.alarm.send()


class OuterOptimizer:
    """Holds the common weights θ and the momentum. All leaders compute the same values.

    Args:
        options: Learning rate η and momentum μ.
        n: Number of weights.
    """

    def __init__(self, options: Nesterov, n: int) -> None:
        sgd = Sgd(learning_rate=options.learning_rate, momentum=options.momentum, nesterov=options.momentum > 0)
        self._optimizer = make_optimizer(sgd, FlatLayout(((n,),)))
        self._common = np.zeros(n, np.float32)

    def start(self, weights: np.ndarray) -> None:
        """Makes `weights` the common weights from which the clusters start."""
        self._common[:] = weights

    def apply(self, mean: np.ndarray) -> np.ndarray:
        """Makes one step.

        Args:
            mean: Mean of the clusters' weights, (n,) float32; its content is lost.

        Returns:
            The new common weights, to be read only.
        """
        self._optimizer.update(self._common, np.subtract(self._common, mean, out=mean))
        return self._common

    def arrays(self) -> dict[str, np.ndarray]:
        """The state, for a checkpoint. Resuming writes into these arrays."""
        return {"outer.common": self._common} | {f"outer.{k}": v for k, v in self._optimizer.arrays().items()}
