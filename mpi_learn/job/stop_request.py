"""Requests to end: Ctrl-C, SIGTERM and SIGUSR1, stored until the program can save its state and end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from mpi_learn.job.exit_status import INTERRUPTED, LOST, UNFINISHED
from mpi_learn.job.started_by import is_launched, restart_reason

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
"""Ctrl-C; ``scancel`` and time limits of batch systems; the warning that Slurm sends with ``--signal``."""

COPIES_S = 0.4
"""Copies of a request arrive within this time: a terminal, a batch system and ``mpirun`` each send the signal."""

WARNING_S = 600.0
"""SIGUSR1 within this time before the known end of a job is the warning of the batch system, in seconds."""


class StopRequest:
    """Whether this process was asked to end.

    Args:
        heeds_warnings: Whether SIGUSR1 shortly before `job_end_s` is a warning of the batch system rather than a
            request. False in ranks to which `mpi_learn.job.launch.launch` forwards requests.

    Attributes:
        signal_name: The name of the first signal; None before it.
        job_end_s: The end of the batch job in seconds since 1970, once the program takes it into account.
        on_first: Called by the first signal.
        on_second: Called by a second Ctrl-C; by default it ends the process at once.
    """

    def __init__(self, *, heeds_warnings: bool = True) -> None:
        self.heeds_warnings = heeds_warnings
        self.signal_name: str | None = None
        self.job_end_s: float | None = None
        self.on_first: Callable[[], None] = lambda: None
        self.on_second: Callable[[], None] = _end_now
        self._asked_at = 0.0
        self._n_copies = 0

    @property
    def reason(self) -> str:
        """The request in words."""
        is_passed_on = self.signal_name == "SIGUSR1" and not self.heeds_warnings
        return "the launcher was asked to end" if is_passed_on else f"got {self.signal_name}"

    @property
    def status(self) -> int:
        """The exit status of a program that ends unfinished because of the request.

        In a job with restarts, requests of the user arrive as SIGUSR1. SIGTERM is then from ``mpirun``, which ends all
        ranks because it has lost one of its daemons.
        """
        if self.signal_name == "SIGTERM" and restart_reason() is not None:
            return LOST
        return INTERRUPTED if self.signal_name == "SIGINT" else UNFINISHED

    @property
    def has_copies(self) -> bool:
        """Whether the signal of the request arrived more than once."""
        return self._n_copies > 1

    def ask(self, name: str) -> None:
        """Receives a signal. After the first signal only a second Ctrl-C has an effect."""
        now = time.monotonic()
        if name == "SIGUSR1" and self._is_warning():
            return
        if self.signal_name is None:
            self.signal_name, self._asked_at = name, now
            self.on_first()
        elif name == "SIGINT" and now - self._asked_at > COPIES_S:
            self.on_second()
        self._n_copies += name == self.signal_name

    @contextlib.contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Receives the signals of this process until the end of the block. Must be entered in the main thread."""
        with _handled(dict.fromkeys(SIGNALS, self._take)):
            yield self

    def _take(self, number: int, frame: object) -> None:
        self.ask(signal.Signals(number).name)

    def _is_warning(self) -> bool:
        if self.job_end_s is None or not self.heeds_warnings:
            return False
        return 0.0 < self.job_end_s - time.time() < WARNING_S


@contextlib.contextmanager
def ignored_requests() -> Iterator[None]:
    """Ignores the signals that ``mpirun`` and batch systems send to all ranks; for ranks other than 0, which decides.

    Processes that user code starts also ignore SIGINT and SIGUSR1, which reach the whole process group. They react to
    SIGTERM as usual, since user code may end them with it.
    """
    ignore: dict[str, Any] = dict.fromkeys(SIGNALS, signal.SIG_IGN)
    with _handled(ignore | {"SIGTERM": lambda number, frame: None}):
        yield


@contextlib.contextmanager
def _handled(handlers: dict[str, Any]) -> Iterator[None]:
    """Sets handlers by signal name until the end of the block. Forked processes get the previous handlers back."""
    before = {name: signal.signal(getattr(signal, name), handler) for name, handler in handlers.items()}
    restored = {name: handler for name, handler in before.items() if handler is not None}  # None: not set in Python
    _REPLACED.append({name: handler for name, handler in restored.items() if callable(handlers[name])})
    try:
        yield
    finally:
        _REPLACED.pop()
        _set(restored)


_REPLACED: list[dict[str, Any]] = []
"""The handlers that `_handled` has replaced by functions, oldest first."""


def _set(handlers: dict[str, Any]) -> None:
    for name, handler in handlers.items():
        signal.signal(getattr(signal, name), handler)


def _restore_in_child() -> None:
    for handlers in reversed(_REPLACED):
        _set(handlers)


os.register_at_fork(after_in_child=_restore_in_child)


def _end_now() -> None:
    """Ends this process by SIGKILL under a launcher: other ranks detect a death by a signal, but not an exit."""
    if is_launched():
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(INTERRUPTED)
