"""One training of `measure.py`, on all ranks: writes the samples per second of each epoch beside the training.yaml."""

import json
import sys
from pathlib import Path

from mpi4py import MPI

from mpi_learn import train
from mpi_learn.training.configuration import read_configuration

training = Path(sys.argv[1])
speeds = []
configuration = read_configuration(training)
train(configuration, MPI.COMM_WORLD, progress=lambda report: speeds.append(report.samples_per_second))
if MPI.COMM_WORLD.rank == 0:
    (training.parent / "speeds.json").write_text(json.dumps(speeds))
