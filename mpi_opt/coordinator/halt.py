"""The wish that a search should end: from Ctrl-C, a batch system's signal, or a test."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

from mpi_learn.cli.launch import is_launched
from mpi_opt.worker.watchdog import end_process

SLURM_MARGIN_S = 60.0
"""How long before Slurm ends the job the search should have ended, in seconds."""

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
"""Ctrl-C, ``scancel`` and time limits, and the warning that Slurm sends where a script asks for it."""


class Halt:
    """Whether, and why, somebody wants the search to end.

    Attributes:
        reason: The signal's name; None as long as nobody does.
    """

    def __init__(self) -> None:
        self.reason: str | None = None

    def ask(self, reason: str) -> None:
        """Asks for an end; who asks twice gets it now."""
        if self.reason is not None:
            if is_launched():
                end_process("asked to end a second time")  # other ranks notice this death, and end, too
            os._exit(130)
        self.reason = reason

    @contextlib.contextmanager
    def listening(self) -> Iterator[Halt]:
        """Takes the process's signals for the time of the block. Must be entered in the main thread."""
        before = {
            name: signal.signal(getattr(signal, name), lambda number, frame: self.ask(signal.Signals(number).name))
            for name in SIGNALS
        }
        try:
            yield self
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)


def slurm_time_left_s(environment: Mapping[str, str], now_s: float) -> float | None:
    """Seconds until a search in this Slurm job should have ended; None outside of Slurm, or without a limit.

    Args:
        environment: The process's.
        now_s: Seconds since 1970.
    """
    end = environment.get("SLURM_JOB_END_TIME", "")
    return max(float(end) - now_s - SLURM_MARGIN_S, 1.0) if end.isdigit() else None


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """For ranks that do not coordinate: signals that ``mpirun`` passes on to all are left to rank 0.

    Not for processes that user code starts: who ends one by SIGTERM waits for its end. So that signal is not ignored,
    which programs and forked processes would do, too, but comes to nothing in this process alone.
    """
    before = {name: signal.signal(getattr(signal, name), signal.SIG_IGN) for name in SIGNALS}
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    _DEAF.append(before["SIGTERM"])
    try:
        yield
    finally:
        _DEAF.pop()
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


_DEAF: list[Any] = []
"""What SIGTERM did before this process became deaf."""


def _hear_again() -> None:
    if _DEAF:
        signal.signal(signal.SIGTERM, _DEAF[0])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hear_again)
