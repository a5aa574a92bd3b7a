"""Run on any number of ranks: trains on files that are streamed, in the folder that the argument names."""

import json
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import MPILearnError
from tests.mpi_learn.models_for_tests import digits

FOLDER = Path(sys.argv[1])
N_FILES = 4
MODEL = Path(__file__).parents[1] / "torch_models_for_tests.py"
WINDOW = 300 * (64 * 4 + 8)  # 300 samples
OFFSETS: dict[int, int] = {}
world = MPI.COMM_WORLD


def write() -> None:
    samples = digits().training
    for number in range(N_FILES):
        with h5py.File(FOLDER / f"part_{number}.h5", "w") as file:
            file["X"], file["y"] = samples.x[0][number::N_FILES], samples.y[0][number::N_FILES]
            OFFSETS[number] = file["X"].id.get_offset()


def configured(memory="stream", data=None, **others):
    files = {"train": str(FOLDER / "part_[0-2].h5"), "validation": str(FOLDER / "part_3.h5")}
    return {
        "model": f"{MODEL}:build_classes",
        "data": files | {"features": "X", "labels": "y", "memory": memory, "window_bytes": WINDOW} | (data or {}),
        "loss": "cross_entropy",
        "metrics": ["accuracy"],
        "batch_size": 32,
        "epochs": 4,
        "optimizer": {"name": "adam", "learning_rate": 0.01},
        "seed": 5,
    } | others


def attempt(configuration, **options):
    try:
        return train(configuration, world, **options).history
    except MPILearnError as error:
        return f"{type(error).__name__}: {error}"


def interrupted():
    """A training that ends after two epochs, and another one that continues it."""
    checkpoint = {"path": str(FOLDER / "checkpoint"), "every": 2}
    train(configured(checkpoint=checkpoint), world, on_epoch=lambda epoch, metrics: epoch == 1)
    return attempt(configured(checkpoint=checkpoint))


def broken():
    """A file becomes unreadable after the first epoch."""

    def after(epoch, metrics):
        world.Barrier()
        if world.rank == 0 and epoch == 0:
            with (FOLDER / "part_1.h5").open("r+b") as file:
                file.seek(OFFSETS[1])
                file.write(np.full(64 * 400, np.nan, np.float32).tobytes())
        world.Barrier()
        return False

    return attempt(configured(), on_epoch=after)


CASES = {
    "streamed": lambda: attempt(configured()),
    "again": lambda: attempt(configured()),
    "interrupted": interrupted,
    "held": lambda: attempt(configured("hold")),
    "dealt": lambda: attempt(configured(data={"share": "dynamic"}, algorithm="downpour")),
    "broken": broken,
}
if world.rank == 0:
    write()
world.Barrier()
seen = {}
for name, case in CASES.items():
    found = case()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("reading ahead")]
    seen[name] = world.gather({"found": found, "threads": left})
if world.rank == 0:
    print(json.dumps(seen))
