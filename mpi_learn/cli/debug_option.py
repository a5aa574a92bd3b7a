"""The option ``--debug`` of both programs, before or after the command. Workers read it without Typer."""

from __future__ import annotations

DEBUG = "--debug"


def without_debug(arguments: list[str]) -> list[str]:
    """`arguments` without ``--debug``."""
    return [argument for argument in arguments if argument != DEBUG]
