"""Exceptions that a strategy survives, as text for the user and for the developers."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import final

N_FRAMES = 5
"""Number of the innermost calls in the description of a problem."""

MAX_CHARACTERS = 200
"""Largest length of the message of an exception in a description."""


@final
class Problems:
    """The problems of a strategy. Each is taken once, however often it occurs."""

    def __init__(self) -> None:
        self._new: list[str] = []
        self._known: set[tuple[str, type[Exception]]] = set()

    def add(self, what: str, error: Exception, consequence: str) -> None:
        """Adds a problem: what raised `error`, and what the strategy does instead."""
        if (what, type(error)) not in self._known:
            self._known.add((what, type(error)))
            first_line, _, calls = described(what, error).partition("\n")
            self._new.append(f"{first_line}; {consequence}\n{calls}")

    def take(self) -> list[str]:
        """The problems since the last call."""
        taken, self._new = self._new, []
        return taken


def described(what: str, error: Exception) -> str:
    """``WHAT raised ValueError: no (file.py:17)``, and on further lines the innermost calls."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    try:
        message = str(error).partition("\n")[0][:MAX_CHARACTERS]
    except Exception:  # noqa: BLE001 - the __str__ of a user's exception may raise anything
        message = "(its text cannot be read)"
    reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{what} raised {reason}{place}\n{''.join(traceback.format_list(frames[-N_FRAMES:])).rstrip()}"
