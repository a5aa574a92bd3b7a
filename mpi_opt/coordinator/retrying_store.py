"""A store that retries: a full disk or a locked database pauses a search and does not end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mpi_opt.core.attempt import Attempt
from mpi_opt.store.errors import StoreConflictError, StoreNotReadyError
from mpi_opt.store.records import GivenUp
from mpi_opt.store.store import Store
from mpi_opt.study.progress import Progress

T = TypeVar("T")

PAUSE_S = 2.0
"""The pause before a retry, in seconds."""


class RetryingStore:
    """A store, for one study. Each writing call returns after its commit.

    Args:
        store: The store.
        study_id: The study.
        progress: Receives the reason for waiting, once per call.
        must_end: Whether the search must end now. The error of the store is then raised instead of a retry.
        check_lease: Called before each write; raises `StudyOwnedError` if another search has taken the study over.
    """

    def __init__(
        self,
        store: Store,
        study_id: int,
        progress: Progress,
        must_end: Callable[[], bool],
        check_lease: Callable[[], None] = lambda: None,
    ) -> None:
        self.store, self.study_id, self.progress = store, study_id, progress
        self._must_end, self._check_lease = must_end, check_lease

    def record(self, ended: Sequence[Attempt], started: Sequence[Attempt] = ()) -> None:
        """Records outcomes, and trials as running, in one transaction."""
        n_calls = 0

        def call() -> None:
            nonlocal n_calls
            n_calls += 1
            try:
                self.store.record(self.study_id, ended, started)
            except StoreConflictError:
                # the connection to the server may have been lost after the commit, before its answer
                if n_calls == 1 or not self._has(ended, started):
                    raise

        self._write(call)

    def requeue(self, numbers: Sequence[int], why: str, outcome: GivenUp = "lost") -> None:
        """Puts running trials back into the queue."""
        self._write(lambda: self.store.requeue(self.study_id, numbers, why, outcome))

    def requeue_killed(self, numbers: Sequence[int], why: str, died_at: str | None) -> None:
        """Does the same with trials of a search that was killed at the time `died_at`, or shortly before now."""
        self._write(lambda: self.store.requeue(self.study_id, numbers, why, "killed", died_at))

    def mark_lost(self, killed: Sequence[tuple[int, int]]) -> None:
        """Records attempts, given by trial and attempt, as lost instead of killed."""
        self._write(lambda: self.store.mark_lost(self.study_id, killed))

    def event(self, kind: str, detail: str) -> None:
        """Records an event of the search."""
        self._write(lambda: self.store.event(self.study_id, kind, detail))

    def choose(self, values: dict[str, Any]) -> None:
        """Records values of the section ``training:`` that the search has chosen for all trials."""
        self._write(lambda: self.store.choose(self.study_id, values))

    def read(self, query: Callable[[Store, int], T]) -> T:
        """Returns the value of `query`, a function of the store and the study."""
        return self._retry(lambda: query(self.store, self.study_id))

    def move_to_copy(self) -> bool:
        """Writes to a copy of the store from now on; returns whether it could be copied, with this study."""
        copy = self.store.rescue()
        if copy is None or not any(study.id == self.study_id for study in copy.studies()):
            return False
        # the lease is in the lost file, and no other search has the copy
        self.store, self._check_lease = copy, lambda: None
        return True

    def _has(self, ended: Sequence[Attempt], started: Sequence[Attempt]) -> bool:
        """Whether the store has these outcomes, and these attempts of this search as running."""
        numbers = [one.number for one in (*ended, *started)]
        known = self.store.attempts(self.study_id, numbers)
        outcomes = {(one.number, one.attempt, one.outcome) for one in known}
        running = {(one.number, one.attempt, one.block, one.ranks) for one in known if one.outcome is None}
        return outcomes.issuperset((one.number, one.attempt, one.result.state) for one in ended) and running.issuperset(
            (one.number, one.attempt, one.block, one.ranks) for one in started
        )

    def _write(self, call: Callable[[], None]) -> None:
        self._retry(call, self._check_lease)

    def _retry(self, call: Callable[[], T], check: Callable[[], None] = lambda: None) -> T:
        is_noted = False
        while True:
            try:
                check()  # also before each retry: another search may have taken the study over meanwhile
                return call()
            except StoreNotReadyError as error:
                if self._must_end():
                    raise
                if not is_noted:
                    self.progress.note(f"the search waits for its store: {error}")
                is_noted = True
                time.sleep(PAUSE_S)
