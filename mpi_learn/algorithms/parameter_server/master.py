"""A master of a parameter server: a rank that holds weights and serves workers, and perhaps other masters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup
from mpi_learn.algorithms.parameter_server.link import Centre, Link
from mpi_learn.algorithms.parameter_server.server import Server
from mpi_learn.algorithms.parameter_server.worker import mean_staleness
from mpi_learn.mpi.communicators import broadcast_in_place


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
            if self.link is not None:
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
