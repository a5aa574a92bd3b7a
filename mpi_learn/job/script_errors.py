"""Ends a user's script that does not catch an error as the commands do: one message, no traceback, exit status."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import TracebackType

from mpi_learn.errors import MPILearnError, UserError, without_passwords
from mpi_learn.job.started_by import launched_rank

OF_ALL_RANKS = "mpi_opt.api"
"""The module whose errors every rank raises: all ranks call `search`."""


def report_errors() -> None:
    """Makes this process end so after an `MPILearnError` that it does not catch. No effect in interactive sessions."""
    if not hasattr(sys, "ps1") and not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(sys.excepthook)


class _Hook:
    """Handles uncaught exceptions; passes those that are no `MPILearnError` to the hook that was there before."""

    def __init__(self, other: object) -> None:
        self._other = other

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, MPILearnError):
            self._other(kind, error, trace)  # type: ignore[operator]
            return
        calls = [(frame.f_globals.get("__name__"), line) for frame, line in traceback.walk_tb(trace)]
        is_of_all = OF_ALL_RANKS in dict(calls)  # elsewhere, one rank may be the only one with this error
        rank, status = launched_rank(), 0
        if rank == 0 or not is_of_all:  # mpirun drops the message if another rank ends first with an error
            status = error.exit_status
            place = _place(calls) if isinstance(error, UserError) else ""
            text = "" if rank == 0 else f"rank {rank}: "
            print(f"mpi-opt: {text}{place}{without_passwords(str(error))}", file=sys.stderr, flush=True)
        if "mpi_learn.mpi.process_end" in sys.modules:
            setattr(sys.modules["mpi_learn.mpi.process_end"], "exit_status", status)  # noqa: B010 - not imported here
        raise SystemExit(status)


def _place(calls: list[tuple[str | None, int]]) -> str:
    """The last line of the script that was called, ``study.py, line 12: ``; empty if there is no file."""
    lines = [line for module, line in calls if module == "__main__"]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return f"{Path(script).name}, line {lines[-1]}: " if lines and script else ""
