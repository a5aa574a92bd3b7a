"""Files that a command writes for the user: they are complete or do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi_learn.settings.paths import replacing
from mpi_opt.errors import ConfigurationError


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yields the path of a temporary file, as `replacing` does, in a folder that must exist.

    Raises:
        ConfigurationError: The folder does not exist, or the file cannot be created in it.
    """
    if not path.parent.is_dir():
        raise ConfigurationError(f"the folder {path.parent} does not exist", where="-o", cure=f"mkdir -p {path.parent}")
    with replacing(path) as aside:
        try:
            aside.touch()
        except OSError as error:
            problem = f"the file cannot be written: {error.strerror}"
            cure = "name a file in a folder that you may write to"
            raise ConfigurationError(problem, where=f"-o {path}", cure=cure) from error
        yield aside
