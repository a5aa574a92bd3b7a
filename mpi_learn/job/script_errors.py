"""Ends a user's script that does not catch an error as the commands do: one message, no traceback, exit status."""

from __future__ import annotations

import sys
from types import TracebackType

from mpi_learn.errors import MPILearnError, without_passwords
from mpi_learn.job.launchers import launched_rank


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
        is_first = launched_rank() == 0
        if is_first:
            print(f"mpi-opt: {without_passwords(str(error))}", file=sys.stderr, flush=True)
        status = (
            error.exit_status if is_first else 0
        )  # mpirun drops the message if another rank ends first with an error
        if "mpi_learn.mpi.process_end" in sys.modules:
            setattr(sys.modules["mpi_learn.mpi.process_end"], "exit_status", status)  # noqa: B010 - not imported here
        raise SystemExit(status)
