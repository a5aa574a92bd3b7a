"""Noise for generators: a function of seed, epoch and position in the epoch, independent of the number of ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

WORDS_PER_BLOCK = 8
"""Philox (Salmon et al. 2011) yields 256 random bits for each value of its counter: eight 32-bit words."""


@dataclass(frozen=True)
class Noise:
    """Random numbers for each sample.

    Attributes:
        seed: The seed of the training.
        size: Numbers per sample and turn.
        turns: The number of uses of each batch, each time with different noise.
        is_normal: Whether the noise is standard normal; otherwise it is uniform in [-1, 1].
        name: See `AddedInput`.
    """

    seed: int
    size: int
    turns: int = 1
    is_normal: bool = True
    name: str = "noise"

    def draw(self, epoch: int, first: int, n: int) -> np.ndarray:
        """Noise of `n` samples from position `first` on in the order of an epoch, shape (turns, n, size), float32."""
        wanted = self.turns * self.size
        n_blocks = -(-wanted // WORDS_PER_BLOCK)
        generator = np.random.Philox(key=[self.seed, epoch + 1])
        generator.advance(first * n_blocks)
        words = generator.random_raw(n * n_blocks * WORDS_PER_BLOCK // 2).view(np.uint32)
        uniform = ((words >> 8).astype(np.float32) + 0.5) * np.float32(2**-24)
        found = self._shaped(uniform.reshape(n, n_blocks * WORDS_PER_BLOCK))[:, :wanted]
        return np.ascontiguousarray(found.reshape(n, self.turns, self.size).swapaxes(0, 1))

    def _shaped(self, uniform: np.ndarray) -> np.ndarray:
        """Converts uniform numbers in (0, 1] to the distribution; to normal ones by Box & Muller (1958)."""
        if not self.is_normal:
            return 2 * uniform - 1
        half = uniform.shape[1] // 2
        radius = np.sqrt(-2 * np.log(uniform[:, :half]))
        angle = np.float32(2 * math.pi) * uniform[:, half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], 1)
