"""Run under mpirun: one training, described in JSON; rank 0 writes ``result.json``.

Argument: {"changes": of the configuration, "width": shape of a sample, "n": samples}.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.training.state import EpochReport

HERE = Path(__file__).parent


def resident_mb() -> tuple[float, float]:
    """Resident memory of this process, now and at its highest, in MB."""
    status = Path("/proc/self/status").read_text()
    now, highest = (float(re.search(rf"{key}:\s+(\d+)", status)[1]) / 1e3 for key in ("VmRSS", "VmHWM"))  # type: ignore[index]
    return now, highest


def main() -> None:
    import torch

    world, wanted = MPI.COMM_WORLD, json.loads(sys.argv[1])
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    shape = wanted["shape"]
    x = rng.normal(size=(wanted["n"], *shape)).astype(np.float32)
    y = rng.normal(size=(wanted["n"], wanted["outputs"])).astype(np.float32)
    samples = Samples((x,), (y,))
    dataset = Dataset(samples, samples, np.arange(len(x)), np.arange(0))
    before, memory, speeds = resident_mb()[0], list[tuple[float, float]](), list[float]()

    def after_epoch(epoch: int, metrics: dict[str, float]) -> bool:
        memory.append(resident_mb())
        return False

    def progress(report: EpochReport) -> None:
        speeds.append(report.samples_per_second)

    configuration = {"loss": "mse", "epochs": 2, "seed": 1} | wanted["changes"]
    configuration["model"] = f"{HERE / 'networks.py'}:{configuration['model']}"
    train(configuration, world, data=dataset, on_epoch=after_epoch, progress=progress)
    now, highest = memory[-1]
    ranks = world.gather((now - before, highest - before))
    if world.rank == 0:
        Path("result.json").write_text(json.dumps({"memory_mb": ranks, "samples_per_s": speeds[-1]}))


main()
