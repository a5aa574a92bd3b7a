"""Prepares the environment before a framework is imported: threads, GPU and log level."""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LAUNCHER_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE")
"""Number of ranks on this host, as set by the ``mpirun`` of Open MPI, MPICH and MVAPICH."""
SLURM_LOCAL_SIZES = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE")
LOCAL_SIZES = LAUNCHER_LOCAL_SIZES + SLURM_LOCAL_SIZES
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
GPUS = Path("/proc/driver/nvidia/gpus")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of the options in ``malloc.h`` of the GNU C library."""
MIB = 2**20


def prepare_environment() -> int:
    """Sets threads, GPU and log level, unless the user has set them. Call it before a framework is imported.

    Returns:
        The number of compute threads of this rank: its share of the cores of its host.
    """
    n_threads = n_threads_of(os.environ, n_cores(), n_job_cores(os.environ))
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(n_threads))
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1" if n_threads == 1 else "2")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    choose_gpu()
    return n_threads


def with_home(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with ``HOME``, which cron and systemd may leave out, and without which Open MPI does not start.

    It is the directory in the password database. A container may run under a number without an entry there.
    """
    if "HOME" in environment:
        return dict(environment)
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = tempfile.gettempdir()
    return {**environment, "HOME": home}


def choose_gpu() -> None:
    """Leaves this rank one of several GPUs. Call it before user code is imported, which may use a GPU at once."""
    if (gpu := gpu_of(os.environ, len(list(GPUS.glob("*"))))) is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu


def allow_a_second_graph() -> None:
    """Lets TensorFlow compute two graphs at the same time, which a validation in a thread needs.

    On a rank with one compute thread, `prepare_environment` sets one inter-op thread, which all graphs share. A
    validation and the training would wait for each other. Two inter-op threads are not the default, because they make
    a training without validation in a thread 2 to 5 % slower.

    Call it before `prepare_environment`. It has no effect once TensorFlow has started, or if the user has set
    ``TF_NUM_INTEROP_THREADS``.
    """
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")


def gpu_of(environment: Mapping[str, str], n_gpus: int) -> str | None:
    """The GPU of this rank, one of the host's `n_gpus` or of ``CUDA_VISIBLE_DEVICES``; None if there is no choice."""
    given = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = given.split(",") if given is not None else [str(number) for number in range(n_gpus)]
    if len(gpus) < 2 or n_ranks_on_host(environment) < 2:
        return None
    return gpus[_first_number(environment, LOCAL_RANKS, 0) % len(gpus)].strip()


def n_cores(process: int = 0) -> int:
    """Number of cores on which a process may run; 0 is this process."""
    try:
        return len(os.sched_getaffinity(process))
    except (AttributeError, OSError):  # not Linux, or the process has ended
        return os.cpu_count() or 1


def n_job_cores(environment: Mapping[str, str]) -> int:
    """Number of cores of this host that the job may use: those that Slurm has allocated, or those of the launcher.

    A launcher may bind each rank to a few cores, but is not bound itself. Its cores are therefore those of the job.
    """
    allocated = _first_number(environment, ("SLURM_CPUS_ON_NODE",), 0)
    return allocated or max(n_cores(), n_cores(os.getppid()))


def n_ranks_on_host(environment: Mapping[str, str]) -> int:
    """Number of ranks of the job on this host."""
    return _first_number(environment, LOCAL_SIZES, 1)


def n_threads_of(environment: Mapping[str, str], cores: int, job_cores: int) -> int:
    """Number of threads of one rank: as set by the user, or its share of the cores of the job on this host.

    The share is never larger than the number of cores to which the rank is bound. Cores to which Slurm or ``mpirun``
    has bound the rank are therefore not divided again.

    Args:
        cores: Number of cores on which this rank may run.
        job_cores: Number of cores of this host that the job may use.
    """
    wanted = _first_number(environment, THREAD_VARIABLES, 0)
    if wanted > 0:
        return wanted
    share = job_cores // n_ranks_on_host(environment)
    if not any(name in environment for name in LAUNCHER_LOCAL_SIZES):  # otherwise Slurm's tasks are not the ranks
        share = _first_number(environment, ("SLURM_CPUS_PER_TASK",), share)
    return max(1, min(cores, share))


def _first_number(environment: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = environment.get(name, "").split(",")[0].split("(")[0]
        if value.isdigit():
            return int(value)
    return default


def reuse_freed_memory() -> None:
    """Makes the C library keep freed memory for the next allocations: up to 512 MiB, in blocks of up to 256 MiB.

    PyTorch allocates and frees the activations of a model in every step. By default the C library may return them to
    the operating system each time and receive them again page by page, which made steps of a CNN up to a third slower,
    in some processes and not in others. Without effect where the C library is not GNU's, or where the user has set
    ``MALLOC_TRIM_THRESHOLD_`` or ``MALLOC_MMAP_THRESHOLD_``.
    """
    if {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & set(os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(M_TRIM_THRESHOLD, 512 * MIB)
    if not mallopt(M_MMAP_THRESHOLD, 256 * MIB):
        mallopt(M_MMAP_THRESHOLD, 32 * MIB)  # the largest value that older releases of the library accept


def return_freed_memory() -> None:
    """Returns what `reuse_freed_memory` lets the C library keep to the operating system, once."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Suppresses output of libraries to the file descriptor of standard error, unless an exception is raised."""
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        has_succeeded = False
        try:
            yield
            has_succeeded = True
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
            if not has_succeeded:
                aside.seek(0)
                os.write(2, aside.read())
