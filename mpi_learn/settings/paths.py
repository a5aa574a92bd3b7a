"""Names and places of files, output folders, and files that are replaced atomically."""

from __future__ import annotations

import errno
import glob
import hashlib
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mpi_learn.errors import ConfigurationError, UserError

MAX_NAME_BYTES = 230
"""The longest name of a file, to which suffixes are added: file systems allow 255 bytes."""

KERAS_WEIGHTS = ".weights.h5"
"""The suffix that Keras requires for files with weights alone."""

ABANDONED_S = 3600.0
"""A process that writes a file writes to it more often than this, in seconds."""


def file_name(text: str) -> str:
    """`text` without characters that a file name must not contain, and without dots at the beginning.

    Is at most `MAX_NAME_BYTES` long in UTF-8: the end of a longer text is replaced by a hash of it.
    """
    name = re.sub(r"[/\0]|^\.+", "_", text)
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    short = name.encode()[: MAX_NAME_BYTES - 9].decode(errors="ignore")
    return f"{short}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def expanded(path: str | Path) -> Path:
    """`path` with the home directory instead of ``~`` or ``~user`` at its beginning.

    Raises:
        ConfigurationError: There is no such user, or the user has no home directory.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(
            f"there is no home directory {Path(path).parts[0]}", where=str(path), cure="write the whole path"
        ) from error


def is_file(path: Path, kind: type[UserError] = ConfigurationError) -> bool:
    """Whether `path` is a file.

    Raises:
        UserError: Of this `kind`: it cannot be determined, for example because the folder must not be entered.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a character that no name can have
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return False
        raise kind(
            f"the file is not accessible: {error.strerror or error}",
            where=str(path),
            cure="check the path and the permissions of its folders",
        ) from error


def make_folder(folder: Path, key: str) -> None:
    """Creates a folder and checks that it is writable, so that an error appears before the training starts.

    Raises:
        ConfigurationError: The folder cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"the folder is not writable: {error.strerror or error}",
            where=f"{key}: {folder}",
            cure="name a folder that you may write to",
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that replaces the file at `path` when the block ends without an error.

    Readers never see an incomplete file. The temporary file has the suffix of `path`, which libraries require.
    """
    # not the number of the process: one of another host, such as an earlier attempt of a trial, may have the same
    temporary = path.with_name(_temporary_name(path.name, str(secrets.randbelow(10**7))))
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):  # a write to a full disk names no file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def temporary_files(path: Path) -> list[Path]:
    """The temporary files of `replacing` for `path`: of processes that write it now, or were killed while they did."""
    return list(path.parent.glob(_temporary_name(glob.escape(path.name), "[0-9]*")))


def remove_abandoned(path: Path) -> None:
    """Removes the temporary files of `replacing` for `path` that no process has written to for `ABANDONED_S`.

    The age decides, because the process may run on another host.
    """
    for file in temporary_files(path):
        with suppress(OSError):  # for example because another process has removed or renamed it
            if time.time() - file.stat().st_mtime > ABANDONED_S:
                file.unlink()


def _temporary_name(name: str, number: str) -> str:
    suffix = KERAS_WEIGHTS if name.endswith(KERAS_WEIGHTS) else Path(name).suffix
    return f".{name}.{number}{suffix}"


def write_whole(path: Path, text: str) -> None:
    """Writes a text file; readers never see an incomplete one."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
