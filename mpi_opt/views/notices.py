"""Notices: a command of the user, such as one that sends a mail, runs when a search ends, restarts or stalls.

The command receives the environment of the search without the variables of MPI, these variables, and the message as its
standard input:

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
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.sections import NotifySection
from mpi_opt.errors import without_passwords
from mpi_opt.study.status import SearchStatus

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
        """Runs the command in a thread."""
        line = without_passwords(" ".join(message.split()))
        thread = threading.Thread(target=self._run, args=(event, line), name=f"notice {event}", daemon=True)
        thread.start()
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]

    def take(self, status: SearchStatus) -> None:
        """Sends a notice, once, if nothing has ended for `stalled` times the median duration of trials."""
        if status.activity != "running" or status.median_duration_s is None or status.since is None:
            return
        if status.n_ended >= status.wanted:  # the best points run again, in a study of their own
            return
        last = max(status.last_ended_at or status.since, status.since)
        limit_s = max(self._section.stalled * status.median_duration_s, LEAST_STALL_S)
        idle_s = (datetime.now(UTC) - datetime.fromisoformat(last)).total_seconds()
        if idle_s > limit_s and last != self._stalled_at:
            self._stalled_at = last
            usual = f"trials take {status.median_duration_s:.0f} s (median)"
            self.send("stalled", f"no trial has ended for {idle_s:.0f} s; {usual}")

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
                self._section.command, shell=True, env=environment, stdin=subprocess.PIPE, text=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
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
