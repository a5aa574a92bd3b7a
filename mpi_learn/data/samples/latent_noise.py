"""Noise for generators, as a pure function of the place in the epoch: the same for any number of ranks, and resumed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

VALIDATION = -1
"""The epoch of the validation samples: they meet the same noise each time."""
WORDS_PER_BLOCK = 8
"""Philox (Salmon et al. 2011) gives 256 random bits for each value of its counter: eight words of 32."""


@dataclass(frozen=True)
class Noise:
    """Random numbers that belong to samples.

    Attributes:
        seed: Of the training.
        size: Numbers for a sample and turn.
        turns: How often each batch is trained on, each time with other noise.
        is_normal: Mean 0 and variance 1; else evenly in [-1, 1].
    """

    seed: int
    size: int
    turns: int = 1
    is_normal: bool = True

    def draw(self, epoch: int, first: int, n: int) -> np.ndarray:
        """Noise of the samples at the places `first`, … in the order of an epoch, (turns, n, size) float32."""
        wanted = self.turns * self.size
        n_blocks = -(-wanted // WORDS_PER_BLOCK)
        generator = np.random.Philox(key=[self.seed, epoch + 1])
        generator.advance(first * n_blocks)
        words = generator.random_raw(n * n_blocks * WORDS_PER_BLOCK // 2).view(np.uint32)
        uniform = ((words >> 8).astype(np.float32) + 0.5) * np.float32(2**-24)
        found = self._shaped(uniform.reshape(n, -1))[:, :wanted]
        return np.ascontiguousarray(found.reshape(n, self.turns, self.size).swapaxes(0, 1))

    def _shaped(self, uniform: np.ndarray) -> np.ndarray:
        """Numbers of the wanted distribution from as many in (0, 1); normal ones by Box & Muller (1958)."""
        if not self.is_normal:
            return 2 * uniform - 1
        half = uniform.shape[1] // 2
        radius = np.sqrt(-2 * np.log(uniform[:, :half]))
        angle = np.float32(2 * math.pi) * uniform[:, half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], 1)
