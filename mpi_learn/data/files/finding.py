"""Finds the files of a configuration. Remote ones are found with fsspec, and copied to this host before reading."""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from mpi_learn.errors import DataError, UserError
from mpi_learn.settings.optional_packages import imported
from mpi_learn.settings.paths import expanded, is_file, replacing, temporary_files
from mpi_learn.settings.suggestions import nearest_file

N_TRIES = 3
PAUSE_S = 1.0
"""The pause between two tries, in seconds: many network failures are short."""

_HELD: set[int] = set()
"""The descriptors of the lock files that this process holds."""

Answer = TypeVar("Answer")


class Copies:
    """Local copies of remote files inside a context.

    Several processes may share a cache: one fetches a file while the others wait for it. Unless the copies are kept,
    the last process that uses a file removes it. A file that has changed at its source is fetched again, except from
    http and https servers, where the copy must be removed first.

    Args:
        cache: The folder of the copies; None for a temporary folder of this process, which is removed at the end.
        keep: Whether the copies stay in `cache`.
    """

    def __init__(self, cache: Path | None, keep: bool) -> None:
        self.cache, self.keep = cache, keep
        self._stack = ExitStack()
        self._paths: dict[str, Path] = {}

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def path(self, url: str) -> Path:
        """The local copy of `url`, which is fetched if necessary.

        Raises:
            DataError: The file cannot be fetched, or cannot be written here.
            UserError: fsspec, or what it needs for this kind of URL, is not installed.
        """
        if url not in self._paths:
            try:
                self._paths[url] = self._stack.enter_context(_copy(url, self._folder(), self.keep))
            except OSError as error:
                raise DataError(
                    f"cannot be copied to {self.cache or tempfile.gettempdir()}: {error}",
                    where=url,
                    cure=f"name a folder {_wanted_folder(error)}: cache: DIR",
                ) from error
        return self._paths[url]

    def _folder(self) -> Path:
        if self.cache is None:
            self.cache, self.keep = Path(tempfile.mkdtemp(prefix="mpi_learn_")), False
            self._stack.callback(shutil.rmtree, self.cache, ignore_errors=True)
        self.cache.mkdir(parents=True, exist_ok=True)
        return self.cache


def _wanted_folder(error: OSError) -> str:
    """What the folder for the copies lacks."""
    if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):  # no locks, as on many parallel file systems
        return "of a local file system"
    return "with free space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "that you may write to"


def find_urls(url: str) -> list[str]:
    """The URLs that match a pattern with ``*``, sorted; otherwise the URL itself.

    Raises:
        DataError: The server cannot be reached.
        UserError: fsspec, or what it needs for this kind of URL, is not installed.
    """
    if "*" not in url:
        return [url]
    system, path = _system(url)
    return sorted(system.unstrip_protocol(found) for found in _tried(url, lambda: system.glob(path)))


@contextmanager
def _copy(url: str, folder: Path, keep: bool) -> Iterator[Path]:
    """The local copy of a file, which no process removes inside the context.

    There are two locks. All processes that read the copy, or wait for it, share the first one: only the last of them
    removes the copy, with this lock held exclusively. The process that fetches the file holds the second one. No
    process waits for a reader, so readers of several files cannot deadlock.
    """
    system, path = _system(url)
    version = _tried(url, lambda: system.ukey(path))
    digest = hashlib.sha256(f"{url} {version}".encode()).hexdigest()[:16]
    target = folder / f"{digest}-{path.rpartition('/')[2].partition('?')[0]}"
    lock_path = folder / f".{target.name}.lock"
    fetch_path = folder / f".{target.name}.fetch.lock"
    lock = _held(lock_path, fcntl.LOCK_SH)
    try:
        if not target.exists():
            fetch_lock = _held(fetch_path, fcntl.LOCK_EX)
            try:
                if not target.exists():
                    _fetch(url, system, path, target)
            finally:
                _release(fetch_lock)
        yield target
    finally:
        if lock in _HELD:  # not in a process that was forked inside the context
            if not keep and _is_last(lock):
                for file in (target, fetch_path, lock_path):
                    file.unlink(missing_ok=True)
            _release(lock)


def _held(path: Path, kind: int) -> int:
    """The descriptor of a lock file with a lock of this kind. Waits for other processes.

    The kernel releases the lock of a process that dies.
    """
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        _HELD.add(lock)
        fcntl.flock(lock, kind)
        if _is_current(lock, path):
            return lock
        _release(lock)  # the last reader has removed the file in the meantime


def _release(lock: int) -> None:
    _HELD.discard(lock)
    os.close(lock)


