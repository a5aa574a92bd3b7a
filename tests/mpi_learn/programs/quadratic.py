"""Run under mpirun: every algorithm on a bowl whose gradient costs nothing; rank 0 prints what all ranks ended with.

Rank r pulls towards a target of its own; the mean of the targets is the bottom. Worker r makes ``5 + r`` steps an epoch
where the algorithm has no collectives, so that shares are uneven, unless they shall be even.
"""

import json
import sys

import numpy as np
from mpi4py import MPI
from pydantic import TypeAdapter

from mpi_learn.algorithms import build
from mpi_learn.algorithms.configuration import AlgorithmConfiguration
from mpi_learn.algorithms.rank_layout import layout_of
from mpi_learn.errors import TrainingError
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.mpi.collectives import rows_of_host
from mpi_learn.mpi.communicators import agreed_errors
from mpi_learn.optimizers import make_optimizer
from mpi_learn.optimizers.configuration import Sgd

N, N_SUMS, EPOCHS = 1000, 4, 40
world = MPI.COMM_WORLD


def target(worker: int) -> np.ndarray:
    return np.random.default_rng(worker).normal(size=N).astype(np.float32)


def rows_of_two_hosts(comm: MPI.Comm, n: int) -> dict[int, np.ndarray]:
    """As if every second rank were on another host."""
    host = comm.Split(comm.rank % 2)
    return {comm.rank % 2 + 2 * rank: row for rank, row in rows_of_host(host, n).items()}


def run(options: dict, failing: int | None = None, hosts: int = 1, even: bool = False) -> dict:
    """All epochs; returns what this rank ended with."""
    promised = []

    def make(own, updates):
        promised.append((updates, make_optimizer(own or Sgd(learning_rate=0.05), FlatLayout(((N,),)))))
        return promised[-1][1]

    build.rows_of_host = {1: rows_of_host, 2: rows_of_two_hosts}[hosts]
    configuration = TypeAdapter(AlgorithmConfiguration).validate_python(options)
    layout = layout_of(configuration, world.size)
    weights = aligned_empty(N)
    weights[:] = 1.0
    algorithm = build.make_algorithm(
        configuration, world, layout, weights, n_sums=N_SUMS, n_steps=5, learning_rate=0.05, optimizer=make
    )
    workers = layout.workers
    n_uneven = 0 if even or configuration.name in ("allreduce", "clusters") or "processes" in options else 1
    totals = np.zeros(N_SUMS)
    for _ in range(EPOCHS):
        sums = np.zeros(N_SUMS)
        with agreed_errors(world), algorithm:
            if world.rank not in workers:
                algorithm.serve(weights)
            else:
                worker = workers.index(world.rank)
                for step in range(5 + n_uneven * worker):
                    if world.rank == failing and step == 3:
                        raise RuntimeError("boom")
                    vector = aligned_empty(N + N_SUMS)
                    vector[:N] = 10 * (weights - target(worker))
                    vector[N:] = [10, 1, 0, 0]
                    found = algorithm.exchange(weights, vector)
                    if found is None:
                        break
                    sums += found
        algorithm.settle(weights)
        totals += algorithm.total(sums)
        notes = world.bcast(algorithm.notes())
    bottom = np.mean([target(worker) for worker in range(len(workers))], axis=0)
    found = {"distance": float(np.abs(weights - bottom).mean()), "sum": float(weights.sum()), "steps": float(totals[1])}
    return found | notes | ({"updates": [(updates, one.n_steps / EPOCHS) for updates, one in promised]} if even else {})


def attempt(options: dict, failing: int | None, hosts: int, even: bool) -> dict | str:
    try:
        return run(options, failing, hosts, even)
    except TrainingError as error:
        return f"rank {error.rank}: {error.reason}"


cases = json.loads(sys.argv[1])
seen = {
    name: world.gather(attempt(case["options"], case.get("failing"), case["hosts"], case["even"]))
    for name, case in cases.items()
}
if world.rank == 0:
    print(json.dumps(seen))
