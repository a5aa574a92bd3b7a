"""Numbers of things in sentences."""

from __future__ import annotations


def counted(n: int, word: str) -> str:
    """``1 trial``, ``13 trials``, ``1300 trials``."""
    return f"{n} {plural(word, n)}"


def plural(word: str, n: int) -> str:
    """`word`, with an s unless `n` is 1."""
    return word if n == 1 else f"{word}s"
