"""Non-blocking messages between two neighbouring stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from mpi_learn.mpi.communicators import Communicator, Request, tag_of, wait

ARRAY, MISSING = 31, 32
"""Tags: an array; an empty message in place of an array that could not be computed."""


class Link:
    """The messages to and from one neighbour. Both send the same number of arrays, in the order of their schedules.

    A stage that fails sends empty messages in place of arrays until its schedule ends. No neighbour therefore waits
    for it in vain, and no message is left over.
    """

    def __init__(self, chain: Communicator, neighbour: int) -> None:
        self._chain, self._neighbour = chain, neighbour
        self._shapes: deque[tuple[int, ...]] = deque()
        self._next: tuple[Request, np.ndarray] | None = None
        self._sent: list[tuple[Request, np.ndarray]] = []  # MPI reads the arrays until the request has ended

    def expect(self, shapes: Iterable[tuple[int, ...]]) -> None:
        """Announces the shapes of the arrays that the neighbour will send in a step."""
        self._shapes.extend(shapes)
        self._post()

    def receive(self) -> np.ndarray | None:
        """Waits for the next array, float32; None if the neighbour could not compute it."""
        assert self._next is not None
        request, array = self._next
        has_array = tag_of(request) == ARRAY
        self._post()
        return array if has_array else None

    def send(self, array: np.ndarray | None) -> None:
        """Begins to send an array, or that there is none. The array must not change before `finish`."""
        self._sent = [pair for pair in self._sent if not pair[0].Test()]
        content = np.empty(0, np.float32) if array is None else np.ascontiguousarray(array, np.float32)
        tag = MISSING if array is None else ARRAY
        self._sent.append((self._chain.Isend(content, dest=self._neighbour, tag=tag), content))

    def finish(self) -> None:
        """Waits until everything has been sent."""
        for request, _ in self._sent:
            wait(request)
        self._sent.clear()

    def _post(self) -> None:
        """Begins to receive the next array, while this rank computes."""
        self._next = None
        if self._shapes:
            buffer = np.empty(self._shapes.popleft(), np.float32)
            self._next = self._chain.Irecv(buffer, source=self._neighbour), buffer