def _forget() -> None:
    """Closes the lock files in a process that user code has forked, which would otherwise keep the locks."""
    while _HELD:
        os.close(_HELD.pop())


os.register_at_fork(after_in_child=_forget)


def _is_current(lock: int, path: Path) -> bool:
    try:
        return os.fstat(lock).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _is_last(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _fetch(url: str, system: Any, path: str, target: Path) -> None:
    """Copies the file. The caller holds its lock exclusively."""
    for abandoned in temporary_files(target):  # by processes that were killed
        abandoned.unlink()
    with replacing(target) as aside:
        _tried(url, lambda: system.get_file(path, str(aside)))


def _system(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it."""
    try:
        system, path = imported("fsspec.core", "remote").url_to_fs(url)
    except ImportError as error:
        raise UserError(str(error), where=url, cure="pip install what it names, or mpi-opt[remote]") from error
    except ValueError as error:
        raise DataError(str(error), where=url, cure="use a URL that fsspec supports: https, s3, gs, root, …") from error
    return system, path


def _tried(url: str, ask: Callable[[], Answer]) -> Answer:
    """The answer, or a `DataError` after a few tries."""
    for tries_left in reversed(range(N_TRIES)):
        try:
            return ask()
        except FileNotFoundError as error:
            raise DataError("there is no such file", where=url, cure="check the URL") from error
        except UserError:
            raise
        except Exception as error:
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                raise  # `Copies.path` names the folder
            if not tries_left:
                message = " ".join(str(error).split()) or type(error).__name__
                raise DataError(
                    f"cannot be fetched: {message[:200]}",
                    where=url,
                    cure="check the URL, network and permissions",
                ) from error
        time.sleep(PAUSE_S)
    raise AssertionError("the last try answers or raises")


def find_files(places: list[str], key: str) -> list[str]:
    """The files of paths, globs and URLs, without repetition. The files of a glob are sorted.

    Raises:
        DataError: One of the places has no file, or is an NPY file at a URL.
        UserError: As for `find_urls`.
    """
    found: dict[str, str] = {}
    for place in places:
        files = find_urls(place) if is_url(place) else _matching(place)
        if not files:
            raise _no_file(place, key)
        if is_url(place) and (npy := [file for file in files if file.endswith(".npy")]):
            raise DataError(
                "NPY files cannot be read from a URL", where=f"{key}: {npy[0]}", cure="pack them into one .npz file"
            )
        for file in files:
            found.setdefault(_source_of(file), file)
    return list(found.values())


def _matching(place: str) -> list[str]:
    matches = [place] if is_file(Path(place), DataError) else sorted(glob.glob(place, recursive=True))  # noqa: PTH207
    return [match for match in matches if is_file(Path(match), DataError)]


def _source_of(file: str) -> str:
    """The same text for all paths of one file, and for all NPY files of one folder, which are one source."""
    if is_url(file):
        return file
    if file.endswith(".npy"):
        return str(Path(os.path.realpath(Path(file).parent), "*.npy"))
    return os.path.realpath(file)


def _no_file(place: str, key: str) -> DataError:
    path = Path(place)
    if is_url(place) or glob.has_magic(place):
        shown = place.replace("[[]", "[")  # see `absolute_pattern`
        return DataError("no file matches this pattern", where=f"{key}: {shown}", cure="check the path and the suffix")
    if path.is_dir():
        return DataError("this is a folder", where=f"{key}: {place}", cure=f"name its files: {place}/*.h5")
    if not path.parent.is_dir():
        return DataError("there is no such folder", where=f"{key}: {path.parent}", cure="check the path")
    near = nearest_file(path, f"*{path.suffix}")
    cure = f"did you mean {near!r}?" if near else f"{path.parent} has no file with a similar name"
    return DataError("there is no such file", where=f"{key}: {place}", cure=cure)


def is_url(place: str) -> bool:
    """Whether `place` is a URL (``s3://…``, ``root://…``), not a path."""
    return "://" in place


def absolute(place: str, directory: Path) -> str:
    """`place` as an absolute path, relative to `directory`; ``~`` is the home directory. URLs do not change.

    Raises:
        ConfigurationError: As for `expanded`.
    """
    if is_url(place):
        return place
    return str((directory / expanded(place)).absolute())


def absolute_pattern(place: str, directory: Path) -> str:
    """`absolute` for a path or glob of files. A glob matches in `directory` whatever characters its name has."""
    path = absolute(place, directory)
    if is_url(place) or not glob.has_magic(place) or os.path.isfile(path):  # noqa: PTH113 - False for any error
        return path
    return absolute(place, Path(glob.escape(str(directory.absolute()))))
