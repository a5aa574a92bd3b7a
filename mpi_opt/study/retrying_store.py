"""A store that is waited for: a full disk or somebody who holds the database pauses a search, and does not end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from mpi_opt.store.errors import StoreNotReadyError
from mpi_opt.store.records import Finish, Start
from mpi_opt.study.progress import Progress

if TYPE_CHECKING:
    from mpi_opt.store.store import Store

PAUSE_S = 2.0
"""How long to wait before trying again, in seconds."""


class PatientStore:
    """The writing half of a study's store. Each call returns when its facts are committed.

    Args:
        store: Where to write.
        study_id: The study in it.
        progress: Told, once a call, why the search waits.
        must_end: Whether the search has no time to wait: then the store's error is raised.
    """

    def __init__(self, store: Store, study_id: int, progress: Progress, must_end: Callable[[], bool]) -> None:
        self.store, self.study_id, self.progress, self._must_end = store, study_id, progress, must_end

    def start(self, starts: Sequence[Start]) -> None:
        """Trials begin."""
        self._try(lambda: self.store.start(self.study_id, starts))

    def finish(self, finished: Sequence[Finish]) -> None:
        """Trials have ended."""
        self._try(lambda: self.store.finish(self.study_id, finished))

    def requeue(self, numbers: Iterable[int], why: str) -> None:
        """Trials that ran will be run again."""
        self._try(lambda: self.store.requeue(self.study_id, list(numbers), why))

    def event(self, kind: str, detail: str) -> None:
        """Something happened that is worth telling."""
        self._try(lambda: self.store.event(self.study_id, kind, detail))

    def _try(self, write: Callable[[], None]) -> None:
        is_told = False
        while True:
            try:
                return write()
            except StoreNotReadyError as error:
                if self._must_end():
                    raise
                if not is_told:
                    self.progress.note(f"the search waits for its store: {error}")
                is_told = True
                time.sleep(PAUSE_S)
