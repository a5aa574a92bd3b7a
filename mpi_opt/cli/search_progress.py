"""The progress of a search that runs in other processes, for its restarts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mpi_learn.job.restarts import WorkDone
from mpi_opt.cli.store_options import Changes
from mpi_opt.core.counted import counted
from mpi_opt.errors import MPILearnError
from mpi_opt.store.events import SEARCH_RESTARTED

if TYPE_CHECKING:
    from mpi_opt.configuration.configuration import StudyConfiguration
    from mpi_opt.store import Store
    from mpi_opt.store.records import StudyRecord


T = TypeVar("T")


class SearchProgress:
    """Reads the progress of a search from its store. The configuration is not read before it is needed."""

    def __init__(self, space: Path, changes: Changes) -> None:
        self._space, self._changes = space, changes
        self._renewed_at = ""

    def work_done(self) -> WorkDone | None:
        """The number of trials that have ended; None if the store cannot be read."""
        n = self._read(lambda store, study: study.n_ended)
        return None if n is None else WorkDone(n, f"{counted(n, 'trial')} ended so far")

    def n_restarts(self) -> int | None:
        """The number of restarts in the store; None if it cannot be read."""
        return self._read(lambda store, study: sum(event.kind == SEARCH_RESTARTED for event in store.events(study.id)))

    def is_alive(self) -> bool | None:
        """Whether the search has renewed or released its lease since the last call; None if the store cannot be read.

        A search that has released its lease is about to end: it writes its report, and its ranks leave.
        """
        renewed_at = self._read(_renewed_at)
        if renewed_at is None:
            return None
        before, self._renewed_at = self._renewed_at, renewed_at
        return renewed_at != before

    def notify_given_up(self, message: str) -> None:
        """Sends a notice if the configuration wants one, and waits for it."""
        from mpi_opt.views.following import Notices

        try:
            section = self._configuration.search.notify
        except (MPILearnError, OSError):
            return
        if section is not None:
            notices = Notices(section, self._configuration, lambda text: print(text, file=sys.stderr))
            notices.send("given_up", message)
            notices.close()

    @cached_property
    def _configuration(self) -> StudyConfiguration:
        from mpi_opt.configuration.read_study import read_study

        return read_study(self._space, self._changes)

    def _read(self, query: Callable[[Store, StudyRecord], T]) -> T | None:
        from mpi_opt.store import Store
        from mpi_opt.study.reading import read_record

        try:
            with Store.open(self._configuration.store, read_only=True) as store:
                return query(store, read_record(store, self._configuration.study))
        except (MPILearnError, OSError):  # not there yet, locked, or another search has made it unreadable
            return None


def _renewed_at(store: Store, study: StudyRecord) -> str:
    owner = store.leases.read(study.id)
    return "" if owner is None else owner.renewed_at
