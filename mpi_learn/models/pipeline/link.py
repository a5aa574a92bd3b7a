"""Non-blocking messages between two neighbouring stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import prod

import numpy as np

from mpi_learn.compression.encodings import EXACT, Encoding
from mpi_learn.mpi.communicators import Communicator, Request, tag_of, wait

ARRAY, MISSING = 31, 32
"""Tags: an array; an empty message in place of an array that could not be computed."""


class Link:
    """The messages to and from one neighbour. Both send the same number of arrays, in the order of their schedules.

    A stage that fails sends empty messages in place of arrays until its schedule ends. No neighbour therefore waits
    for it in vain, and no message is left over.

    Each array is encoded for itself. There is no error feedback: the error of one message would be added to the next
    one, which has the activations of other samples.
    """

    def __init__(self, chain: Communicator, neighbour: int) -> None:
        self._chain, self._neighbour = chain, neighbour
        self._shapes: deque[tuple[int, ...]] = deque()
        self._encoding: Encoding = EXACT
        self._next: tuple[Request, np.ndarray, tuple[int, ...]] | None = None
        self._sent: list[tuple[Request, np.ndarray]] = []  # MPI reads the arrays until the request has ended

    def begin(self, shapes: Iterable[tuple[int, ...]], encoding: Encoding) -> None:
        """Begins a schedule.

        Args:
            shapes: Those of the arrays that the neighbour will send.
            encoding: The form of the messages in both directions.
        """
        self._shapes.extend(shapes)
        self._encoding = encoding
        self._post()

    def receive(self) -> np.ndarray | None:
        """Waits for the next array, float32; None if the neighbour could not compute it."""
        assert self._next is not None
        request, message, shape = self._next
        has_array = tag_of(request) == ARRAY
        self._post()
        return self._encoding.decode(message, prod(shape)).reshape(shape) if has_array else None

    def send(self, array: np.ndarray | None) -> None:
        """Begins to send an array, or that there is none. The array must not change before `finish`."""
        self._sent = [pair for pair in self._sent if not pair[0].Test()]
        tag, message = MISSING, np.empty(0, np.uint8)
        if array is not None:
            tag, message = ARRAY, self._encoding.encode(np.ascontiguousarray(array, np.float32).ravel())
        self._sent.append((self._chain.Isend(message, dest=self._neighbour, tag=tag), message))

    def finish(self) -> None:
        """Waits until everything has been sent."""
        for request, _ in self._sent:
            wait(request)
        self._sent.clear()

    def _post(self) -> None:
        """Begins to receive the next array, while this rank computes."""
        self._next = None
        if self._shapes:
            shape = self._shapes.popleft()
            message = np.empty(self._encoding.n_bytes(prod(shape)), np.uint8)
            self._next = self._chain.Irecv(message, source=self._neighbour), message, shape
