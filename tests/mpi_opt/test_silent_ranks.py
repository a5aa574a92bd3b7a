"""Ranks that give no sign of life: when they are judged, and what the search does without them."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.blocks.faults import SilentRanks
from mpi_opt.coordinator.coordinator import Coordinator
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.limits import SearchLimits
from mpi_opt.core.objective import TrialSettings
from mpi_opt.core.trial import Outcome
from mpi_opt.errors import RanksLost
from mpi_opt.messages.messages import Alive, Assignment
from tests.mpi_opt.fakes import ListedStore, ListedStrategy, ScriptedLink
from tests.mpi_opt.outcomes import an_outcome


def test_a_rank_is_silent_after_the_limit_and_reported_once():
    silent = SilentRanks(80.0)
    assert silent.take(1000.0) == set()  # none was ever heard
    silent.hear(1, 1000.0)
    silent.hear(2, 1000.0)
    silent.hear(1, 1050.0)
    assert silent.take(1079.0) == set()
    assert silent.take(1090.0) == {2}
    assert silent.take(1110.0) == set()
    silent.hear(2, 1111.0)  # it has come back
    assert silent.take(1131.0) == {1}
    assert silent.take(1200.0) == {2}


def test_without_a_limit_no_rank_is_silent():
    silent = SilentRanks(None)
    silent.hear(1, 0.0)
    assert silent.take(1e9) == set()


def test_a_rank_gives_several_signs_of_life_within_the_limit():
    assert [TrialSettings(0, silence_s=limit_s).alive_s for limit_s in (None, 4.0, 1800.0)] == [None, 1.0, 60.0]


class SilentLink(ScriptedLink):
    """Rank 2 is heard once, and then runs its trial forever; rank 1 is heard all the time."""

    has_begun = False

    def receive(self, timeout_s, is_interrupted):
        time.sleep(0.001)
        heard = [(1, Alive()), *([] if self.has_begun else [(2, Alive())])]
        self.has_begun = True
        if self.waiting:
            return heard + super().receive(timeout_s, is_interrupted)
        of_rank_1 = [number for number, (rank, _) in self.assigned.items() if rank == 1]
        if not of_rank_1:
            return heard
        return [*heard, (1, self.run(self.assigned.pop(of_rank_1[0])[1]))]


def squares(assignment: Assignment) -> Outcome:
    return an_outcome(assignment.number, "complete", float(assignment.proposal.parameters["x"]) ** 2, None, 1.0)


def test_the_trial_of_a_silent_rank_runs_again_on_another_one():
    link = SilentLink(squares)
    pool, store = BlockPool(link, BlockMembership.of(BlockLayout(3, 1))), ListedStore()
    settings = SearchSettings(SearchLimits(4), silence_s=0.2)
    Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert sorted(attempt.number for attempt in store.finished) == [0, 1, 2, 3]
    assert {attempt.result.state for attempt in store.finished} == {"complete"}
    assert [(one.number, one.attempt, one.ranks) for one in store.finished if one.number == 1] == [(1, 2, "1")]
    assert store.events.count("rank_lost") == 1
    assert "rank 2, of block 1 on host1: no sign of life for 0.2 s (blocks.silence)" in store.details
    assert (2, "EndProcess") in link.called
    assert 2 not in link.dismissed


class NeverReady(ScriptedLink):
    """Each rank is heard once, before its block is ready, and then no more."""

    has_begun = False

    def receive(self, timeout_s, is_interrupted):
        time.sleep(0.001)
        heard = [] if self.has_begun else [(1, Alive()), (2, Alive())]
        self.has_begun = True
        return heard


def test_a_search_whose_ranks_are_silent_before_their_first_trial_may_start_again():
    pool = BlockPool(NeverReady(squares), BlockMembership.of(BlockLayout(3, 1)))
    settings = SearchSettings(SearchLimits(4), silence_s=0.1)
    with pytest.raises(RanksLost, match="every rank that could run a trial was lost; the same command continues"):
        Coordinator(pool, ListedStrategy(), ListedStore(), 1, settings).run()


def test_no_rank_is_given_up_because_rank_0_was_stopped(monkeypatch):
    """It may be stopped while it waits for messages; those that have come meanwhile arrive some receptions later."""
    stopped_s = 0.0

    class Stopped(SilentLink):
        def receive(self, timeout_s, is_interrupted):
            nonlocal stopped_s
            if self.assigned and not stopped_s:
                stopped_s = 3600.0
                return []
            return [(2, Alive()), *super().receive(timeout_s, is_interrupted)]

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stopped_s)
    monkeypatch.setattr("mpi_opt.coordinator.blocks.listening_clock.time", clock)
    pool, store = BlockPool(Stopped(squares), BlockMembership.of(BlockLayout(2, 1))), ListedStore()
    Coordinator(pool, ListedStrategy(), store, 1, SearchSettings(SearchLimits(4), silence_s=30.0)).run()
    assert "rank_lost" not in store.events
