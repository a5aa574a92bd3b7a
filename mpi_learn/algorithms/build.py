"""From the configuration to this rank's part in an algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm
from mpi_learn.algorithms.allreduce import SynchronousAllReduce
from mpi_learn.algorithms.buckets import Buckets
from mpi_learn.algorithms.clusters import DecentralisedClusters
from mpi_learn.algorithms.parameter_server.centre import N_EXTRA, Centre, Link, LocalLink, RemoteLink
from mpi_learn.algorithms.parameter_server.downpour import DownpourCentre, DownpourWorker, applied_by, handed_up
from mpi_learn.algorithms.parameter_server.easgd import ElasticCentre, ElasticWorker
from mpi_learn.algorithms.parameter_server.gem import EnergyCentre, EnergyWorker
from mpi_learn.algorithms.parameter_server.master_worker import MasterWorker, Worker
from mpi_learn.algorithms.parameter_server.server import Server
from mpi_learn.algorithms.rank_layout import Layout
from mpi_learn.algorithms.reduction import make_compression
from mpi_learn.mpi.collectives import part_of, rows_of_host
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.optimizer import Optimizer

Vector = np.ndarray
MakeOptimizer = Callable[[Any, float], Optimizer]
"""(options, or None for the configured ones; updates an epoch) -> optimizer."""


def make_algorithm(
    options: Any,
    comm: Communicator,
    layout: Layout,
    weights: np.ndarray,
    *,
    n_sums: int,
    n_steps: int,
    learning_rate: float,
    optimizer: MakeOptimizer,
) -> Algorithm:
    """This rank's part in the algorithm that a section of the configuration names. Collective over `comm`.

    Args:
        options: One of the classes of `mpi_learn.algorithms.configuration`.
        comm: Of the training.
        layout: Who does what in it.
        weights: The model's, (n,) float32; on a master the centre's.
        n_sums: Length of the sums behind a gradient.
        n_steps: Steps of a worker in an epoch.
        learning_rate: What moves a worker that has no optimizer of its own.
        optimizer: Makes the configured optimizer.
    """
    if options.name == "allreduce":
        compression = make_compression(options.compression, options.fraction)
        mover = optimizer(None, math.ceil(n_steps / options.accumulate))
        if options.bucket_bytes is not None:
            compression = Buckets(comm, mover.layout, options.bucket_bytes)
        return SynchronousAllReduce(comm, mover, n_sums, compression, options.accumulate)
    if options.name == "clusters":
        group = layout.group_of(comm.rank)
        cluster = part_of(comm, layout.leaders.index(group[0]))
        leaders = part_of(comm, 0 if comm.rank == group[0] else None)
        updates = optimizer(None, n_steps)
        return DecentralisedClusters(
            comm, cluster, leaders, updates, n_sums, options.exchange_every, options.neighbours
        )
    makers = {"downpour": _downpour, "easgd": _easgd, "gem": _gem}
    parts = makers[options.name](options, layout, comm, weights, n_steps, learning_rate, optimizer)
    group = layout.group_of(comm.rank)
    has_groups = any(len(ranks) > 1 for ranks in layout.groups)
    group_comm = part_of(comm, layout.leaders.index(group[0]) if group else None) if has_groups else None
    return MasterWorker(comm, weights, n_sums, group=group_comm, **parts)


def _downpour(
    options: Any,
    layout: Layout,
    comm: Communicator,
    weights: np.ndarray,
    n_steps: int,
    rate: float,
    make: MakeOptimizer,
) -> dict[str, Any]:
    def make_centre(link: Link | None) -> Centre:
        n_children = len(layout.children(comm.rank))
        centre = _own(weights, comm)
        every = 0 if options.synchronous and n_children else 1
        if link is not None:
            return DownpourCentre(centre, handed_up(link, centre), {}, every and n_children)
        n_sending = sum(not layout.is_idle(child) for child in layout.children(comm.rank)) or 1
        updates = math.ceil(n_steps / options.sync_every) * (1 if options.synchronous else n_sending)
        optimizer = make(None, updates)
        return DownpourCentre(centre, applied_by(optimizer, centre), optimizer.arrays(), every)

    def make_worker(link: Link) -> Worker:
        own = options.worker_optimizer or Sgd(learning_rate=rate)
        mover = make(own, n_steps) if options.sync_every > 1 else None
        return DownpourWorker(link, weights.size, options.sync_every, mover)

    return _parts(layout, comm, weights.size, make_centre, make_worker, options.quorum if options.synchronous else None)


def _easgd(
    options: Any,
    layout: Layout,
    comm: Communicator,
    weights: np.ndarray,
    n_steps: int,
    rate: float,
    make: MakeOptimizer,
) -> dict[str, Any]:
    alpha = options.elastic_force / len(layout.groups)

    def make_centre(link: Link | None) -> Centre:
        return ElasticCentre(_own(weights, comm), alpha, link, len(layout.children(comm.rank)))

    def make_worker(link: Link) -> Worker:
        return ElasticWorker(link, weights.size, options.sync_every, make(None, n_steps))

    return _parts(layout, comm, weights.size, make_centre, make_worker)


def _gem(
    options: Any,
    layout: Layout,
    comm: Communicator,
    weights: np.ndarray,
    n_steps: int,
    rate: float,
    make: MakeOptimizer,
) -> dict[str, Any]:
    def make_centre(link: Link | None) -> Centre:
        return EnergyCentre(_own(weights, comm), link, len(layout.children(comm.rank)))

    def make_worker(link: Link) -> Worker:
        mover = make(None, n_steps)
        return EnergyWorker(link, weights, options.sync_every, mover, options.momentum, options.kappa)

    return _parts(layout, comm, weights.size, make_centre, make_worker)


def _own(weights: np.ndarray, comm: Communicator) -> np.ndarray:
    """A centre's weights: a master's are the model's; one rank alone has both a worker's and the centre's."""
    return weights.copy() if comm.size == 1 else weights


def _parts(
    layout: Layout,
    comm: Communicator,
    n: int,
    make_centre: Callable[[Link | None], Centre],
    make_worker: Callable[[Link], Worker],
    quorum: float | None = None,
) -> dict[str, Any]:
    """What this rank holds: a worker with its link, a centre with its server, or (alone) both. Collective."""
    if comm.size == 1:
        centre = make_centre(None)
        return {"centre": centre, "worker": make_worker(LocalLink(centre))}
    parent = layout.parent(comm.rank) if comm.rank in (*layout.masters, *layout.leaders) else None
    rows = rows_of_host(comm, n + N_EXTRA)
    link = RemoteLink(comm, parent, rows.get(comm.rank) if parent in rows else None) if parent is not None else None
    if comm.rank in layout.masters:
        centre, children = make_centre(link), layout.children(comm.rank)
        mailboxes = {child: rows[child] for child in children if child in rows}
        server = Server(comm, children, centre, quorum, mailboxes, not set(children) & set(layout.masters))
        return {"centre": centre, "server": server, "link": link}
    return {"worker": make_worker(link)} if link is not None else {}
