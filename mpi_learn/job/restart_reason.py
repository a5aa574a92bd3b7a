"""Why this job was started again, for the records of a study."""

from __future__ import annotations

import os

VARIABLE = "MPI_LEARN_RESTART"
"""The environment variable in which a job with restarts receives the reason; empty in its first start."""

_reason: str | None = None


def take_from_environment() -> None:
    """Reads and removes `VARIABLE`: child processes must not inherit it."""
    global _reason
    _reason = os.environ.pop(VARIABLE, _reason)


def restart_reason() -> str | None:
    """Why this job was started again; empty in its first start, None for a job without restarts."""
    take_from_environment()
    return _reason
