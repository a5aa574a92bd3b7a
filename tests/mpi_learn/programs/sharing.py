"""Run under mpirun: the memory that the ranks of a host take together for the same data, in several situations."""

import gc
import json
import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.loading import DatasetCache, load

FILE = Path(sys.argv[1])
world = MPI.COMM_WORLD
ALONE = MPI.COMM_SELF


def shared_bytes() -> int:
    """This process's part of the memory that it shares; the parts of all processes add up to the memory."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("Pss_Shmem:")]
    return 1024 * int(line.split()[1])


def configured(**others):
    return DataConfiguration(**{"train": str(FILE), "features": "X", "labels": "y"} | others)


def measured(make) -> dict:
    """The memory of the result of `make` on all ranks together, as a multiple of the size of the data."""
    world.Barrier()
    before = world.allreduce(shared_bytes())
    world.Barrier()
    data = make()
    total = float(data.training.x[0].sum())  # touches every page
    world.Barrier()
    copies = (world.allreduce(shared_bytes()) - before) / data.training.x[0].nbytes
    world.Barrier()
    del data
    gc.collect()
    world.Barrier()
    left = (world.allreduce(shared_bytes()) - before) / FILE.stat().st_size
    return {"copies": world.bcast(copies), "left": world.bcast(left), "sums": world.gather(total)}


def by_folds():
    data = load(configured(), ALONE, 0)
    return data.fold(*(indices.nonzero()[0] for indices in (data.training.y[0] % 2 == 0, data.training.y[0] % 2 == 1)))


def kept_from_trial_to_trial():
    """Another trial with other data between two with the same."""
    kept = DatasetCache()
    first, other = kept.load(configured(), ALONE, 0), kept.load(configured(labels=None), ALONE, 0)
    assert kept.load(configured(), ALONE, 0) is first
    del other, kept
    return first


def after_a_loss():
    """The first rank, which the others ask for the data, dies while it reads them."""
    if world.rank == 0:
        child = os.fork()
        if child == 0:
            import mpi_learn.data.loading as loading

            loading._fill = lambda *arguments: (Path(f"{FILE}.begun").touch(), time.sleep(60))
            load(configured(), ALONE, 0)
        while not Path(f"{FILE}.begun").exists():
            time.sleep(0.01)
    world.Barrier()
    if world.rank == 0:
        time.sleep(0.3)  # the others ask meanwhile
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return load(configured(), ALONE, 0)


CASES = {
    "together": lambda: load(configured(), world, 0),
    "each alone": lambda: load(configured(), ALONE, 0),
    "in pairs": lambda: load(configured(), world.Split(world.rank // 2), 0),
    "in folds": by_folds,
    "in trials": kept_from_trial_to_trial,
    "after a loss": after_a_loss,
}
seen = {name: measured(case) for name, case in CASES.items()}
if world.rank == 0:
    print(json.dumps(seen))
