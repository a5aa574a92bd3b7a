"""Follows the search of this process from a thread that reads its store: for metrics and notices.

The command of ``notify`` receives the environment of the search without the variables of MPI, these variables, and the
message as its standard input:

| variable | content |
|---|---|
| `MPI_OPT_EVENT` | `finished`, `stopped`, `failed`, `restarted`, `stalled` or `given_up` |
| `MPI_OPT_STUDY`, `MPI_OPT_STORE` | the name of the study, and its store without passwords |
| `MPI_OPT_MESSAGE` | the message, one line |
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from mpi_learn.cli.terminal import duration
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.sections import NotifySection
from mpi_opt.core.trial import State
from mpi_opt.errors import ConfigurationError, without_passwords
from mpi_opt.store import Store
from mpi_opt.store.records import readable
from mpi_opt.study.status import SearchStatus

INTERVAL_S = 10.0
"""The interval between two reads of the status, in seconds."""


@contextmanager
def following(
    configuration: StudyConfiguration, restart_reason: str, note: Callable[[str], None]
) -> Iterator[Notices | None]:
    """Writes the file of metrics and sends notices while the block runs.

    Args:
        configuration: The study.
        restart_reason: As in `Plan`.
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
        notices.send("restarted", restart_reason.replace("\n", "; "))
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
        self._is_over, self._has_read = threading.Event(), False
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
            self._has_read = True
            for receive in self._receivers:
                receive(status)
        except Exception as error:  # noqa: BLE001 - the store is locked, the disk is full; nothing may end the search
            # a search that ends before it has a store says why itself
            if str(error) != self._noted and (self._has_read or not self._is_over.is_set()):
                self._note(f"the status of the search cannot be read or written: {error}")
            self._noted = str(error)


class MetricsFile:
    """Writes the file; readers never see an incomplete one.

    Raises:
        ConfigurationError: The client library of Prometheus is not installed, or the file cannot be written.
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
        if path.is_dir() or not os.access(path.parent, os.W_OK):  # the file is written beside its name, then renamed
            cure = "name a file in a folder in which you may create files"
            raise ConfigurationError(f"{path} cannot be written", where=where, cure=cure)
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
        for state in get_args(State):  # also those without trials: a line that ends would not become 0
            trials.labels(status.study, state).set(status.trials.get(state, 0))
        n_busy = sum(block.number is not None for block in status.blocks)
        blocks = self._client.Gauge("mpi_opt_blocks", "Blocks of ranks.", ["study", "state"], registry=registry)
        blocks.labels(status.study, "busy").set(n_busy)
        blocks.labels(status.study, "idle").set(len(status.blocks) - n_busy)
        add("trials_wanted", "Number of trials of the study.", status.wanted)
        add("trials_per_hour", "Trials that end per hour.", status.trials_per_hour)
        add("best_figure_of_merit", "The best figure of merit; of several, the first.", status.best)
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


Event = Literal["finished", "stopped", "failed", "restarted", "stalled", "given_up"]

LEAST_STALL_S = 60.0
"""A search of short trials counts as stalled only after this time without a result, in seconds."""

END_S = 5.0
"""The end of a search waits at most this long for its last notice, in seconds; the command then continues alone."""

OF_MPI = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "MPI_LEARN_")
"""Prefixes of variables that make a process a rank, or a part of this job."""


class Notices:
    """Runs the command of the user. Neither its duration nor its failure has an effect on the search.

    Args:
        section: The command and its limits.
        configuration: The study.
        note: Receives a line if the command fails.
    """

    def __init__(self, section: NotifySection, configuration: StudyConfiguration, note: Callable[[str], None]) -> None:
        self._section, self._note = section, note
        self._study, self._store = configuration.study, without_passwords(configuration.store)
        self._threads: list[threading.Thread] = []
        self._stalled_at: str | None = None

    def send(self, event: Event, message: str) -> None:
        """Runs the command in a thread. The message begins with the name of the study."""
        # errors of user code may contain characters that neither a variable nor a terminal can have
        text = "".join(char if char.isprintable() else " " for char in f"{self._study}: {message}")
        line = without_passwords(" ".join(text.split()))
        thread = threading.Thread(target=self._run, args=(event, line), name=f"notice {event}", daemon=True)
        thread.start()
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]

    def take(self, status: SearchStatus) -> None:
        """Sends a notice, once, if nothing has ended for `stalled` times the median duration of trials."""
        if status.activity != "running" or status.median_duration_s is None or status.since is None:
            return
        if status.n_ended >= status.wanted and (status.new_runs is None or status.new_runs.n_ended == 0):
            return  # the best points will run again, perhaps for longer than the median
        last = max(status.last_ended_at or status.since, status.since)
        limit_s = max(self._section.stalled * status.median_duration_s, LEAST_STALL_S)
        idle_s = (datetime.now(UTC) - datetime.fromisoformat(last)).total_seconds()
        if idle_s > limit_s and last != self._stalled_at:
            self._stalled_at = last
            message = (
                f"no trial has ended for {duration(idle_s)}; trials take {duration(status.median_duration_s)} (median)"
            )
            if busy := [block for block in status.blocks if block.number is not None]:
                first = min(busy, key=lambda block: block.since)
                message += f"; trial {first.number} runs longest, on {first.hosts}, since {readable(first.since)} UTC"
            self.send("stalled", message)

    def close(self) -> None:
        """Waits up to `END_S` for commands that still run."""
        until = time.monotonic() + END_S
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))

    def _run(self, event: Event, message: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_MPI)}
        environment |= {
            "MPI_OPT_EVENT": event,
            "MPI_OPT_STUDY": self._study,
            "MPI_OPT_STORE": self._store,
            "MPI_OPT_MESSAGE": message,
        }
        try:
            # a session of its own: Ctrl-C at the terminal does not end it, and its children can be killed with it
            process = subprocess.Popen(
                self._section.command, shell=True, env=environment, stdin=subprocess.PIPE, text=True, errors="replace",
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:  # such as a name that the encoding of this host does not have
            self._note(f"the command of search.notify cannot be started: {error}")
            return
        try:
            process.communicate(f"{message}\n", timeout=self._section.timeout_s)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._note(f"the command of search.notify took longer than {self._section.timeout_s:g} s and was killed")
            return
        if process.returncode:
            self._note(f"the command of search.notify ended with status {process.returncode} ({event})")
