"""The form of the vectors that follow a header from one rank to another: unchanged, or encoded.

Both ranks hold a transfer of the same kind for each direction: one sends with it, the other receives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from mpi_learn.compression.encodings import ENCODINGS, Encoding
from mpi_learn.compression.error_feedback import ErrorFeedback, KnownWeights
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.mpi.communicators import Communicator, receive_into

VECTOR = 17
"""The tag of a vector."""


class Transfer(ABC):
    """One direction between two ranks."""

    def begin_epoch(self, weights: np.ndarray) -> None:  # noqa: B027 - most transfers do not depend on weights
        """Begins an epoch, with the weights of the last `Algorithm.synchronize`, (n,) float32."""

    @abstractmethod
    def message(self, vector: np.ndarray, weight: float) -> np.ndarray:
        """The message for `vector`, (n,) float32, which contains the factor `weight`. Its content is lost.

        Call it before the header is sent: if it fails, the receiver does not wait for the message.
        """

    @abstractmethod
    def receive(self, comm: Communicator, vector: np.ndarray, source: int, weight: float) -> None:
        """Waits for a vector of the rank `source` and writes it into `vector`; `weight` is that of its header."""

    def rank_state(self) -> dict[str, np.ndarray]:
        """As `Algorithm.rank_state`."""
        return {}


class Whole(Transfer):
    """Float32, unchanged."""

    def message(self, vector: np.ndarray, weight: float) -> np.ndarray:
        return vector

    def receive(self, comm: Communicator, vector: np.ndarray, source: int, weight: float) -> None:
        receive_into(comm, vector, source)


class EncodedChanges(Transfer):
    """Gradients, or changes of weights, encoded with error feedback; the counts of a gradient are sent unchanged.

    What is held back is a mean over samples, as in `EncodedSum`.

    Args:
        encoding: The form of the messages.
        layout: The layout of the vector.
    """

    def __init__(self, encoding: Encoding, layout: FlatLayout) -> None:
        self._layout, self._feedback = layout, ErrorFeedback(encoding, layout.size)

    def message(self, vector: np.ndarray, weight: float) -> np.ndarray:
        counts, resting = vector[self._layout.counts], self._layout.resting(vector)
        if weight != 0:
            vector /= weight
        else:  # the receiver would not use it
            resting = np.arange(vector.size)
        vector[self._layout.counts] = 0
        return np.append(counts.view(np.uint8), self._feedback.encode(vector, resting))

    def receive(self, comm: Communicator, vector: np.ndarray, source: int, weight: float) -> None:
        encoding, counts = self._feedback.encoding, self._layout.counts
        message = np.empty(4 * counts.size + encoding.n_bytes(vector.size), np.uint8)
        receive_into(comm, message, source)
        np.multiply(encoding.decode(message[4 * counts.size :], vector.size), np.float32(weight), out=vector)
        vector[counts] = message[: 4 * counts.size].view(np.float32)

    def rank_state(self) -> dict[str, np.ndarray]:
        return {"held_back": self._feedback.held_back}


class EncodedWeights(Transfer):
    """Weights, as encoded differences from those that the receiver knows: at first those of the epoch's begin."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._known: KnownWeights | None = None

    def begin_epoch(self, weights: np.ndarray) -> None:
        self._known = KnownWeights(self._encoding, weights)

    def message(self, vector: np.ndarray, weight: float) -> np.ndarray:
        assert self._known is not None, "an epoch has begun"
        return self._known.encode(vector)

    def receive(self, comm: Communicator, vector: np.ndarray, source: int, weight: float) -> None:
        message = np.empty(self._encoding.n_bytes(vector.size), np.uint8)
        receive_into(comm, message, source)
        if self._known is None:  # the first epoch has failed at its beginning: the vector is not used
            return
        self._known.follow(message)
        vector[:] = self._known.values


@dataclass(frozen=True)
class Transfers:
    """Both directions between a worker and its master, or a master and the first one.

    Attributes:
        up: Towards the first master.
        down: The answers.
    """

    up: Transfer
    down: Transfer

    @classmethod
    def make(cls, compression: str, layout: FlatLayout, *, sends_weights: bool) -> Transfers:
        """The transfers of one rank, which it uses with one other.

        Args:
            compression: The value of the key.
            layout: The layout of the vectors.
            sends_weights: Whether weights are sent up, and changes down; else changes up, and weights down.
        """
        if compression == "none":
            return cls(Whole(), Whole())
        encoding = ENCODINGS[compression]
        changes, weights = EncodedChanges(encoding, layout), EncodedWeights(encoding)
        return cls(weights, changes) if sends_weights else cls(changes, weights)

    def begin_epoch(self, weights: np.ndarray) -> None:
        """See `Transfer.begin_epoch`."""
        self.up.begin_epoch(weights)
        self.down.begin_epoch(weights)

    def rank_state(self, name: str) -> dict[str, np.ndarray]:
        """As `Algorithm.rank_state`; every name begins with `name`."""
        return {f"{name}.{key}": array for one in (self.up, self.down) for key, array in one.rank_state().items()}
