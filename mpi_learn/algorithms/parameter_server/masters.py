"""Masters, and which ranks are masters and workers: a master handles messages in the order of their arrival."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup, Deal
from mpi_learn.algorithms.parameter_server.transfer import VECTOR, Transfers
from mpi_learn.algorithms.parameter_server.worker import (
    ANSWER,
    DONE,
    FAILED_EPOCH,
    NEXT,
    NO_ANSWER,
    PULL,
    PUSH,
    SWAP,
    Centre,
    Link,
    LocalLink,
    RemoteLink,
    Worker,
    WorkerRank,
    make_header,
    mean_staleness,
)
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.mpi.communicators import Communicator, agreed_errors, broadcast_in_place, receive_into, send_from, subset
from mpi_learn.mpi.host_memory import rows_of_host


class Server:
    """Serves the weights of a master to other ranks.

    Args:
        comm: Communicator of the training.
        children: The ranks that are served.
        centre: The weights.
        workers: Those of `children` that train; the others are masters.
        quorum: Fraction of the active children whose messages make a round; None: every message is applied when it
            arrives.
        mailboxes: Child -> the memory that it shares with this rank, (n,) float32; only children on this host.
        transfers: Child -> the form of the vectors that are sent.

    Attributes:
        staleness: Staleness -> number of messages of `workers`, if they are not applied in rounds.
        has_failure: Whether a rank failed: then every answer says so, and all workers leave the epoch.
    """

    def __init__(
        self,
        comm: Communicator,
        children: tuple[int, ...],
        centre: Centre,
        *,
        workers: tuple[int, ...],
        quorum: float | None,
        mailboxes: Mapping[int, np.ndarray],
        transfers: Mapping[int, Transfers],
    ) -> None:
        self.comm, self.children, self.centre, self.workers, self.quorum = comm, children, centre, workers, quorum
        self.mailboxes, self.transfers = mailboxes, transfers
        self.staleness: Counter[int] = Counter()
        self.has_failure = False
        self._vector = aligned_empty(centre.weights.size)
        self._waiting: list[int] = []
        self._active: set[int] = set()
        self._unanswered: int | None = None

    def begin_epoch(self, weights: np.ndarray) -> None:
        """Begins an epoch: every child is active until it reports the end of its epoch.

        Args:
            weights: Those of the last `Algorithm.synchronize`, (n,) float32.
        """
        self._active, self._waiting, self.has_failure = set(self.children), [], False
        for transfers in self.transfers.values():  # if this fails, `dismiss` needs the active children
            transfers.begin_epoch(weights)

    def serve(self, deal: Deal | None = None) -> None:
        """Serves until every child has ended its epoch.

        Args:
            deal: Deals out the samples of this epoch; None: every worker has a fixed share.
        """
        header = make_header()
        while self._active:
            source, tag = receive_into(self.comm, header)
            # if this rank fails now, `dismiss` still owes this child an answer
            self._unanswered = source if tag in (PULL, SWAP, NEXT) else None
            if tag in (DONE, FAILED_EPOCH):
                self._active.discard(source)
                self.has_failure |= tag == FAILED_EPOCH
            elif tag == NEXT:
                self._send_part(source, deal)
            else:
                self._serve(source, tag, int(header[0]), float(header[1]))
            self._unanswered = None
            self._end_round()

    def dismiss(self) -> None:
        """This master failed: answers every child that a rank failed, until all have ended their epoch."""
        self.has_failure = True
        if self._unanswered is not None and self._unanswered not in self._waiting:
            send_from(self.comm, NO_ANSWER, self._unanswered, ANSWER)
        self._end_round()
        self.serve()

    def rank_state(self) -> dict[str, np.ndarray]:
        """As `Algorithm.rank_state`."""
        found: dict[str, np.ndarray] = {}
        for child, transfers in self.transfers.items():
            found |= transfers.rank_state(f"to_{child}")
        return found

    def _send_part(self, source: int, deal: Deal | None) -> None:
        part = deal() if deal is not None and not self.has_failure else None
        header = NO_ANSWER if part is None else make_header(part.start, part.stop)
        send_from(self.comm, header, source, ANSWER)

    def _serve(self, source: int, tag: int, version: int, batch_weight: float) -> None:
        """Handles PULL, PUSH and SWAP."""
        vector = self.mailboxes.get(source, self._vector)
        if tag != PULL and source not in self.mailboxes:
            self.transfers[source].up.receive(self.comm, vector, source, batch_weight)
        if self.has_failure:
            if tag != PUSH:
                self._answer(source, vector)
        elif tag == PULL:
            vector[:] = self.centre.weights
            self._answer(source, vector)
        elif self.quorum is not None:
            self._collect(source, vector, version, batch_weight)
        else:
            # a lower master sends sums of gradients, and has counted their staleness
            if source in self.workers:
                self.staleness[self.centre.version - version] += 1
            self.centre.absorb(vector, batch_weight)
            self.has_failure |= self.centre.has_failure
            if tag == SWAP:
                self.centre.answer(vector)
                self._answer(source, vector)

    def _collect(self, source: int, vector: np.ndarray, version: int, batch_weight: float) -> None:
        """Keeps a message for this round. A late one is dropped, and its sender gets the new weights."""
        if version == self.centre.version:
            self.centre.absorb(vector, batch_weight)
            self._waiting.append(source)
        else:
            self.centre.answer(vector)
            self._answer(source, vector)

    def _answer(self, source: int, vector: np.ndarray) -> None:
        has_message = not self.has_failure and source not in self.mailboxes
        # before the header, which promises it: if encoding fails, the child can still learn that a rank failed
        message = self.transfers[source].down.message(vector, 1) if has_message else None
        header = NO_ANSWER if self.has_failure else make_header(self.centre.version)
        send_from(self.comm, header, source, ANSWER)
        if message is not None:
            send_from(self.comm, message, source, VECTOR)

    def _end_round(self) -> None:
        """Ends a synchronous round when enough children have sent; those that have ended their epoch do not count."""
        if not self._waiting or self.quorum is None:
            return
        n_enough = math.ceil(round(self.quorum * len(self._active), 6))  # 0.7 × 10 is slightly more than 7
        if len(self._waiting) < n_enough and not self.has_failure:
            return
        if not self.has_failure:
            self.centre.flush()
            self.has_failure |= self.centre.has_failure
        while self._waiting:
            source = self._waiting[0]
            vector = self.mailboxes.get(source, self._vector)
            self.centre.answer(vector)
            self._answer(source, vector)
            del self._waiting[0]  # only now: `dismiss` answers the others


class MasterRank(Algorithm):
    """A master.

    Args:
        setup: Communicator and weights.
        centre: The weights that it holds.
        server: Serves them.
        link: To the first master; None on the first master itself.
    """

    def __init__(self, setup: AlgorithmSetup, centre: Centre, server: Server, link: Link | None) -> None:
        self.comm, self.weights, self.make_deal = setup.comm, setup.weights, setup.make_deal
        self.centre, self.server, self.link = centre, server, link

    def run(self, steps: Iterable[np.ndarray]) -> None:
        """Serves this master's workers until all have finished; see `Algorithm.run`."""
        has_finished = False
        try:
            self.server.begin_epoch(self.weights)
            if self.link is not None:
                self.link.begin_epoch(self.weights)
            self.centre.begin_epoch()
            self._serve()
            has_finished = not (self.server.has_failure or self.centre.has_failure)
        except BaseException:
            self.server.dismiss()
            raise
        finally:
            if self.link is not None:  # the first master waits until each lower one has ended its epoch
                self.link.end_epoch(has_failed=not has_finished)

    def synchronize(self) -> None:
        """All ranks take the weights of the first master."""
        broadcast_in_place(self.comm, self.weights)

    def diagnostics(self) -> dict[str, float]:
        found, self.server.staleness = self.server.staleness, Counter()
        return mean_staleness(self.comm, found)

    def state(self) -> dict[str, np.ndarray]:
        return self.centre.state()

    def rank_state(self) -> dict[str, np.ndarray]:
        link = self.link.rank_state() if self.link is not None else {}
        return self.centre.rank_state() | self.server.rank_state() | link

    def _serve(self) -> None:
        deal = self.make_deal() if self.make_deal is not None else None
        if deal is not None and self.link is not None:
            deal = self.link.next_part  # the first master deals for all
        self.server.serve(deal)
        if not self.server.has_failure:
            self.centre.flush()


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
