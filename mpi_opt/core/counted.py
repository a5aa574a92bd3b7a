"""Numbers of things in sentences."""

from __future__ import annotations

from collections.abc import Sequence

N_LISTED = 10
"""How many numbers a sentence lists."""


def counted(n: int, word: str) -> str:
    """``1 trial``, ``13 trials``, ``1300 trials``."""
    return f"{n} {plural(word, n)}"


def plural(word: str, n: int) -> str:
    """`word`, with an s unless `n` is 1."""
    return word if n == 1 else f"{word}s"


def listed(numbers: Sequence[int]) -> str:
    """``1, 2``; if there are many, the first ones, "…", and the last one."""
    are_many = len(numbers) > N_LISTED + 1
    shown = [*map(str, numbers[:N_LISTED]), "…", str(numbers[-1])] if are_many else map(str, numbers)
    return ", ".join(shown)
