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
        restarts: ``mpi-opt search -n`` starts ``mpirun``, at most this number of times again; None: ``mpirun`` alone.
        silence_s: With restarts: time without a sign of life of rank 0 after which it is started again.
        start_s: Time in which all ranks must start.
    """

    def __init__(
        self,
        folder: Path,
        n: int,
        content: dict[str, Any] | None,
        flags: list[str] | None = None,
        restarts: int | None = None,
        silence_s: float = 60.0,
        start_s: float = 600.0,
    ) -> None:
        self.folder, self.n = folder, n
        folder.mkdir(parents=True, exist_ok=True)
        if content is not None:
            (folder / "space.yaml").write_text(dumped(content))
        mpirun = find_mpirun()
        flags = launch_flags(mpirun) if flags is None else flags
        search = [sys.executable, "-m", "mpi_opt", "search", "space.yaml"]
        command = [mpirun, *flags, "-np", str(n), *search]
        if restarts is not None:
            command = [*search, "-n", str(n), "--restarts", str(restarts)]
        limits = {"MPI_LEARN_SILENCE_S": str(silence_s), "MPI_LEARN_START_S": str(start_s)}
        with (folder / "out.txt").open("a") as out:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=launch_environment() | {"OMP_NUM_THREADS": "1"} | limits,
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

    @property
    def mpirun(self) -> int | None:
        """The process id of the ``mpirun`` that runs at present, with restarts."""
        return next(iter(_children(self.process.pid)), None)

    def ranks(self) -> dict[int, int]:
        """Rank -> process id of those that run at present, with restarts."""
        mpirun = self.mpirun
        found = {} if mpirun is None else {_rank_of(child): child for child in _children(mpirun)}
        return {rank: pid for rank, pid in found.items() if rank is not None}

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
        pids = self.pids | self.ranks()
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
