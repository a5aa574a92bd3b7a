"""How this process was started: launcher (without MPI), command, and the reason of a restart."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mpi_learn.errors import UserError


@dataclass(frozen=True)
class Launcher:
    """A program that starts processes, and the environment variables that it sets in each.

    Attributes:
        name: The name in messages.
        size: The variable with the number of processes; empty if there is none.
        rank: The variable with the rank of this process.
    """

    name: str
    size: str
    rank: str


LAUNCHERS = (
    Launcher("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # Open MPI
    Launcher("mpiexec", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),  # MVAPICH
    Launcher("mpiexec", "PMI_SIZE", "PMI_RANK"),  # MPICH, Intel MPI, Cray; srun --mpi=pmi2; Flux
    Launcher("mpiexec", "PALS_SIZE", "PALS_RANKID"),  # HPE
    Launcher("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),  # IBM LSF
    Launcher("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    Launcher("a PMIx launcher", "", "PMIX_RANK"),
)
"""Ordered by priority: processes of ``mpirun`` in a Slurm job also have the variables of Slurm."""


@dataclass(frozen=True)
class Launched:
    """The rank of this process and the number of processes, according to the launcher.

    Attributes:
        by: The launcher's name; empty without a launcher.
        rank: 0 without a launcher.
        size: A lower bound of the number of started processes; 1 without a launcher.
    """

    by: str = ""
    rank: int = 0
    size: int = 1


def launched(environment: Mapping[str, str] = os.environ) -> Launched:
    """The launcher of this process, its rank and the number of processes.

    A shell of a Slurm job also has a ``SLURM_PROCID``, and a shell of ``srun --pty`` is the only task of its step.
    Neither counts as launched.
    """
    for launcher in LAUNCHERS:
        rank, size = (environment.get(name, "") for name in (launcher.rank, launcher.size))
        if not rank.isdigit() and not size.isdigit():
            continue
        at_least = int(rank or 0) + 1
        found = Launched(launcher.name, at_least - 1, max(int(size or 1), at_least))
        if launcher.name != "srun" or found.size > 1:
            return found
    return Launched()


def is_launched() -> bool:
    """Whether this process was started by ``mpirun``, ``mpiexec``, ``srun`` or another launcher of MPI programs."""
    return launched().by != ""


def is_started_by_srun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether ``srun`` started this process.

    With ``srun --mpi=pmi2``, `launched` returns ``mpiexec``, because the variables of MPICH are set as well.
    """
    found = launched(environment)
    is_pmi2 = environment.get("SLURM_MPI_TYPE") == "pmi2" and environment.get("SLURM_STEP_NUM_TASKS") == str(found.size)
    return found.by == "srun" or (found.by == "mpiexec" and is_pmi2)


def launched_rank() -> int:
    """The rank of this process according to its launcher; 0 without a launcher."""
    return launched().rank


def n_hosts(environment: Mapping[str, str] = os.environ) -> int:
    """The number of hosts that Slurm, PBS, LSF or Grid Engine gave to this job; 1 outside of them."""
    if environment.get("SLURM_JOB_NUM_NODES", "").isdigit():
        return int(environment["SLURM_JOB_NUM_NODES"])
    if "LSB_MCPU_HOSTS" in environment:  # host1 8 host2 8
        return max(len(environment["LSB_MCPU_HOSTS"].split()) // 2, 1)
    for name in ("PBS_NODEFILE", "PE_HOSTFILE"):  # a host at the start of each line
        with suppress(OSError, KeyError):
            lines = Path(environment[name]).read_text(encoding="utf-8").splitlines()
            return max(len({line.split()[0] for line in lines if line.strip()}), 1)
    return 1


def all_ranks_live() -> bool:
    """Whether it is certain that no rank has died: all are on this host, as children of one Open MPI process.

    False if it is unknown: with ranks on several hosts, other MPI libraries or systems other than Linux.
    """
    n_ranks, n_local = (os.environ.get(f"OMPI_COMM_WORLD_{what}", "") for what in ("SIZE", "LOCAL_SIZE"))
    if not n_ranks.isdigit() or n_ranks != n_local:
        return False
    try:
        tasks = Path(f"/proc/{os.getppid()}/task").iterdir()
        siblings = [pid for task in tasks for pid in (task / "children").read_text().split()]
        states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in siblings]
    except OSError:
        return False
    return sum(state not in "ZX" for state in states) >= int(n_ranks)


