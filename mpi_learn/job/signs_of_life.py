"""Signs of life of rank 0, and the end of a job that gives none.

Rank 0 touches the file to which it will write its status. A process that is stopped, that waits
forever for its host, or that has never begun does not. The process that has started the job then ends it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

INTERVAL_S = 1.0
"""The interval between two signs of life, in seconds."""

END_S = 75.0
"""``mpirun`` must end within this time after the end of rank 0, in seconds. Other ranks need up to 60 s for their exit
handlers; a stopped one would keep ``mpirun`` forever."""

ELSEWHERE_S = 10.0
"""A job whose rank 0 is on another host is asked for signs of life at this interval or a longer one, in seconds. A
search renews the lease of its study every 3 s."""

LEFTOVERS_S = 5.0
"""Processes that were killed must be gone after this time, in seconds."""


def give_signs_of_life(path: Path) -> None:
    """Touches `path` from a second thread until this process ends."""

    def touch() -> None:
        while True:
            with suppress(OSError):  # the file is on another host, or no longer needed
                os.utime(path)
            time.sleep(INTERVAL_S)

    threading.Thread(target=touch, name="signs of life", daemon=True).start()


class LifeWatch:
    """Decides whether a job is still alive; times are measured with the clock of this process.

    Args:
        path: The file that rank 0 touches; rank 0 writes its status to it when it ends.
        start_s: Time for rank 0 to begin, in seconds.
        silence_s: The longest time between two signs of life, in seconds.
        is_alive: As `Restarts.is_alive`.
    """

    def __init__(
        self, path: Path, start_s: float, silence_s: float, is_alive: Callable[[], bool | None] = lambda: False
    ) -> None:
        self._path, self._start_s, self._silence_s, self._is_alive = path, start_s, silence_s, is_alive
        self._seen = self._first = path.stat().st_mtime_ns
        self._since_s = self._asked_s = time.monotonic()
        self._is_elsewhere = False
        is_alive()  # the next call is then not about an earlier job

    def trouble(self) -> str:
        """Why the job must be ended; empty if it is alive."""
        try:
            found, now_s = self._path.stat(), time.monotonic()
        except OSError:  # another program has removed the file: nothing is known
            return ""
        if found.st_mtime_ns != self._seen:
            self._seen, self._since_s = found.st_mtime_ns, now_s
        silent_s = now_s - self._since_s
        if found.st_size > 0:
            return "mpirun did not end after its rank 0" if silent_s > END_S else ""
        if self._seen != self._first:
            return f"rank 0 gave no sign of life for {self._silence_s:g} s" if silent_s > self._silence_s else ""
        return self._trouble_elsewhere(now_s)

    def _trouble_elsewhere(self, now_s: float) -> str:
        """The same if rank 0 has not touched the file: it has not begun, or runs on another host."""
        every_s = max(self._silence_s, ELSEWHERE_S)
        is_late = not self._is_elsewhere and now_s - self._since_s > self._start_s
        if not is_late and now_s - self._asked_s < every_s:
            return ""
        self._asked_s, is_alive = now_s, self._is_alive()
        self._is_elsewhere |= is_alive is True
        if is_alive is not False:
            self._since_s = now_s
        elif self._is_elsewhere:
            return f"rank 0 gave no sign of life for {every_s:g} s"
        elif is_late:
            return f"the job did not begin within {self._start_s:g} s"
        return ""


def kill_all_with(variable: str, value: str) -> None:
    """Kills the processes of this host that have `variable` with `value` in their environment, except this one.

    Only processes of this user are found, and only on Linux. A process of a job that survives, such as a stopped rank,
    could otherwise continue next to the new job.
    """
    wanted, until = f"{variable}={value}".encode(), time.monotonic() + LEFTOVERS_S
    while (found := _with_entry(wanted)) and time.monotonic() < until:
        for process in found:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(INTERVAL_S / 20)


def _with_entry(wanted: bytes) -> list[int]:
    """The living processes, except this one, with this entry in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or belongs to another user; a zombie has no environment
            process = int(path.parent.name)
            if process != os.getpid() and wanted in path.read_bytes().split(b"\0"):
                found.append(process)
    return found
