"""Requests to end: Ctrl-C, SIGTERM and SIGUSR1, as a value that a program reads when it can end in order."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from mpi_learn.cli.exit_status import INTERRUPTED, UNFINISHED
from mpi_learn.cli.launchers import is_launched

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
"""Ctrl-C; ``scancel`` and time limits of batch systems; the warning that Slurm sends with ``--signal``."""

COPIES_S = 0.4
"""Copies of one request arrive within this time: a terminal, a batch system and ``mpirun`` each send the signal."""

WARNING_S = 600.0
"""SIGUSR1 this short before the known end of a job is the batch system's warning, in seconds."""


class StopRequest:
    """Whether this process was asked to end.

    Args:
        heeds_warnings: Whether SIGUSR1 shortly before `job_end_s` is the batch system's warning and no request. Not in
            ranks to which `mpi_learn.cli.launch.launch` passes requests on.

    Attributes:
        reason: The name of the first signal; None until the process is asked.
        job_end_s: When the batch system ends the job, in seconds since 1970, once the program plans with that time.
        on_first: Called by the first signal.
        on_second: Called by a second Ctrl-C; by default it ends the process at once.
    """

    def __init__(self, *, heeds_warnings: bool = True) -> None:
        self.heeds_warnings = heeds_warnings
        self.reason: str | None = None
        self.job_end_s: float | None = None
        self.on_first: Callable[[], None] = lambda: None
        self.on_second: Callable[[], None] = _end_now
        self._asked_at = 0.0
        self._n_copies = 0

    @property
    def why(self) -> str:
        """The request in words."""
        is_passed_on = self.reason == "SIGUSR1" and not self.heeds_warnings
        return "the launcher was asked to end" if is_passed_on else f"got {self.reason}"

    @property
    def status(self) -> int:
        """The exit status of a program that ends unfinished because of the request."""
        return INTERRUPTED if self.reason == "SIGINT" else UNFINISHED

    @property
    def has_copies(self) -> bool:
        """Whether the signal of the request arrived more than once."""
        return self._n_copies > 1

    def ask(self, name: str) -> None:
        """Takes a signal. After the first one only a second Ctrl-C has an effect."""
        now = time.monotonic()
        if name == "SIGUSR1" and self._is_warning():
            return
        if self.reason is None:
            self.reason, self._asked_at = name, now
            self.on_first()
        elif name == "SIGINT" and now - self._asked_at > COPIES_S:
            self.on_second()
        self._n_copies += name == self.reason

    @contextlib.contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Takes the signals of this process until the end of the block. Must be entered in the main thread."""
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
    """Ranks other than 0 ignore the signals that ``mpirun`` and batch systems send to all ranks; rank 0 decides.

    Processes that user code starts ignore SIGINT and SIGUSR1 as well, which reach the whole process group. They react
    to SIGTERM as usual: user code that ends a process with it waits for its end.
    """
    ignore: dict[str, Any] = dict.fromkeys(SIGNALS, signal.SIG_IGN)
    with _handled(ignore | {"SIGTERM": lambda number, frame: None}):
        yield


@contextlib.contextmanager
def _handled(handlers: dict[str, Any]) -> Iterator[None]:
    """Signal name -> handler, until the end of the block; functions handle no signals of processes that are forked."""
    before = {name: signal.signal(getattr(signal, name), handler) for name, handler in handlers.items()}
    restored = {name: handler for name, handler in before.items() if handler is not None}  # None: not set in Python
    _REPLACED.append({name: handler for name, handler in restored.items() if callable(handlers[name])})
    try:
        yield
    finally:
        _REPLACED.pop()
        _set(restored)


_REPLACED: list[dict[str, Any]] = []
"""The handlers that `_handled` has replaced by functions, the oldest first."""


def _set(handlers: dict[str, Any]) -> None:
    for name, handler in handlers.items():
        signal.signal(getattr(signal, name), handler)


def _restore_in_child() -> None:
    for handlers in reversed(_REPLACED):
        _set(handlers)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_in_child)


def _end_now() -> None:
    """Ends this process. Other ranks notice the death of a rank by a signal, but not its exit with a status."""
    if is_launched():
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(INTERRUPTED)