def check_not_launched() -> None:
    """Refuses to start ``mpirun`` in a process that a launcher started.

    Raises:
        UserError: A launcher started this process.
    """
    if is_launched():
        raise UserError("-n starts mpirun, and this process already runs under one", cure="drop -n, or drop mpirun")


def check_world(size: int, library: str) -> None:
    """Refuses a world of one process if a launcher started several that MPI did not connect.

    Args:
        size: The size of ``MPI.COMM_WORLD``.
        library: The name of the MPI library in use; a comma or a line end begins its details.

    Raises:
        UserError: Each process would do all the work alone.
    """
    launcher, n = launched().by, launched().size
    if size > 1 or n == 1:
        return
    library = library.split(",")[0].split("\n")[0]
    cure = (
        f"use the launcher of the MPI library that mpi4py uses ({library}); mpi-learn train and mpi-opt search "
        f"start it with -n {n}"
    )
    if launcher == "srun" or "SLURM_STEP_NUM_TASKS" in os.environ:
        cure = (
            "use mpirun, or srun --mpi=pmix where this Slurm has it (srun --mpi=list) and the MPI library of mpi4py "
            f"supports it ({library})"
        )
    raise UserError(
        f"{launcher} started {n} processes, but each is alone in its MPI world: MPI does not know this launcher",
        cure=cure,
    )


def check_allocation(environment: Mapping[str, str] = os.environ) -> None:
    """Refuses a process without a launcher in a Slurm job of several tasks.

    Raises:
        UserError: All tasks but one would idle.
    """
    n_tasks = environment.get("SLURM_NTASKS", "")
    if not launched(environment).by and n_tasks.isdigit() and int(n_tasks) > 1:
        raise UserError(
            f"this Slurm job has {n_tasks} tasks, and the program was started as one process",
            cure=f"-n {n_tasks} uses all of them, -n 1 only one",
        )


COMMAND_VARIABLE = "MPI_LEARN_COMMAND"
"""The environment variable in which `launch` passes the command on to the ranks that it starts."""

REASON_VARIABLE = "MPI_LEARN_RESTART"
"""The environment variable in which a job with restarts receives the reason; empty in its first start."""

MAX_LENGTH = 500
"""The largest number of characters of a command: ``python -c`` may have a whole program."""

_of_launch = ""
_reason: str | None = None


def take_from_environment() -> None:
    """Reads and removes the two variables: child processes must not inherit them."""
    global _of_launch, _reason
    _of_launch = os.environ.pop(COMMAND_VARIABLE, _of_launch)
    _reason = os.environ.pop(REASON_VARIABLE, _reason)


def typed_command() -> str:
    """The command in the form of a shell, such as ``mpi-opt search jets.yaml -n 5`` or ``mpirun -np 3 python a.py``.

    Options of ``mpirun`` other than the number of ranks are not known. Empty in a notebook or an interactive session,
    where there is no such command.
    """
    take_from_environment()
    if _of_launch:
        return _of_launch
    interpreter, *arguments = sys.orig_argv
    if hasattr(sys, "ps1") or "ipykernel" in sys.modules or not arguments:
        return ""
    program = Path(arguments[0]).name
    words = [program, *arguments[1:]] if program in ("mpi-opt", "mpi-learn") else [Path(interpreter).name, *arguments]
    by = launched()
    prefix = (
        [by.by if " " not in by.by else "mpiexec", "-n" if by.by == "srun" else "-np", str(by.size)] if by.by else []
    )
    text = shlex.join([*prefix, *words])
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}…"


def restart_reason() -> str | None:
    """Why this job was started again, one line for each time that is not recorded yet.

    Empty in its first start, None for a job without restarts.
    """
    take_from_environment()
    return _reason
