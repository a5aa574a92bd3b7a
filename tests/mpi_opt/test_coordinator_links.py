"""How long the coordinator waits for messages, over MPI and in one process."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from mpi4py import MPI

from mpi_opt.messages.links import MPICoordinatorLink, MPIWorkerLink, SerialCoordinatorLink
from mpi_opt.messages.messages import (
    STOP,
    TO_RANK,
    TO_WATCHDOG,
    Broken,
    Disband,
    Dismissal,
    EndProcess,
    Leave,
    LeftBlock,
    Lost,
    SearchResult,
    Stop,
)
from tests.mpirun import patient_s


@pytest.fixture(params=["MPI", "one process"])
def link(request):
    """A coordinator's link over which no message arrives."""
    return MPICoordinatorLink(MPI.COMM_SELF) if request.param == "MPI" else SerialCoordinatorLink()


def test_the_coordinator_waits_asleep_and_no_longer_than_it_wants(link):
    began_s, used_s = time.monotonic(), time.thread_time()
    assert link.receive(0.5, lambda: False) == []
    assert 0.5 <= time.monotonic() - began_s < patient_s(5)
    assert time.thread_time() - used_s < 0.15


def test_an_interruption_ends_the_wait(link):
    until_s = time.monotonic() + 0.2
    assert link.receive(60.0, lambda: time.monotonic() >= until_s) == []
    assert 0.2 <= time.monotonic() + 0.2 - until_s < patient_s(10)


@pytest.mark.timing
def test_a_waiting_coordinator_asks_often_whether_it_is_interrupted(link):
    def longest_gap_s():
        asked_s: list[float] = []
        link.receive(1.5, lambda: bool(asked_s.append(time.monotonic())))
        return max(after - before for before, after in pairwise(asked_s))

    assert any(longest_gap_s() < 0.05 for _ in range(5))  # several attempts: a loaded machine pauses processes


@pytest.fixture
def ends():
    """Both ends of a link in one process, which sends messages to itself."""
    world = MPI.COMM_SELF.Dup()
    yield MPICoordinatorLink(world), MPIWorkerLink(world)
    world.Free()


def test_messages_arrive_in_their_order_and_with_their_rank_at_most_32_at_once(ends):
    coordinator, worker = ends
    for number in range(40):
        worker.send(Broken(number, "why"))
    assert coordinator.receive(1.0, lambda: False) == [(0, Broken(number, "why")) for number in range(32)]
    assert coordinator.receive(1.0, lambda: False) == [(0, Broken(number, "why")) for number in range(32, 40)]


def test_each_kind_of_message_waits_for_its_reader(ends):
    coordinator, worker = ends
    for message in (Dismissal(), Stop(3), Leave(4)):
        coordinator.send(0, message)
    assert not coordinator.has_called_watchdog
    coordinator.send(0, Disband(5))
    assert coordinator.has_called_watchdog
    assert [worker.poll(tag) for tag in (TO_WATCHDOG, STOP, STOP, STOP)] == [Disband(5), Stop(3), Leave(4), None]
    assert worker.receive(lambda: None) == Dismissal()


@pytest.mark.parametrize("is_protected", [True, False])
def test_a_rank_must_end_its_process_unless_it_answers_late(ends, monkeypatch, is_protected):
    """Without protection it does not end before the job, which its end would end."""
    coordinator, worker = ends
    monkeypatch.setattr("mpi_opt.messages.links.messaging.is_protected", lambda: is_protected)
    coordinator.send(0, EndProcess())
    assert (worker.poll(TO_WATCHDOG) is not None) is is_protected
    assert coordinator.ranks_to_end == {0}
    worker.send(LeftBlock(0))
    assert len(coordinator.receive(1.0, lambda: False)) == 1
    assert coordinator.ranks_to_end == set()


def test_ranks_that_were_lost_before_are_said_once_and_receive_nothing(ends, monkeypatch):
    coordinator, worker = ends
    monkeypatch.setattr("mpi_opt.messages.links.messaging.acknowledge", lambda world: {0, 7})
    assert coordinator.receive(1.0, lambda: False) == [(0, Lost(frozenset({0, 7})))]
    assert coordinator.receive(0.01, lambda: False) == []
    coordinator.send(0, Dismissal())
    assert worker.poll(TO_RANK) is None


@pytest.mark.parametrize("skips_finalize", [True, False])
def test_the_result_of_a_search_ends_its_stop_messages(ends, monkeypatch, skips_finalize):
    """The trials of the next search in this process have the same numbers."""
    coordinator, worker = ends
    skipped = []
    monkeypatch.setattr("mpi_opt.messages.links.process_end.skip_finalize", skipped.append)
    for message in (Stop(0), Leave(1)):
        coordinator.send(0, message)
    result = SearchResult(None, None, skips_finalize)
    worker.world.send(result, dest=0, tag=TO_RANK)
    assert worker.receive_result() == result
    assert worker.poll(STOP) is None
    assert skipped == [worker.world] * skips_finalize
