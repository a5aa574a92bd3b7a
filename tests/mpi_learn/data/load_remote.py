"""Run by every rank of a test: reads a file behind a URL, together or alone, and prints the sum of the labels."""

import sys

from mpi4py import MPI

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.loading import load

url, cache, together, keep = sys.argv[1:]
configuration = DataConfiguration(train=url, features="X", labels="y", cache=cache, keep_cache=keep == "1")
dataset = load(configuration, MPI.COMM_WORLD if together == "1" else MPI.COMM_SELF, seed=0)
print(int(dataset.training.y[0].sum()), flush=True)
