"""The errors of one message are corrected by the next ones: of summed changes, and of weights that change slowly."""

from __future__ import annotations

import numpy as np

from mpi_learn.compression.encodings import Encoding

NONE = np.zeros(0, np.int64)


class ErrorFeedback:
    """Encodes changes. The error of a message is added to the next vector (Seide et al. 2014; Karimireddy et al. 2019).

    The sum of all decoded messages is therefore the sum of all vectors, except for the error of the last message.

    Args:
        encoding: The form of the messages.
        n: Length of the vectors.
        n_parts: Number of parts of equal length that can be decoded separately; `n` is a multiple of it.

    Attributes:
        held_back: The error of the last message, (n,) float32.
    """

    def __init__(self, encoding: Encoding, n: int, n_parts: int = 1) -> None:
        self.encoding, self.n_parts = encoding, n_parts
        self.held_back = np.zeros(n, np.float32)

    def encode(self, vector: np.ndarray, resting: np.ndarray = NONE) -> np.ndarray:
        """The message of `vector` and of what was held back, (n_parts × encoding.n_bytes(n / n_parts),) uint8.

        Args:
            vector: (n,) float32; its content is lost.
            resting: Positions of elements that are sent as 0, because their receiver would not use them. What is held
                back of these stays.
        """
        vector += self.held_back
        vector[resting] = 0
        message = np.concatenate([self.encoding.encode(part) for part in np.split(vector, self.n_parts)])
        vector -= decoded(self.encoding, message, vector.size, self.n_parts)  # the error of this message
        vector[resting] = self.held_back[resting]
        self.held_back[:] = vector
        return message


class KnownWeights:
    """Weights as their receiver knows them: sender and receiver add the same messages to the same start.

    A message is the encoded difference between the true weights and the known ones. It contains the errors of all
    earlier messages.

    Args:
        encoding: The form of the messages.
        start: The weights with which both begin, (n,) float32, copied.

    Attributes:
        values: (n,) float32.
    """

    def __init__(self, encoding: Encoding, start: np.ndarray) -> None:
        self.encoding, self.values = encoding, start.copy()

    def encode(self, weights: np.ndarray) -> np.ndarray:
        """The message after which the receiver knows `weights`, (n,) float32, up to its error."""
        message = self.encoding.encode(weights - self.values)
        self.follow(message)
        return message

    def follow(self, message: np.ndarray) -> None:
        """Adds a message to the known weights."""
        self.values += self.encoding.decode(message, self.values.size)


def decoded(encoding: Encoding, message: np.ndarray, n: int, n_parts: int) -> np.ndarray:
    """The vector of a message in parts, (n,) float32."""
    return np.concatenate([encoding.decode(part, n // n_parts) for part in np.split(message, n_parts)])
