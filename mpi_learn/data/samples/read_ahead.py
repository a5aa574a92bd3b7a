"""Reading ahead: while one piece is used, the next is read by a thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Place = TypeVar("Place")
Piece = TypeVar("Piece")


class ReadAhead(Generic[Place, Piece]):
    """Reads pieces in a thread of its own, one ahead of whoever takes them. Used as a context, which ends the thread.

    Args:
        read: Reads the piece at a place; what it raises is raised by the `take` that wants this piece. It looks at
            `is_closed` now and then and may end early once that is true.
    """

    def __init__(self, read: Callable[[Place], Piece]) -> None:
        self.is_closed = False
        self._read: Callable[[Place], Piece] | None = read
        self._thread = ThreadPoolExecutor(1, "reading ahead")
        self._asked: tuple[Place, Future[Piece]] | None = None

    def take(self, place: Place, following: Place | None) -> Piece:
        """The piece at `place`, waited for if need be; from now on the `following` one is read.

        What was read ahead and is not wanted now, because a training goes on elsewhere, is dropped.
        """
        if self._asked is None or self._asked[0] != place:
            self._ask(place)
        _, future = self._asked
        self._asked = None
        if following is not None:
            self._ask(following)
        return future.result()

    def close(self) -> None:
        """Ends the thread, which is at most in the middle of one read."""
        self.is_closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._asked = self._read = None  # whoever made this can be given up without the garbage collector

    def __enter__(self) -> ReadAhead[Place, Piece]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, place: Place) -> None:
        self._asked = place, self._thread.submit(self._read, place)
