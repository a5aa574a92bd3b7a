"""Suggests the known name that is most similar to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

N_LISTED = 30

MISSPELT_LIKENESS = 0.78
"""Names of at least this likeness differ by a typing error: `nam` and `nmae` are `name`, `game` and `time` are not."""


def nearest(name: str, known: Iterable[str], min_likeness: float = 0.5) -> str | None:
    """The name in `known` that is most similar to `name`; None if none has a likeness, 0 to 1.2, of `min_likeness`."""
    best = max(known, key=lambda other: _likeness(name.lower(), other.lower()), default=None)
    return best if best is not None and _likeness(name.lower(), best.lower()) >= min_likeness else None


def nearest_file(path: Path, pattern: str = "*") -> str | None:
    """The name of a file beside `path` that fits `pattern` and is most similar; None if none is similar.

    Suffixes do not count: they are the same, and would make all names similar.
    """
    names = {other.stem: other.name for other in sorted(path.parent.glob(pattern)) if other.is_file()}
    near = nearest(path.stem, names, 0.7)
    return None if near is None else names[near]


def suggestion(name: str, known: Iterable[str], listing: str = "known") -> str:
    """``did you mean adam? known: sgd, adam``; `listing` is the word before the list of names."""
    names = list(known)
    near = nearest(name, names)
    more = f" and {len(names) - N_LISTED} more" if len(names) > N_LISTED else ""
    return f"{f'did you mean {near}? ' if near else ''}{listing}: {', '.join(names[:N_LISTED]) or 'none'}{more}"


def _likeness(name: str, other: str) -> float:
    """Similarity from 0 to 1.2; a common beginning counts extra, so that ``adag`` is adagrad rather than adam."""
    n_alike = next((i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), min(len(name), len(other)))
    return difflib.SequenceMatcher(None, name, other).ratio() + 0.2 * n_alike / max(len(name), 1)
