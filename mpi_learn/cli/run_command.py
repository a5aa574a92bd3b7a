"""Runs a command of either program, and writes all that it has printed before Python ends.

Python itself writes the rest of its buffers when it ends. An error there would be a traceback with status 120, also
if the reader of the output, such as ``head``, has only read enough.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mpi_learn.job.exit_status import INTERRUPTED, INVALID

if TYPE_CHECKING:
    import typer


def run_command(app: typer.Typer, arguments: list[str], program: str, context: Any) -> Any:
    """Runs a command.

    Args:
        app: The commands.
        arguments: The command line without the name of the program.
        program: The name of the program.
        context: The object of Typer's context.

    Returns:
        What the command returns, or the exit status if it ended early, for example after ``--help``.

    Raises:
        BrokenPipeError: The reader of standard output has ended while the command printed.
        OSError: Standard output cannot be written, for example to a full disk.
    """
    import typer
    from typer.exceptions import TyperException

    try:
        returned = app(arguments, standalone_mode=False, prog_name=program, obj=context)
        _flush_output()
    except SystemExit as end:  # Typer (0.29) ends with status 1 if the reader of standard output has ended
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return INTERRUPTED
    except TyperException as error:
        with suppress(OSError):  # the status says it too
            error.show()  # type: ignore[attr-defined] # the subclass that has this method is private
        return INVALID
    return returned


def _flush_output() -> None:
    """Writes what the command has printed.

    Raises:
        OSError: It cannot be written. It is no error if the reader has ended: the status of the command remains.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from None


def print_if_possible(text: str) -> None:
    """Prints `text`. A full disk or a closed pipe is no reason to lose a search or a training."""
    with suppress(OSError):
        print(text, flush=True)


def drop_unwritten() -> None:
    """Drops what standard output and standard error could not write. Called when nothing else is printed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
