"""Runs a search in processes of its own, and reads how long it took."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

LIMIT_S = 1800.0


def timed_search(folder: Path, content: dict[str, Any], n_ranks: int) -> tuple[float, list[float]]:
    """Seconds from the start of the first trial to the end of the last one, and the figures of merit.

    Args:
        folder: Is created.
        content: That of a ``space.yaml``.
    """
    folder.mkdir()
    (folder / "space.yaml").write_text(yaml.safe_dump({"study": "timed", "store": "sqlite:///timed.db"} | content))
    command = [sys.executable, "-m", "mpi_opt", "search", "space.yaml", "-n", str(n_ranks)]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise RuntimeError(done.stderr)
    ((seconds,),) = rows(
        folder, "SELECT (julianday(max(finished_at)) - julianday(min(started_at))) * 86400 FROM attempts"
    )
    values = rows(folder, "SELECT figure_of_merit FROM trials ORDER BY number")
    return seconds, [value for (value,) in values]


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query to the store of the search in `folder`."""
    with closing(sqlite3.connect(folder / "timed.db")) as database:
        return database.execute(query).fetchall()
