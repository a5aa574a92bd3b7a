"""Which trials start next."""

from __future__ import annotations

from mpi_opt.coordinator.unfinished_trials import UnfinishedTrials
from mpi_opt.core.trial import Proposal
from tests.mpi_opt.fakes import ListedStrategy


def test_waiting_trials_come_before_new_ones():
    waiting = (Proposal(7, {}), 2)
    queue = UnfinishedTrials(n_trials=9, waiting=[waiting])
    assert queue.next(3, ListedStrategy().ask) == [waiting, (Proposal(0, {"x": 0}), 1), (Proposal(1, {"x": 1}), 1)]
    assert not queue.waiting


def test_no_more_trials_begin_than_the_study_has():
    queue = UnfinishedTrials(n_trials=5, waiting=[(Proposal(7, {}), 2)], n_begun=2)
    assert len(queue.next(9, ListedStrategy().ask)) == 3
    assert queue.has_begun_all
    assert not queue.next(9, ListedStrategy().ask)
