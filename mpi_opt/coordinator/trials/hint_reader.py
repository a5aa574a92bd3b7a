"""Reads the hints that users give to a running study with ``mpi-opt hint``."""

from __future__ import annotations

import time
from typing import final

from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.core.search_space.space import Hint
from mpi_opt.store.errors import StoreNotReadyError

POLL_S = 1.0
"""The interval at which the hints are read, in seconds."""


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
