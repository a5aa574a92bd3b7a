"""What a framework must find in the environment before it is imported: threads, a GPU, and quiet."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LOCAL_SIZES = (
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
)
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
GPUS = Path("/proc/driver/nvidia/gpus")


def prepare_environment() -> int:
    """Sets threads, GPU and log level, unless the user set them; call it before a framework is imported.

    Returns:
        The number of threads that this rank may compute with: its share of the cores of its host.
    """
    n_threads = n_threads_of(os.environ, n_cores())
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(n_threads))
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1" if n_threads == 1 else "2")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if (gpu := gpu_of(os.environ, len(list(GPUS.glob("*"))))) is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    return n_threads


def gpu_of(environment: Mapping[str, str], n_gpus: int) -> str | None:
    """This rank's GPU: one of the host's, or of those that Slurm or the user gave; None: leave them as they are.

    Args:
        n_gpus: Of this host.
    """
    given = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = given.split(",") if given is not None else [str(number) for number in range(n_gpus)]
    if len(gpus) < 2 or _first_number(environment, LOCAL_SIZES, 1) < 2:
        return None
    return gpus[_first_number(environment, LOCAL_RANKS, 0) % len(gpus)].strip()


def n_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads_of(environment: Mapping[str, str], cores: int) -> int:
    """The threads of one rank: what the user said, or its share of the host's cores.

    Ranks that ``mpirun`` has bound see only their own cores: they get one thread.
    """
    wanted = _first_number(environment, THREAD_VARIABLES, 0)
    if wanted > 0:
        return wanted
    n_ranks = _first_number(environment, LOCAL_SIZES, 1)
    return max(1, cores // n_ranks)


def _first_number(environment: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = environment.get(name, "").split(",")[0].split("(")[0]
        if value.isdigit():
            return int(value)
    return default


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Keeps back what libraries write past Python to the standard error; shown after all if something is raised."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        went_well = False
        try:
            yield
            went_well = True
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            if not went_well:
                aside.seek(0)
                os.write(2, aside.read())
