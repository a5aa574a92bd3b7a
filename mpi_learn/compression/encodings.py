"""Float32 vectors as messages of 2, 8 or 16 bits per element."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

import numpy as np

from mpi_learn.optimizers.rules.rule import fused, summed

CHUNK = 256
"""Elements that share a scale. With 256, the scales are 1.6 % of a message of int8, and 6 % of one of 2-bit."""

SMALLEST_SCALE = float(np.finfo(np.float32).tiny)
"""The smallest normal number of float32. A smaller scale would lose digits, and its inverse may be infinite."""

LARGEST_HALF = 6e4
"""Slightly less than the largest value of float16, 65504."""


class Encoding(ABC):
    """One form of a message. The length of a message depends on that of the vector alone.

    An element that is not finite is decoded to one that is not finite, so that a training that diverges is noticed.
    """

    @abstractmethod
    def n_bytes(self, n: int) -> int:
        """Length of the message of a vector of `n` elements."""

    @abstractmethod
    def encode(self, vector: np.ndarray) -> np.ndarray:
        """The message of a vector, (n,) float32: (n_bytes(n),) uint8."""

    @abstractmethod
    def decode(self, message: np.ndarray, n: int) -> np.ndarray:
        """The vector of a message, (n,) float32. Its bits are the same on every rank."""


class Float32(Encoding):
    """The vector itself, in the same memory."""

    def n_bytes(self, n: int) -> int:
        return 4 * n

    def encode(self, vector: np.ndarray) -> np.ndarray:
        return vector.view(np.uint8)

    def decode(self, message: np.ndarray, n: int) -> np.ndarray:
        return message.view(np.float32)


class BFloat16(Encoding):
    """The upper half of each float32, rounded to the nearest: 8 significant bits, in the range of float32."""

    def n_bytes(self, n: int) -> int:
        return 2 * n

    def encode(self, vector: np.ndarray) -> np.ndarray:
        message = np.empty(vector.size, np.uint16)
        _round_to_bfloat16(vector.view(np.uint32), message)
        return message.view(np.uint8)

    def decode(self, message: np.ndarray, n: int) -> np.ndarray:
        return (message.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


class Float16(Encoding):
    """11 significant bits, and one scale for the whole vector, so that its largest element does not overflow."""

    def n_bytes(self, n: int) -> int:
        return 4 + 2 * n

    def encode(self, vector: np.ndarray) -> np.ndarray:
        scale = np.float32(max(float(np.abs(vector).max(initial=0.0)) / LARGEST_HALF, SMALLEST_SCALE))
        with np.errstate(invalid="ignore"):  # infinity / infinity
            return _joined(np.array([scale]), (vector / scale).astype(np.float16))

    def decode(self, message: np.ndarray, n: int) -> np.ndarray:
        scale = message[:4].view(np.float32)[0]
        with np.errstate(invalid="ignore"):  # an infinite scale
            decoded: np.ndarray = message[4:].view(np.float16).astype(np.float32) * scale
        return decoded


class Int8(Encoding):
    """Whole numbers from -127 to 127, and a scale for every `CHUNK` elements: their largest magnitude / 127."""

    def n_bytes(self, n: int) -> int:
        return 4 * _n_chunks(n) + n

    def encode(self, vector: np.ndarray) -> np.ndarray:
        scales, values = np.empty(_n_chunks(vector.size), np.float32), np.empty(vector.size, np.int8)
        _encode_int8(vector, scales, values)
        return _joined(scales, values)

    def decode(self, message: np.ndarray, n: int) -> np.ndarray:
        end, decoded = 4 * _n_chunks(n), np.empty(n, np.float32)
        _decode_int8(message[:end].view(np.float32), message[end:].view(np.int8), decoded)
        return decoded


class TwoBit(Encoding):
    """-s, 0 or s, with an s for every `CHUNK` elements.

    Elements below 0.6 times the root mean square become 0; this nearly minimizes the error of normally distributed
    elements. s is the mean magnitude of the others, which minimizes the error for this choice. The error is
    therefore smaller than the vector, and zeros stay zeros: an optimizer such as Adam would turn the noise of weights
    without a gradient into steps of full size.
    """

    def n_bytes(self, n: int) -> int:
        return 4 * _n_chunks(n) + -(-n // 4)

    def encode(self, vector: np.ndarray) -> np.ndarray:
        scales, values = np.empty(_n_chunks(vector.size), np.float32), np.zeros(-(-vector.size // 4), np.uint8)
        _encode_two_bit(vector, scales, values)
        return _joined(scales, values)

    def decode(self, message: np.ndarray, n: int) -> np.ndarray:
        end, decoded = 4 * _n_chunks(n), np.empty(n, np.float32)
        _decode_two_bit(message[:end].view(np.float32), message[end:], decoded)
        return decoded


EXACT: Final = Float32()
"""Of ``compression: none``."""

ENCODINGS: Final[Mapping[str, Encoding]] = {
    "bfloat16": BFloat16(), "float16": Float16(), "int8": Int8(), "2-bit": TwoBit(),
}  # fmt: skip
"""The values of ``compression:``, except for ``none``."""


def _n_chunks(n: int) -> int:
    return -(-n // CHUNK)


def _joined(scales: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.concatenate([scales.view(np.uint8), values.view(np.uint8)])


@fused
def _round_to_bfloat16(bits, halves):  # type: ignore[no-untyped-def] # compiled, by numba's types
    for i in range(bits.size):
        if bits[i] & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000):  # rounding could turn a NaN into a number
            halves[i] = np.uint16(0x7FC0)
        else:  # to nearest, ties to even
            halves[i] = (bits[i] + np.uint32(0x7FFF) + ((bits[i] >> 16) & np.uint32(1))) >> 16


@summed
def _encode_int8(vector, scales, values):  # type: ignore[no-untyped-def]
    for chunk in range(scales.size):
        first, end = chunk * CHUNK, min((chunk + 1) * CHUNK, vector.size)
        largest, not_finite = np.float32(0), np.float32(0)
        for i in range(first, end):
            largest = max(largest, abs(vector[i]))
            not_finite += vector[i] * np.float32(0)  # NaN if an element is not finite, else 0
        scale = largest / np.float32(127) + not_finite
        if scale < np.float32(SMALLEST_SCALE):
            scale = np.float32(0)
        scales[chunk] = scale
        inverse = np.float32(1) / scale if scale > 0 else np.float32(0)
        for i in range(first, end):
            values[i] = np.int8(np.rint(vector[i] * inverse))


@fused
def _decode_int8(scales, values, decoded):  # type: ignore[no-untyped-def]
    for chunk in range(scales.size):
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, values.size)):
            decoded[i] = scales[chunk] * values[i]


@summed
def _encode_two_bit(vector, scales, values):  # type: ignore[no-untyped-def]
    for chunk in range(scales.size):
        first, end = chunk * CHUNK, min((chunk + 1) * CHUNK, vector.size)
        squares = 0.0
        for i in range(first, end):
            squares += np.float64(vector[i]) * np.float64(vector[i])
        threshold = np.float32(0.6 * np.sqrt(squares / (end - first)))
        total, n_above = np.float32(0), np.int32(0)
        for i in range(first, end):
            total += abs(vector[i]) if abs(vector[i]) > threshold else np.float32(0)
            n_above += np.int32(1) if abs(vector[i]) > threshold else np.int32(0)
        not_finite = squares * 0.0  # NaN if an element is not finite
        scales[chunk] = np.float32(total / n_above + not_finite) if n_above else np.float32(not_finite)
        for i in range(first, end):
            code = np.uint8(vector[i] > threshold) + np.uint8(2) * np.uint8(vector[i] < -threshold)
            values[i >> 2] |= code << np.uint8(2 * (i & 3))


@fused
def _decode_two_bit(scales, values, decoded):  # type: ignore[no-untyped-def]
    for i in range(decoded.size):
        code = (values[i >> 2] >> np.uint8(2 * (i & 3))) & np.uint8(3)
        sign = np.float32(code & 1) - np.float32(code >> 1)
        decoded[i] = scales[i // CHUNK] * sign
