"""Reading ahead: a thread reads the next piece while the current one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Place = TypeVar("Place")
Piece = TypeVar("Piece")


class ReadAhead(Generic[Place, Piece]):
    """Reads pieces in a separate thread, one ahead of their use, until `close` ends the thread.

    Args:
        read: Reads the piece at a place. Its exceptions are raised when the piece is used. It may check `is_closed`
            regularly and end early when that is true.
    """

    def __init__(self, read: Callable[[Place], Piece]) -> None:
        self.is_closed = False
        self._read: Callable[[Place], Piece] | None = read
        self._thread = ThreadPoolExecutor(1, "reading ahead")
        self._asked: tuple[Place, Future[Piece]] | None = None

    def pieces(self, places: Iterable[Place], then: Place | None = None) -> Iterator[tuple[Place, Piece]]:
        """Yields each of `places` with its piece. The last step also starts to read the piece at `then`.

        A piece that was read ahead and is not the next one is dropped, for example when a training resumes at another
        position.
        """
        remaining = iter(places)
        place = next(remaining, None)
        while place is not None:
            following = next(remaining, None)
            yield place, self._take(place, then if following is None else following)
            place = following

    def _take(self, place: Place, following: Place | None) -> Piece:
        """Waits for the piece at `place`, and starts to read the `following` one."""
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
