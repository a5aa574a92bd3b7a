"""Vectors in 8 bits: blocks of integers with one scale each."""

from __future__ import annotations

import numpy as np

BLOCK = 256
LARGEST = 127


def quantized(vector: np.ndarray) -> np.ndarray:
    """A message of a scale, 4 bytes, for each `BLOCK` elements, and of one byte for each element.

    A scale is the largest absolute value of its block divided by 127. If an element is not finite, those of its block
    are not finite either after `dequantized`.

    Args:
        vector: (n,) float32.

    Returns:
        The bytes of the scales, then the elements divided by their scales and rounded, as int8.
    """
    n_blocks = -(-vector.size // BLOCK)
    blocks = np.zeros((n_blocks, BLOCK), np.float32)
    blocks.ravel()[: vector.size] = vector
    scales = np.maximum(blocks.max(1), -blocks.min(1)) / np.float32(LARGEST)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 in a block of zeros: any integer times its scale is 0
        blocks /= scales[:, None]
        integers = np.rint(blocks, out=blocks).astype(np.int8)
    return np.concatenate([scales.view(np.int8), integers.ravel()[: vector.size]])


def dequantized(message: np.ndarray, n: int) -> np.ndarray:
    """The vector of `n` elements that `message` holds, (n,) float32."""
    scales = message[: message.size - n].view(np.float32)
    with np.errstate(invalid="ignore"):  # 0 times infinity
        vector: np.ndarray = message[message.size - n :] * np.repeat(scales, BLOCK)[:n]
    return vector
