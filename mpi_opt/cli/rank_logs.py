"""The log files of all ranks except rank 0, whose output alone is shown on the terminal. Imports no Typer."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpi_opt.errors import ConfigurationError


def make_log_folder(study: str) -> None:
    """Creates the folder of the log files. Called on rank 0 only, so that an error is reported once.

    Args:
        study: The name of the study's files.

    Raises:
        ConfigurationError: The folder cannot be created.
    """
    folder = _folder(study)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the folder for the logs of the other ranks cannot be created: {error.strerror}",
            where=str(folder.absolute()),
            cure="start the search in a folder that is writable",
        ) from None


def log_to_file(study: str, rank: int) -> None:
    """Redirects the output of this rank, including that of its libraries, to a file."""
    folder = _folder(study)
    try:
        folder.mkdir(exist_ok=True)  # on this host
        descriptor = os.open(folder / f"rank-{rank:04d}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        print(f"rank {rank} has no log: {error}", file=sys.stderr, flush=True)
        return
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(_Log(standard, "w", closefd=False)), errors="replace", line_buffering=True)
        for standard in (1, 2)
    )


def _folder(study: str) -> Path:
    return Path(f"{study}.logs")


class _Log(io.FileIO):
    """A log file whose write errors, e.g. on a full disk, are ignored: they must not fail a trial that prints."""

    def write(self, data: Any) -> int:
        """Writes as much as possible; returns the size of `data`."""
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes
