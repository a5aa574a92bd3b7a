"""An ``mpirun`` that runs one program after another, for tests that do not depend on how processes start and end.

A fresh ``mpirun`` spends about a second of CPU time per rank on imports, and several with TensorFlow. `in_world` has
the interface of `tests.mpirun.mpirun` and the same result, but its ranks stay for the next program with as many ranks.
Every program runs with its own working directory, environment, arguments, standard output, signal handlers and user
modules. Its changes to `mpi_opt`, `mpi_learn` or MPI itself remain, as in a script that searches twice.

Use `mpirun` where a test kills ranks, sends signals, closes file descriptors, or looks at the end of a process. If one
rank ends and others wait for its death, the program is run again in processes of its own, whose result counts. A
`RanAgain` in the summary of pytest shows that, so that a rare crash of the first run is not hidden.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from mpi_learn.job.launch import launch_environment
from tests.hiding.sitecustomize import VARIABLE
from tests.mpirun import MPIRUN, PROTECTED, mpirun, patient_s

MAX_RANKS = 16
"""The worlds with the most ranks are closed when more ranks than this would be alive.

Programs for 1 to 3 ranks are the most frequent, and theirs are the ranks that have loaded the frameworks.
"""
START_S, CLOSE_S = 60.0, 10.0
LAST_S = 15.0
"""Time for the last rank after the first one has ended; in processes of their own, ranks learn of the death of one."""


class WorldEnded(Exception):
    """The ranks cannot end a program together."""


class RanAgain(UserWarning):
    """A program was run again with an ``mpirun`` of its own."""


class World:
    """The ranks of one ``mpirun``.

    Args:
        n: Number of ranks.
        flags: Of ``mpirun``.
    """

    def __init__(self, n: int, flags: list[str]) -> None:
        self.n = n
        self._folder = tempfile.TemporaryDirectory(prefix="world-")
        self._log = Path(self._folder.name, "mpirun.log")
        address = str(Path(self._folder.name, "socket"))
        with socket.socket(socket.AF_UNIX) as server, self._log.open("w") as log:
            server.bind(address)
            server.listen(n)
            server.settimeout(patient_s(START_S))
            command = [MPIRUN, *flags, "-np", str(n), sys.executable, "-m", "tests.world_rank", address]
            environment = launch_environment() | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=Path(__file__).parents[1],
                start_new_session=True,
            )
            self._ranks = self._accepted(server)

    def run(self, arguments: list[str], cwd: Path, env: dict[str, str], timeout: float) -> list[tuple[int, str, str]]:
        """Runs a program on all ranks; returns exit status, standard output and standard error of each.

        Raises:
            AssertionError: No rank ended in time; the world is closed then.
            WorldEnded: Some ranks ended and others did not, or a rank died; the world is closed then.
        """
        with tempfile.TemporaryDirectory(dir=self._folder.name) as outputs:
            hidden = os.environ.get(VARIABLE, "")
            job = {"arguments": arguments, "cwd": str(cwd), "env": env, "hidden": hidden, "outputs": outputs}
            for connection in self._ranks:
                connection.sendall(json.dumps(job).encode() + b"\n")
            problem, statuses = self._awaited(timeout)
            texts = [_outputs(Path(outputs), rank) for rank in range(self.n)]
        if problem:
            printed = "\n".join(text for both in texts for text in both)
            self.kill()
            raise (WorldEnded if statuses else AssertionError)(
                f"{arguments} on {self.n} ranks {problem}\n{printed}\n{self._log.read_text()}"
            )
        return [(status, *text) for status, text in zip(statuses, texts, strict=True)]

    def close(self) -> None:
        """Ends the ranks in order."""
        for connection in self._ranks:
            connection.close()
        try:
            self._process.wait(patient_s(CLOSE_S))
        except subprocess.TimeoutExpired:
            self.kill()
        self._folder.cleanup()

    def kill(self) -> None:
        """Ends all ranks at once."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)
                try:
                    self._process.wait(patient_s(CLOSE_S))
                except subprocess.TimeoutExpired:
                    continue

    @property
    def is_alive(self) -> bool:
        """Whether it can run another program."""
        return self._process.poll() is None

    def _accepted(self, server: socket.socket) -> list[socket.socket]:
        found: dict[int, socket.socket] = {}
        try:
            while len(found) < self.n:
                connection, _ = server.accept()
                found[int(connection.makefile("rb").readline())] = connection
        except TimeoutError:
            self.kill()
            raise AssertionError(f"{self.n} ranks did not start\n{self._log.read_text()}") from None
        return [found[rank] for rank in range(self.n)]

    def _awaited(self, timeout: float) -> tuple[str, list[int]]:
        """The problem (empty: none), and the exit statuses so far."""
        statuses: dict[int, int] = {}
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for rank, connection in enumerate(self._ranks):
                selector.register(connection, selectors.EVENT_READ, rank)
            while len(statuses) < self.n:
                ready = selector.select(end - time.monotonic()) if time.monotonic() < end else []
                if not ready:
                    late = sorted(set(range(self.n)) - set(statuses))
                    return f"did not end in time: ranks {late}", list(statuses.values())
                for key, _ in ready:
                    line = key.fileobj.recv(100)
                    if not line:
                        return f"lost rank {key.data}", [-1]
                    if not statuses:
                        end = min(end, time.monotonic() + patient_s(LAST_S))
                    statuses[key.data] = int(line)
        return "", [statuses[rank] for rank in range(self.n)]


_WORLDS: dict[tuple[int, tuple[str, ...]], World] = {}
"""By number of ranks and flags of ``mpirun``."""


def in_world(
    n: int,
    *arguments: str,
    timeout: float = 120,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    mpirun_flags: list[str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs ``python ARGUMENTS`` on `n` ranks that may have run other programs before; as `tests.mpirun.mpirun`."""
    flags = PROTECTED if mpirun_flags is None else mpirun_flags
    key = (n, tuple(flags))
    world = _WORLDS.pop(key, None)
    if world is None or not world.is_alive:
        _make_room(n)
        world = World(n, flags)
    _WORLDS[key] = world
    try:
        ranks = world.run(list(arguments), cwd or Path.cwd(), env or {}, patient_s(timeout))
    except WorldEnded as ended:
        warnings.warn(RanAgain(str(ended)), stacklevel=2)
        return mpirun(n, *arguments, timeout=timeout, cwd=cwd, env=env, mpirun_flags=mpirun_flags)
    status = next((status for status, _, _ in ranks if status), 0)
    out, err = ("".join(rank[index] for rank in ranks) for index in (1, 2))
    return subprocess.CompletedProcess(list(arguments), status, out, err)


def _make_room(n: int) -> None:
    while _WORLDS and sum(world.n for world in _WORLDS.values()) + n > MAX_RANKS:
        _WORLDS.pop(max(_WORLDS)).close()


def close_worlds() -> None:
    """Ends the ranks of all worlds."""
    while _WORLDS:
        _WORLDS.popitem()[1].close()


def _outputs(folder: Path, rank: int) -> tuple[str, str]:
    files = (folder / f"{name}-{rank}" for name in ("out", "err"))
    return tuple(file.read_text(errors="replace") if file.exists() else "" for file in files)
