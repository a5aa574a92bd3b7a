"""Files that a command writes for the user: they are complete or do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi_opt.errors import ConfigurationError


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yields the path of a temporary file with the same suffix, which replaces `path` at the end of the block.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    if not path.parent.is_dir():
        raise ConfigurationError(f"the folder {path.parent} does not exist", where="-o", cure=f"mkdir -p {path.parent}")
    aside = path.with_name(f".{path.stem}.unfinished{path.suffix}")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
