"""The log of a search as JSON lines (``--log-json``)."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpi_opt.core.trial import Outcome, Proposal
from mpi_opt.errors import without_passwords
from mpi_opt.store.records import now
from mpi_opt.study.progress import Progress
from mpi_opt.study.study import Study


class JsonLog(Progress):
    """Appends one JSON object per event to a file, and passes the events on to another observer.

    Each object has the keys ``at`` (UTC, ISO-8601) and ``event``: ``begins``, ``block_ready``, ``trial_started``,
    ``trial_ended``, ``trial_requeued``, ``block_given_up``, ``block_dissolved``, ``note`` or ``ended``.
    """

    def __init__(self, path: Path, observer: Progress) -> None:
        self._file, self._observer = path.open("a", encoding="utf-8", buffering=1), observer

    def begins(self, text: str) -> None:
        self._write("begins", text=text)
        self._observer.begins(text)

    def resumed(self, study: Study) -> None:
        self._observer.resumed(study)

    def ready(self, block: int) -> None:
        self._write("block_ready", block=block)
        self._observer.ready(block)

    def started(self, block: int, number: int) -> None:
        self._write("trial_started", block=block, trial=number)
        self._observer.started(block, number)

    def finished(self, block: int, outcome: Outcome, proposal: Proposal) -> None:
        self._write(
            "trial_ended",
            block=block,
            trial=outcome.number,
            state=outcome.state,
            figure_of_merit=outcome.figure_of_merit,
            duration_s=outcome.duration_s,
            parameters=dict(proposal.parameters),
            error=outcome.error,
        )
        self._observer.finished(block, outcome, proposal)

    def requeued(self, block: int) -> None:
        self._write("trial_requeued", block=block)
        self._observer.requeued(block)

    def given_up(self, block: int) -> None:
        self._write("block_given_up", block=block)
        self._observer.given_up(block)

    def dissolved(self, block: int) -> None:
        self._write("block_dissolved", block=block)
        self._observer.dissolved(block)

    def note(self, text: str) -> None:
        self._write("note", text=text)
        self._observer.note(text)

    def tick(self) -> None:
        self._observer.tick()

    def close(self) -> None:
        """Ends the log."""
        self._write("ended")
        with suppress(OSError):
            self._file.close()

    def _write(self, event: str, **content: Any) -> None:
        text = json.dumps({"at": now(), "event": event} | content, default=str)
        with suppress(OSError):  # a full disk is no reason to end a search
            self._file.write(without_passwords(text) + "\n")
