"""Notices that the user edits a file while a search runs."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from mpi_learn.settings.user_files import SourceCode

INTERVAL_S = 2.0
"""The shortest interval between two looks at the files, in seconds."""


class CodeWatch:
    """Compares the files of `code` on the disk with their content at the start of the search."""

    def __init__(self, code: SourceCode | None) -> None:
        self._files = {} if code is None else dict(code.files)
        self._known: dict[str, tuple[int, int]] = {}  # file -> time of change and size when it was last read
        self._next_s = time.monotonic() + INTERVAL_S

    def edited(self) -> list[str]:
        """The files that have changed; each is returned once. Does not look more often than every `INTERVAL_S`."""
        if time.monotonic() < self._next_s:
            return []
        self._next_s = time.monotonic() + INTERVAL_S
        found = [path for path in self._files if self._is_edited(path)]
        for path in found:
            del self._files[path]
        return found

    def _is_edited(self, path: str) -> bool:
        with suppress(OSError):  # an editor may be about to replace it
            status = Path(path).stat()
            version = status.st_mtime_ns, status.st_size
            if self._known.get(path) != version:  # a file is read only if its time or size has changed
                self._known[path] = version
                return Path(path).read_bytes() != self._files[path]
        return False
