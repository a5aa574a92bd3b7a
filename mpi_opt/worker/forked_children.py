"""Ends the processes that user code forks from a rank."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from mpi_learn.mpi import process_end


@contextmanager
def ending_forked_children() -> Iterator[None]:
    """Ends child processes that user code has forked, at the end of the ``with`` statement.

    Only this process continues the search.
    """
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            error = sys.exc_info()[1]
            status = int(error is not None)
            if isinstance(error, SystemExit) and isinstance(error.code, int | None):
                status = error.code or 0
            elif error is not None:
                traceback.print_exception(error)
            process_end.flush()
            os._exit(status)
