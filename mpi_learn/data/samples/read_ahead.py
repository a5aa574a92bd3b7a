"""Reading ahead: a thread reads the next piece while the current one is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Place = TypeVar("Place")
Piece = TypeVar("Piece")


class ReadAhead(Generic[Place, Piece]):
    """Reads pieces in a separate thread, one ahead of their use, until `close` ends the thread.

    Args:
        read: Reads the piece at a place. The `take` of this piece raises its exceptions. It may check `is_closed`
            regularly and end early when that is true.
    """

    def __init__(self, read: Callable[[Place], Piece]) -> None:
        self.is_closed = False
        self._read: Callable[[Place], Piece] | None = read
        self._thread = ThreadPoolExecutor(1, "reading ahead")
        self._asked: tuple[Place, Future[Piece]] | None = None

    def take(self, place: Place, following: Place | None) -> Piece:
        """Waits for the piece at `place`, and starts to read the `following` one.

        Another piece that was read ahead is dropped, for example when a training resumes at another position.
        """
        asked = self._asked
        future = asked[1] if asked is not None and asked[0] == place else self._submitted(place)
        self._asked = None if following is None else (following, self._submitted(following))
        return future.result()

    def close(self) -> None:
        """Waits for the current read, and ends the thread."""
        self.is_closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._asked = self._read = None  # breaks the reference cycle with the owner of `read`

    def _submitted(self, place: Place) -> Future[Piece]:
        if self._read is None:
            raise RuntimeError("no piece can be read after close()")
        return self._thread.submit(self._read, place)
