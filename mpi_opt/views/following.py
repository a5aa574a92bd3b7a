"""Follows the search of this process from a thread that reads its store: for metrics and notices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.store import Store
from mpi_opt.study.status import SearchStatus
from mpi_opt.views.metrics_file import MetricsFile
from mpi_opt.views.notices import Notices

INTERVAL_S = 10.0
"""The interval between two reads of the status, in seconds."""


@contextmanager
def following(
    configuration: StudyConfiguration, restart_reason: str, note: Callable[[str], None]
) -> Iterator[Notices | None]:
    """Writes the file of metrics and sends notices while the block runs.

    Args:
        configuration: The study.
        restart_reason: Why the job of the search was started again; empty if it was not.
        note: Receives a line about each problem.

    Yields:
        The notices, for that of the end; None if the configuration wants none.

    Raises:
        ConfigurationError: The file of metrics cannot be written.
    """
    search = configuration.search
    notices = None if search.notify is None else Notices(search.notify, configuration, note)
    receivers: list[Callable[[SearchStatus], None]] = [] if notices is None else [notices.take]
    if search.metrics_file is not None:
        receivers.append(MetricsFile(Path(search.metrics_file)).take)
    if notices is not None and restart_reason:
        notices.send("restarted", restart_reason)
    thread = _Follower(configuration, receivers, note)
    if receivers:
        thread.start()
    try:
        yield notices
    finally:
        if receivers:
            thread.close()
        if notices is not None:
            notices.close()


class _Follower(threading.Thread):
    """Passes the status of a search to `receivers` at intervals, and once more at the end."""

    def __init__(
        self,
        configuration: StudyConfiguration,
        receivers: Sequence[Callable[[SearchStatus], None]],
        note: Callable[[str], None],
    ) -> None:
        super().__init__(name="following the search", daemon=True)
        self._url, self._study, self._receivers, self._note = configuration.store, configuration.study, receivers, note
        self._is_over = threading.Event()
        self._noted = ""

    def run(self) -> None:
        while not self._is_over.wait(INTERVAL_S):
            self._pass_on()

    def close(self) -> None:
        self._is_over.set()
        self.join()
        self._pass_on()

    def _pass_on(self) -> None:
        try:
            with Store.open(self._url, read_only=True) as store:
                status = SearchStatus.read(store, self._study)
            for receive in self._receivers:
                receive(status)
        except Exception as error:  # noqa: BLE001 - the store is locked, the disk is full; nothing may end the search
            if str(error) != self._noted:
                self._note(f"the status of the search cannot be read or written: {error}")
            self._noted = str(error)
