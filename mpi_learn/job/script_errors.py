"""Ends a user's script that makes a mistake as the commands do: one message, no traceback, exit status 2."""

from __future__ import annotations

import sys
from types import TracebackType

from mpi_learn.errors import UserError, without_passwords
from mpi_learn.job.launchers import launched_rank


def report_user_errors() -> None:
    """Makes this process end so after a `UserError` that it does not catch. Has no effect in interactive sessions."""
    if not hasattr(sys, "ps1") and not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(sys.excepthook)


class _Hook:
    """Handles uncaught exceptions; passes those that are no `UserError` to the hook that was there before."""

    def __init__(self, other: object) -> None:
        self._other = other

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, UserError):
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
