"""Connects the ranks of a parameter server: every rank becomes a master, a worker, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup
from mpi_learn.algorithms.parameter_server.server import MasterRank, Server
from mpi_learn.algorithms.parameter_server.transfer import Transfers
from mpi_learn.algorithms.parameter_server.worker import Centre, Link, LocalLink, RemoteLink, Worker, WorkerRank
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.mpi.communicators import Communicator, agreed_errors, subset
from mpi_learn.mpi.host_memory import rows_of_host


@dataclass(frozen=True)
class CentreSetup:
    """The arguments from which a method builds a centre.

    Attributes:
        weights: The centre's weights, (n,) float32: the model's on a master, a copy on a rank that is its own master.
        n_children: Number of workers and masters that it serves.
        link: To the master above; None for the first master.
    """

    weights: np.ndarray
    n_children: int
    link: Link | None = None


@dataclass(frozen=True)
class Method:
    """The two sides of a method with a parameter server.

    Attributes:
        make_centre: Builds the weights that a master holds.
        make_worker: Builds a worker that exchanges over a link.
        compression: The form of the messages, as in the configuration.
        quorum: Fraction of the workers whose messages make a synchronous round; None: asynchronous.
        sends_weights: Whether workers send weights and receive changes; else they send changes and receive weights.
        sends_gradients: Whether these changes are gradients, with counts of the arrays that have one; the counts of
            weights, and so those of their changes, are always 0.
    """

    make_centre: Callable[[CentreSetup], Centre]
    make_worker: Callable[[Link], Worker]
    compression: str
    quorum: float | None = None
    sends_weights: bool = False
    sends_gradients: bool = False


def make_role(method: Method, setup: AlgorithmSetup) -> Algorithm:
    """This rank's role. Collective over ``setup.comm``."""
    comm, layout = setup.comm, setup.rank_layout
    if comm.size == 1:
        own = method.make_centre(CentreSetup(setup.weights.copy(), 1))
        return WorkerRank(setup, method.make_worker(LocalLink(own)), None, own)
    mailboxes = rows_of_host(comm, setup.n) if method.compression == "none" else {}

    vectors = setup.weights_layout if method.sends_gradients else FlatLayout(((setup.n,),))

    def transfers() -> Transfers:
        return Transfers.make(method.compression, vectors, sends_weights=method.sends_weights)

    link, children = _link(setup, mailboxes, transfers), layout.children(comm.rank)
    centre: Centre | None = None
    worker: Worker | None = None
    with agreed_errors(comm):  # before the group's communicator: to free it after an error would need all its ranks
        if comm.rank in layout.masters:
            centre = method.make_centre(CentreSetup(setup.weights, len(children), link))
        elif link is not None:
            worker = method.make_worker(link)
    group = _group(setup)
    if centre is None:
        return WorkerRank(setup, worker, group)
    workers = tuple(child for child in children if child not in layout.masters)
    shared = {child: mailboxes[child] for child in children if child in mailboxes}
    server = Server(
        comm, children, centre,
        workers=workers, quorum=method.quorum, mailboxes=shared, transfers={child: transfers() for child in children},
    )  # fmt: skip
    return MasterRank(setup, centre, server, link)


def _link(setup: AlgorithmSetup, mailboxes: dict[int, np.ndarray], transfers: Callable[[], Transfers]) -> Link | None:
    """The link to this rank's master; None on the first master, and on ranks of a group that do not lead it."""
    comm = setup.comm
    master = setup.rank_layout.parent(comm.rank)
    if master is None:
        return None
    return RemoteLink(comm, master, mailboxes.get(comm.rank) if master in mailboxes else None, transfers())


def _group(setup: AlgorithmSetup) -> Communicator | None:
    """The communicator of this rank's group; None on masters, and if every group has one rank. Collective."""
    layout, rank = setup.rank_layout, setup.comm.rank
    if all(len(ranks) == 1 for ranks in layout.groups):
        return None
    group = layout.group_of(rank)
    return subset(setup.comm, layout.leaders.index(group[0]) if group else None)
