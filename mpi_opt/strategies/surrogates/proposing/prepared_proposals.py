"""Proposals that a thread prepares while trials run, for searches with too many blocks to wait for a model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar, final

Item = TypeVar("Item")

MIN_PREPARED, MAX_PREPARED = 8, 64
"""Limits of the number of items that are prepared at once."""


@final
class PreparedProposals(Generic[Item]):
    """Proposals that are prepared in the background: points, or their rows.

    Each preparation runs in a thread of its own, which ends with it, so that nothing needs to be closed.
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._n_requested = 0  # since the last preparation began
        self._preparation: Future[list[Item]] | None = None

    def pop(self) -> Item | None:
        """Removes and returns the next item; None if there is none."""
        self._n_requested += 1
        return self._items.popleft() if self._items else None

    def refill(self, make_task: Callable[[Sequence[Item], int], Callable[[], list[Item]]]) -> None:
        """Collects a finished preparation and starts the next one. Returns at once if one is still running.

        The items of the finished preparation replace those that remain.

        Args:
            make_task: Called here with the items that remain and the number of items to prepare. Returns the function
                that the thread calls.

        Raises:
            Exception: Whatever the finished preparation raised.
        """
        if self._preparation is not None:
            if not self._preparation.done():
                return
            preparation, self._preparation = self._preparation, None  # it is collected once, also if it raised
            self._items = deque(preparation.result())
        count = min(max(MIN_PREPARED, self._n_requested + self._n_requested // 4), MAX_PREPARED)
        self._n_requested = 0
        executor = ThreadPoolExecutor(1, "refit")
        self._preparation = executor.submit(make_task(tuple(self._items), count))
        executor.shutdown(wait=False)

    def wait(self) -> None:
        """Waits for a running preparation."""
        if self._preparation is not None:
            self._preparation.result()

    def clear(self) -> None:
        """Discards all items, also those of a running preparation."""
        self._preparation = None
        self._items.clear()
