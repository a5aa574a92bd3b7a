"""The hosts of a job, and which of them answer. Used before a restart, to leave out hosts that are lost."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mpi_learn.errors import ConfigurationError

ANSWER_S = 15.0
"""Time in which a host must run a command, in seconds."""

MAX_AT_ONCE = 32
"""The number of hosts that are asked at the same time."""

AGENT_VARIABLES = ("PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent")
"""The program with which ``mpirun`` of Open MPI 5 and 4 runs commands on other hosts; by default ``ssh``."""

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"


@dataclass(frozen=True)
class Host:
    """A host of a job.

    Attributes:
        name: As in the host file or in Slurm's list.
        slots: The number of ranks that it may run; None if the file does not say it.
    """

    name: str
    slots: int | None = None


def read_hostfile(path: Path) -> list[Host]:
    """The hosts of a host file of Open MPI: lines such as ``node1 slots=4`` or ``node1:4``; repeated lines add up.

    Raises:
        ConfigurationError: The file cannot be read, or names no host.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"cannot be read: {error}", where=f"--hostfile {path}", cure="name a file with a host in each line"
        ) from error
    slots: dict[str, int | None] = {}
    for line in lines:
        words = line.partition("#")[0].split()
        if not words:
            continue
        # an address of IPv6 has several colons
        name, _, number = words[0].partition(":") if words[0].count(":") == 1 else (words[0], "", "")
        found = re.search(r"\bslots=(\d+)", line)
        n = int(found[1]) if found else int(number) if number.isdigit() else None
        before = slots.get(name)
        # only a host in several lines gets a number where none is written: one for each line
        slots[name] = (before or 1) + (n or 1) if name in slots else n
    if not slots:
        raise ConfigurationError("names no host", where=f"--hostfile {path}", cure="write lines such as node1 slots=4")
    return [Host(name, n) for name, n in slots.items()]


def hosts_of_slurm(
    environment: Mapping[str, str] = os.environ, expand: Callable[[str], list[str]] | None = None
) -> list[Host]:
    """The nodes of this Slurm job with their numbers of tasks; empty outside of Slurm, or if Slurm does not answer.

    Args:
        expand: Returns the names in a list such as ``node[1-3]``; default: asks ``scontrol``.
    """
    listed = environment.get("SLURM_JOB_NODELIST", "")
    if not listed:
        return []
    names = (expand or _expand)(listed)
    tasks = _repeated(environment.get("SLURM_TASKS_PER_NODE", ""))
    known = tasks if len(tasks) == len(names) else [None] * len(names)
    return [Host(name, n) for name, n in zip(names, known, strict=True)]


def answering(hosts: Iterable[Host], runs: Callable[[str], bool]) -> list[Host]:
    """The hosts on which a command runs, in the same order. This host is one of them.

    Args:
        runs: Whether a command runs on a host with this name, see `runs_by_ssh` and `runs_by_srun`.
    """
    from concurrent.futures import ThreadPoolExecutor  # each rank of a search imports this module

    listed = list(hosts)
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        answers = pool.map(lambda host: is_this_host(host.name) or runs(host.name), listed)
        return [host for host, answers_now in zip(listed, answers, strict=True) if answers_now]


def is_this_host(name: str) -> bool:
    """Whether a name, with or without a domain, or an address is that of this host.

    ``mpirun`` runs no command there with ``ssh``, which may be impossible.
    """
    if name == "localhost" or name.partition(".")[0] == socket.gethostname().partition(".")[0]:
        return True
    with suppress(OSError, UnicodeError):  # UnicodeError: a name that no host can have
        for family, kind, _, _, address in socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind) as probe:
                probe.bind(address)  # possible only with an address of this host
                return True
    return False


def n_ranks(n: int, hosts: list[Host], left: list[Host]) -> int:
    """The number of ranks of a job of `n` ranks on `hosts` if it runs on `left` only; at least 1."""
    slots = [host.slots for host in left]
    known = sum(one for one in slots if one is not None)
    fits = known if None not in slots else n * len(left) // len(hosts)
    return max(1, min(n, fits))


def hostfile_text(hosts: Iterable[Host]) -> str:
    """A host file of Open MPI."""
    return "".join(f"{host.name}{'' if host.slots is None else f' slots={host.slots}'}\n" for host in hosts)


def runs_by_ssh(host: str) -> bool:
    """Whether a command runs on `host`, with the program that ``mpirun`` uses."""
    agent = next((os.environ[name] for name in AGENT_VARIABLES if os.environ.get(name)), SSH)
    return _runs([*shlex.split(agent.partition(":")[0]), host, "true"])


def runs_by_srun(host: str) -> bool:
    """Whether a step of this Slurm job runs on the node `host`."""
    return _runs(["srun", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "true"])


def _runs(command: list[str]) -> bool:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _expand(listed: str) -> list[str]:
    command = ["scontrol", "show", "hostnames", listed]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split()


def _repeated(text: str) -> list[int]:
    """Converts Slurm's ``2(x3),1`` to ``[2, 2, 2, 1]``."""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(number) for number, times in found for _ in range(int(times or 1))]
