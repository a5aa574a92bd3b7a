"""Trials that a workload system runs, and hints of users: what others write to the store of a running search.

A job that ``ask`` has started may end hours later, when a search runs the study. Its result must be accepted then,
and the strategy must receive it; a refusal because of the lease would lose finished work.
"""

from __future__ import annotations

import time
from typing import final

from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.core.search_space.space import Hint
from mpi_opt.core.trial import TrialRecord
from mpi_opt.store.errors import StoreNotReadyError
from mpi_opt.study.reading import PastTrials

POLL_S = 1.0
"""The interval at which the store is read, in seconds."""


class ExternalTrials:
    """Knows which trials a workload system runs, and reads their outcomes from the store.

    Attributes:
        running: The numbers of the external trials that run.
    """

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self.running: set[int] = set()
        self._next_s = 0.0

    def resume(self, past: PastTrials) -> None:
        """Takes the running external trials from `past`."""
        self.running = set(past.external)

    def changed(self) -> list[TrialRecord]:
        """The external trials that have ended or were requeued since the last call."""
        if not self.running or time.monotonic() < self._next_s:
            return []
        self._next_s = time.monotonic() + POLL_S
        try:
            # not through `RetryingStore.read`, which would wait: these trials are not urgent
            records = self._store.store.trials(self._store.study_id, numbers=sorted(self.running))
        except StoreNotReadyError:  # the next call tries again
            return []
        changed = [record for record in records if record.state != "running"]
        self.running.difference_update(record.number for record in changed)
        return changed


@final
class HintReader:
    """Knows the hints of a study, in their order."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self._n_known, self._next_s = 0, 0.0

    def read(self) -> list[Hint] | None:
        """All hints, if there are some that the last call did not return; else None."""
        if time.monotonic() < self._next_s:
            return None
        self._next_s = time.monotonic() + POLL_S
        try:
            found = [Hint.from_text(text) for text in self._store.store.hints(self._store.study_id)]
        except StoreNotReadyError:  # the next call tries again
            return None
        if len(found) == self._n_known:
            return None
        self._n_known = len(found)
        return found

    def restart(self) -> None:
        """Returns all hints once more, for a new strategy."""
        self._n_known, self._next_s = 0, 0.0
