"""A search under ``mpirun`` whose ranks can be found and killed one by one, and read-only queries of its store."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from mpi_learn.job.launch import find_mpirun, launch_environment, launch_flags
from mpi_learn.settings.yaml_file import dumped


class Hung(Exception):
    """A search did not end in time; the message has the tracebacks of its ranks."""


class Launched:
    """``mpi-opt search space.yaml`` on `n` ranks, with `folder` as the working directory.

    Args:
        folder: The working directory. The output is written to ``out.txt`` there.
        n: The number of ranks.
        content: The content of ``space.yaml``; None: the existing file.
        flags: The flags of ``mpirun``; None: those that ``mpi-opt search -n`` uses.
    """

    def __init__(self, folder: Path, n: int, content: dict[str, Any] | None, flags: list[str] | None = None) -> None:
        self.folder, self.n = folder, n
        folder.mkdir(parents=True, exist_ok=True)
        if content is not None:
            (folder / "space.yaml").write_text(dumped(content))
        mpirun = find_mpirun()
        flags = launch_flags(mpirun) if flags is None else flags
        command = [mpirun, *flags, "-np", str(n), sys.executable, "-m", "mpi_opt", "search", "space.yaml"]
        with (folder / "out.txt").open("a") as out:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=launch_environment() | {"OMP_NUM_THREADS": "1"},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.began = time.time()
        self._pids: dict[int, int] = {}

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.end()

    @property
    def is_running(self) -> bool:
        """Whether ``mpirun`` is still running."""
        return self.process.poll() is None

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each rank that has been started."""
        if len(self._pids) < self.n:
            for child in _children(self.process.pid):
                rank = _rank_of(child)
                if rank is not None:
                    self._pids.setdefault(rank, child)
        return self._pids

    def kill(self, rank: int) -> float | None:
        """Kills a rank with SIGKILL.

        Returns:
            The time of the kill in seconds since 1970; None if the rank has ended or has not started.
        """
        pid = self.pids.get(rank)
        if pid is None or not self.is_running or _rank_of(pid) != rank:
            return None
        at = time.time()
        os.kill(pid, signal.SIGKILL)
        return at

    def wait(self, limit_s: float) -> int:
        """The exit status.

        Raises:
            Hung: The search did not end within `limit_s`. It has been killed.
        """
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            stacks = self.stacks()
            self.end()
            raise Hung(f"no end after {limit_s:g} s\n{stacks}") from None

    def stacks(self) -> str:
        """The traceback of each rank, if ``py-spy`` is installed."""
        lines = []
        for rank, pid in sorted(self.pids.items()):
            if _rank_of(pid) != rank:
                lines.append(f"rank {rank}: gone")
                continue
            command = [str(Path(sys.executable).with_name("py-spy")), "dump", "--native", "--pid", str(pid)]
            try:
                found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
                lines.append(f"rank {rank}:\n{found.stdout or found.stderr}")
            except (OSError, subprocess.TimeoutExpired) as error:
                lines.append(f"rank {rank}: {error}")
        return "\n".join(lines)

    def end(self) -> None:
        """Kills all processes of the search that still run."""
        pids = self.pids
        os.killpg(self.process.pid, signal.SIGKILL)
        for rank, pid in pids.items():
            if _rank_of(pid) == rank:
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def end_in_order() -> None:
    """Turns SIGTERM into an exception, so that this process ends its search before it exits."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))


def query(database: Path, sql: str) -> list[tuple]:
    """The rows that a read-only client gets from the store; empty if the store does not exist yet."""
    if not database.exists():
        return []
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
            return connection.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error) or "unable to open" in str(error):
            return []
        raise


def _children(pid: int) -> list[int]:
    try:
        return [
            int(word)
            for path in Path(f"/proc/{pid}/task").iterdir()
            for word in (path / "children").read_text().split()
        ]
    except OSError:
        return []


def _rank_of(pid: int) -> int | None:
    """The rank of a process; None if the process is not a rank or has ended."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [word for word in words if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
    return int(found[0].split(b"=")[1]) if found else None
