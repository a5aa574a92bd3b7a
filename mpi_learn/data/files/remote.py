"""Files behind URLs: looked up with fsspec, and copied to this host before they are read."""

from __future__ import annotations

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

from mpi_learn.data.formats.optional import imported
from mpi_learn.errors import DataError, UserError

N_TRIES = 3
PAUSE_S = 1.0
"""Networks fail for moments: between two tries."""

_HELD: set[int] = set()
"""The descriptors of the lock files that this process holds."""

Answer = TypeVar("Answer")


class Copies:
    """Local copies of remote files, for as long as the context lasts.

    Any number of processes may share a cache: one fetches a file, the others wait for it; it is removed by the last one
    that used it, and never while another reads. A file that changed at its source is fetched anew.

    Args:
        cache: Where the copies lie; None is a folder of this process that is removed at the end.
        keep: Whether the copies stay for the next time.
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
        """The copy of what stands at `url`, which is fetched if need be.

        Raises:
            DataError: It cannot be fetched, or not be written here.
            UserError: fsspec, or what it needs for this kind of URL, is not installed.
        """
        if url not in self._paths:
            try:
                self._paths[url] = self._stack.enter_context(_copy(url, self._folder(), self.keep))
            except OSError as error:
                raise DataError(
                    f"cannot be copied to {self._folder()}: {error}",
                    where=url,
                    cure="name a folder with room: cache: DIR",
                ) from error
        return self._paths[url]

    def _folder(self) -> Path:
        if self.cache is None:
            self.cache, self.keep = Path(tempfile.mkdtemp(prefix="mpi_learn_")), False
            self._stack.callback(shutil.rmtree, self.cache, ignore_errors=True)
        self.cache.mkdir(parents=True, exist_ok=True)
        return self.cache


def find_urls(url: str) -> list[str]:
    """What a URL with ``*`` finds, sorted; without one, the URL itself.

    Raises:
        DataError: The place cannot be reached.
        UserError: fsspec, or what it needs for this kind of URL, is not installed.
    """
    if "*" not in url:
        return [url]
    system, path = _system(url)
    return sorted(system.unstrip_protocol(found) for found in _tried(url, lambda: system.glob(path)))


@contextmanager
def _copy(url: str, folder: Path, keep: bool) -> Iterator[Path]:
    """Holds the copy of a file, which nobody removes meanwhile.

    Whoever reads a copy holds its lock together with others; alone holds it only who fetches or removes it. So nobody
    waits for a reader, and readers of several files never wait for each other in a circle.
    """
    system, path = _system(url)
    version = _tried(url, lambda: system.ukey(path))
    digest = hashlib.sha256(f"{url} {version}".encode()).hexdigest()[:16]
    target = folder / f"{digest}-{path.rpartition('/')[2].partition('?')[0]}"
    lock_path = folder / f".{target.name}.lock"
    while (lock := _held(lock_path)) is None or not target.exists():
        if lock is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if _is_current(lock, lock_path) and not target.exists():
                    _fetch(url, system, path, target)
            finally:
                _release(lock)
    try:
        yield target
    finally:
        if lock in _HELD:  # not in a process that was forked meanwhile
            if not keep and _is_last(lock):
                target.unlink(missing_ok=True)
                lock_path.unlink(missing_ok=True)
            _release(lock)


def _held(path: Path) -> int | None:
    """The descriptor of a lock file that is held together with others; None if it was removed meanwhile.

    The system takes the lock from a process that dies.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _HELD.add(lock)
    fcntl.flock(lock, fcntl.LOCK_SH)
    if _is_current(lock, path):
        return lock
    _release(lock)
    return None


def _release(lock: int) -> None:
    _HELD.discard(lock)
    os.close(lock)


def _forget() -> None:
    """In a process that user code has forked: else it would hold the locks as long as it lives."""
    while _HELD:
        os.close(_HELD.pop())


if hasattr(os, "register_at_fork"):
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
    """Copies the file; only whoever holds its lock alone may."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.[0-9]*"):  # by processes that died meanwhile
        left.unlink()
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _tried(url, lambda: system.get_file(path, str(aside)))
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def _system(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it."""
    try:
        return imported("fsspec.core", "remote").url_to_fs(url)
    except ImportError as error:
        raise UserError(str(error), where=url, cure="pip install what it names, or mpi-opt[remote]") from error
    except ValueError as error:
        raise DataError(str(error), where=url, cure="https, s3, gs, root, … are known to fsspec") from error


def _tried(url: str, ask: Callable[[], Answer]) -> Answer:
    """The answer, or a `DataError` after a few tries."""
    for tries_left in reversed(range(N_TRIES)):
        try:
            return ask()
        except FileNotFoundError as error:
            raise DataError("there is no such file", where=url, cure="check the URL") from error
        except (OSError, RuntimeError, ValueError) as error:
            if not tries_left:
                said = " ".join(str(error).split()) or type(error).__name__
                raise DataError(
                    f"cannot be fetched: {said[:200]}", where=url, cure="check the URL, the network and your rights"
                ) from error
        time.sleep(PAUSE_S)
    raise AssertionError("the last try answers or raises")
