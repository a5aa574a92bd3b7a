"""The observer interface of a search, which the progress displays implement, and an observer that shows nothing."""

from __future__ import annotations

from collections.abc import Sequence

from mpi_opt.core.trial import Outcome, Proposal, TrialRecord


class Progress:
    """Receives the events of a search and ignores them. Methods that override these must return quickly."""

    def begins(self, text: str) -> None:
        """The search begins: `text` says which study, which store, and how many trials exist and will run."""

    def resumed(self, ended: Sequence[TrialRecord]) -> None:
        """The search continues a study. `ended` are its finished trials, in the order in which they ended."""

    def ready(self, block: int) -> None:
        """The block is ready for trials."""

    def started(self, block: int, number: int) -> None:
        """The block has started the trial `number`."""

    def finished(self, block: int, outcome: Outcome, proposal: Proposal) -> None:
        """The trial of `proposal` has ended on the block, or externally (`EXTERNAL_BLOCK`)."""

    def requeued(self, block: int) -> None:
        """The trial of the block is queued again; the block still exists."""

    def given_up(self, block: int) -> None:
        """The block is lost or retired. Its trial, if any, is queued again or fails."""

    def dissolved(self, block: int) -> None:
        """The ranks of the block form another one. Its trial, if any, continues on some of them."""

    def note(self, text: str) -> None:
        """There is a message for the user."""

    def tick(self) -> None:
        """Time has passed; called many times per second."""


class NotesOnly(Progress):
    """Passes the messages for the user, and the passing time, to another observer; the trials are not its own."""

    def __init__(self, observer: Progress) -> None:
        self._observer = observer

    def note(self, text: str) -> None:
        self._observer.note(text)

    def tick(self) -> None:
        self._observer.tick()
