"""Follows the search of this process from a thread that reads its store: for metrics and notices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.study.status import SearchStatus
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


class MetricsFile:
    """Writes the file; readers never see an incomplete one.

    Raises:
        ConfigurationError: The client library of Prometheus is not installed, or the folder does not exist.
    """

    def __init__(self, path: Path) -> None:
        where = "search.metrics_file"
        try:
            import prometheus_client
        except ImportError:
            cure = "pip install mpi-opt[metrics]"
            raise ConfigurationError("this needs prometheus_client", where=where, cure=cure) from None
        if not path.parent.is_dir():
            raise ConfigurationError(f"there is no folder {path.parent}", where=where, cure="create it")
        self.path, self._client = path, prometheus_client

    def take(self, status: SearchStatus) -> None:
        """Writes the metrics of `status`.

        Raises:
            OSError: The file cannot be written.
        """
        registry = self._client.CollectorRegistry()

        def add(name: str, meaning: str, value: float | None) -> None:
            if value is not None:
                gauge = self._client.Gauge(f"mpi_opt_{name}", meaning, ["study"], registry=registry)
                gauge.labels(status.study).set(value)

        trials = self._client.Gauge("mpi_opt_trials", "Trials by state.", ["study", "state"], registry=registry)
        for state, n in status.trials.items():
            trials.labels(status.study, state).set(n)
        n_busy = sum(block.number is not None for block in status.blocks)
        blocks = self._client.Gauge("mpi_opt_blocks", "Blocks of ranks.", ["study", "state"], registry=registry)
        blocks.labels(status.study, "busy").set(n_busy)
        blocks.labels(status.study, "idle").set(len(status.blocks) - n_busy)
        add("trials_wanted", "Number of trials of the study.", status.wanted)
        add("trials_per_hour", "Trials that end per hour.", status.trials_per_hour)
        add("best_figure_of_merit", "The best figure of merit.", status.best)
        add("restarts", "How often the job of the search was started again.", status.n_restarts)
        add("running", "1 while a search runs the study, else 0.", status.activity == "running")
        add("last_trial_ended_timestamp_seconds", "When a trial has ended last.", _timestamp(status.last_ended_at))
        add("sign_of_life_timestamp_seconds", "The last sign of life of rank 0.", _timestamp(status.sign_of_life))
        add(
            "expected_end_timestamp_seconds",
            "When the study will probably be finished.",
            _timestamp(status.expected_end),
        )
        self._client.write_to_textfile(str(self.path), registry)


def _timestamp(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()
