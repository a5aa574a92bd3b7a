"""Outcomes and starts of trials that the store refuses because another process has changed these trials."""

from __future__ import annotations

import pytest

from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.study_state import StudyState
from mpi_opt.coordinator.trials.trial_queue import TrialQueue
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.limits import SearchLimits
from mpi_opt.core.trial import Proposal
from mpi_opt.store.errors import StoreConflictError, StoreNotReadyError
from mpi_opt.store.records import AttemptRecord
from mpi_opt.study.progress import Progress
from tests.mpi_opt.fakes import ListedStore, ListedStrategy
from tests.mpi_opt.outcomes import an_outcome


class ChangedStore(ListedStore):
    """Another search has ended or started the trials `changed`."""

    def __init__(self, changed: set[int]) -> None:
        super().__init__()
        self.changed, self.n_refused = changed, 0

    def _check(self, attempts) -> None:
        if self.changed & {one.number for one in attempts}:
            self.n_refused += 1
            assert self.n_refused < 5, "the same is tried for ever"
            raise StoreConflictError("another process has changed this trial")

    def start(self, study_id, starts):
        self._check(starts)
        super().start(study_id, starts)

    def finish(self, study_id, finished):
        self._check(finished)
        super().finish(study_id, finished)


@pytest.fixture
def state(request) -> StudyState:
    """That of a search of which trials 0 and 1 have just ended."""
    settings, queue = SearchSettings(SearchLimits(5)), TrialQueue(5)
    queue.mark_running(running := [Attempt(Proposal(number, {}), block=number) for number in range(2)])
    for attempt in running:
        queue.end(attempt, an_outcome(attempt.number, "complete", 0.5))
    store = RetryingStore(ChangedStore(request.param), 1, settings.progress, lambda: False)
    return StudyState(store, ListedStrategy(), queue, settings)


def numbers(attempts) -> list[int]:
    return [one.number for one in attempts]


def recorded(state: StudyState) -> list[int]:
    return numbers(state._store.read(lambda store, study_id: store.finished))


@pytest.mark.parametrize("ranks", ["1", "an external program"])
def test_outcomes_whose_commit_has_lost_the_connection_are_recorded(ranks, monkeypatch):
    """The second call finds what the first one has committed, unless another process has started one of the trials."""
    monkeypatch.setattr("mpi_opt.coordinator.retrying_store.PAUSE_S", 0.0)
    ended = Attempt(Proposal(0, {}), 2, 5, "1", outcome=an_outcome(0, "complete", 0.5))
    started = Attempt(Proposal(1, {}), 1, 5, "1")
    known = [
        AttemptRecord(0, 2, 5, "1", "", "", "", "complete", ""),
        AttemptRecord(1, 1, 5, ranks, "", "", "", None, ""),
    ]
    problems = [StoreNotReadyError("the connection was lost"), StoreConflictError("changed")]

    class Lost(ListedStore):
        def record(self, study_id, ended, started=()):
            raise problems.pop(0)

        def attempts(self, study_id, numbers):
            assert numbers == [0, 1]
            return known

    store = RetryingStore(Lost(), 1, Progress(), lambda: False)
    if ranks == "1":
        store.record([ended], [started])
    else:
        with pytest.raises(StoreConflictError):
            store.record([ended], [started])
    assert problems == []


@pytest.mark.parametrize("state", [{1}], indirect=True)
@pytest.mark.parametrize("starts", [[], [2]], ids=["alone", "with a start"])
def test_an_outcome_of_a_trial_that_another_search_has_ended_ends_this_search(state, starts):
    ended = list(state._queue.ended)
    with pytest.raises(StoreConflictError):
        state.record(ended, [Attempt(Proposal(number, {}), block=0) for number in starts])
    assert recorded(state) == []
    assert state._queue.ended == ended
    assert not state._queue.running


@pytest.mark.parametrize("state", [{2}], indirect=True)
def test_outcomes_are_recorded_although_another_search_has_started_the_next_trial(state):
    with pytest.raises(StoreConflictError):
        state.record(list(state._queue.ended), [Attempt(Proposal(2, {}), block=0)])
    assert recorded(state) == [0, 1]
    assert not state._queue.ended and not state._queue.running


@pytest.mark.parametrize("state", [{1}], indirect=True)
def test_the_last_outcomes_are_refused_if_the_search_had_not_given_the_trial_back(state):
    """Only a trial that the search has requeued may be taken by a workload system."""
    with pytest.raises(StoreConflictError):
        state.record_first()
    assert recorded(state) == []
