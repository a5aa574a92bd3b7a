"""How a search reads the outcomes of trials that a workload system runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mpi_opt.coordinator.trials import from_others
from mpi_opt.coordinator.trials.from_others import POLL_S, ExternalTrials
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.trial import State, TrialRecord
from mpi_opt.store.errors import StoreLockedError
from mpi_opt.study.reading import PastTrials
from tests.mpi_opt.fakes import ListedStore


class CountingStore(ListedStore):
    """Counts how often trials are read; can be locked."""

    n_reads, is_locked = 0, False

    def trials(self, study_id: int, states=None, numbers=None) -> list[TrialRecord]:
        self.n_reads += 1
        if self.is_locked:
            raise StoreLockedError("locked")
        return super().trials(study_id, states, numbers)


def records(*states: State) -> list[TrialRecord]:
    return [TrialRecord(number, state, {}) for number, state in enumerate(states)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now_s=100.0, monotonic=lambda: clock.now_s)
    monkeypatch.setattr(from_others, "time", clock)
    return clock


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(records("running", "running", "running", "running"))


@pytest.fixture
def trials(store: CountingStore) -> ExternalTrials:
    """Trials 0 to 2 are external, trial 3 is not."""
    trials = ExternalTrials(SimpleNamespace(store=store, study_id=1))
    trials.resume(PastTrials([], [], FiguresOfMerit(), 1, frozenset((0, 1, 2))))
    return trials


def test_a_trial_that_ends_or_is_requeued_is_returned_once(trials, store, clock):
    assert trials.changed() == []
    store.records = records("complete", "queued", "running", "complete")
    clock.now_s += POLL_S
    assert [record.number for record in trials.changed()] == [0, 1]
    assert trials.running == {2}
    clock.now_s += POLL_S
    assert trials.changed() == []


def test_the_store_is_read_once_per_interval_and_only_while_trials_run(trials, store, clock):
    for _ in range(5):
        trials.changed()
        clock.now_s += POLL_S / 4
    assert store.n_reads == 2
    trials.resume(PastTrials([], [], FiguresOfMerit(), 1))
    clock.now_s += POLL_S
    assert trials.changed() == []
    assert store.n_reads == 2


def test_a_store_that_is_not_ready_is_read_again_later(trials, store, clock):
    store.records, store.is_locked = records("complete", "running", "running"), True
    assert trials.changed() == []
    store.is_locked = False
    clock.now_s += POLL_S
    assert [record.number for record in trials.changed()] == [0]
