"""Run under mpirun: every algorithm on a bowl whose gradient costs nothing; rank 0 prints what all ranks ended with.

Worker k pulls towards a target of its own; the mean of the targets is the bottom. It makes ``5 + k`` steps an epoch
where the algorithm has no collectives, so that shares are uneven.
"""

import json
import sys

import numpy as np
from mpi4py import MPI
from pydantic import TypeAdapter

from mpi_learn.algorithms.algorithm import AlgorithmSetup
from mpi_learn.algorithms.configuration import AlgorithmConfiguration
from mpi_learn.algorithms.make_algorithm import make_algorithm
from mpi_learn.algorithms.parameter_server import masters
from mpi_learn.algorithms.rank_layout import rank_layout_of
from mpi_learn.errors import TrainingError
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.mpi.communicators import agreed_errors
from mpi_learn.mpi.host_memory import rows_of_host
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.optimizer import make_optimizer

N, N_SUMS, N_STEPS, EPOCHS, RATE = 1000, 4, 5, 10, 0.05
ARRAYS = FlatLayout(((25, 20), (500,)))
world = MPI.COMM_WORLD


def target(worker: int) -> np.ndarray:
    return np.random.default_rng(worker).normal(size=N).astype(np.float32)


def rows_of_two_hosts(comm: MPI.Comm, n: int) -> dict[int, np.ndarray]:
    """As if every second rank were on another host."""
    host = comm.Split(comm.rank % 2)
    return {comm.rank % 2 + 2 * rank: row for rank, row in rows_of_host(host, n).items()}


def raising_later(method):
    """The same, which raises when it is called for the third time."""
    n_calls = 0

    def called(*arguments):
        nonlocal n_calls
        n_calls += 1
        if n_calls == 3:
            raise RuntimeError("boom")
        method(*arguments)

    return called


def run(options: dict, failing: int | None = None, hosts: int = 1) -> dict:
    """All epochs; returns what this rank ended with."""

    def make(own, updates):
        return make_optimizer(own or Sgd(learning_rate=RATE), FlatLayout(((N,),)))

    masters.rows_of_host = {1: rows_of_host, 2: rows_of_two_hosts}[hosts]
    configuration = TypeAdapter(AlgorithmConfiguration).validate_python(options)
    layout = rank_layout_of(configuration, world.size)
    worker = layout.workers.index(world.rank) if world.rank in layout.workers else None
    weights, sums = aligned_empty(N), np.zeros(N_SUMS)
    weights[:] = 1.0
    algorithm = make_algorithm(
        configuration,
        AlgorithmSetup(world, layout, weights, ARRAYS, N_SUMS, N_STEPS, learning_rate=RATE, make_optimizer=make),
    )
    if world.rank == failing and world.rank in layout.masters:
        algorithm.centre.absorb = raising_later(algorithm.centre.absorb)
    is_even = configuration.name in ("allreduce", "clusters") or "processes" in options
    n_steps = N_STEPS + (0 if is_even or worker is None else worker)

    def steps():
        for step in range(n_steps if worker is not None else 0):
            if world.rank == failing and step == 3:
                raise RuntimeError("boom")
            vector = aligned_empty(N + N_SUMS)
            vector[:N] = 10 * (weights - target(worker))
            vector[N:] = [10, 1, 0, 0]
            sums[:] += vector[N:]
            yield vector

    try:
        for _ in range(EPOCHS):
            with agreed_errors(world):
                algorithm.run(steps())
            algorithm.synchronize()
            diagnostics = algorithm.diagnostics()
    finally:
        algorithm.close()
    bottom = np.mean([target(one) for one in range(len(layout.workers))], axis=0)
    return {"distance": float(np.abs(weights - bottom).mean()), "sum": float(weights.sum())} | diagnostics


def attempt(*case) -> dict | str:
    try:
        return run(*case)
    except TrainingError as error:
        return f"rank {error.rank}: {error.reason}"


cases = json.loads(sys.argv[1])
seen = {name: world.gather(attempt(*case)) for name, case in cases.items()}
if world.rank == 0:
    print(json.dumps(seen))
