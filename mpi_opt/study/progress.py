"""Who is told what happens in a search, to show it; and the one who shows nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mpi_opt.core.space import Parameters
from mpi_opt.core.trial import Outcome

if TYPE_CHECKING:
    from mpi_opt.study.study import Study


class Progress(Protocol):
    """Called by the coordinator; must be quick."""

    def resumed(self, study: Study) -> None:
        """The study has trials of earlier runs."""

    def ready(self, block: int) -> None:
        """A block can take trials."""

    def started(self, block: int, number: int) -> None:
        """A block begins a trial."""

    def finished(self, block: int, outcome: Outcome, parameters: Parameters) -> None:
        """A trial ended."""

    def given_up(self, block: int) -> None:
        """A block is no more, and its trial, if it had one, will be run again."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def tick(self) -> None:
        """Time has passed."""


class Silence(Progress):
    """Shows nothing."""
