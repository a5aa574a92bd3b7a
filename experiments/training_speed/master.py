"""Measures the updates per second of a master, and optimizer steps. Run: ``mpirun -np 3 python master.py``.

Rank 0 is a Downpour master with Adam. The other ranks send gradients as fast as they can, for several model sizes. Then
rank 0 alone compares the time of a step of each optimizer with the time of copying its bytes. No framework is loaded.
The results are written to ``results.json``; ``benchmark.py --print`` prints them as tables.
"""

import json
import sys
import time
from collections.abc import Iterator

import numpy as np
from benchmark import RESULTS, known
from mpi4py import MPI

from mpi_learn.algorithms.algorithm import AlgorithmSetup
from mpi_learn.algorithms.configuration import Downpour
from mpi_learn.algorithms.make_algorithm import make_algorithm
from mpi_learn.algorithms.rank_layout import rank_layout_of
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.optimizers import configuration as options
from mpi_learn.optimizers.optimizer import make_optimizer

world = MPI.COMM_WORLD
N_SUMS = 4


def updates_per_second(n: int, seconds: float = 3.0) -> float:
    ranks, layout = rank_layout_of(Downpour(), world.size), FlatLayout(((n,),))
    weights = aligned_empty(n)
    weights[:] = 0
    algorithm = make_algorithm(Downpour(), AlgorithmSetup(
        world, ranks, weights, layout, n_sums=N_SUMS, n_steps=1, learning_rate=0.1,
        make_optimizer=lambda chosen, updates: make_optimizer(chosen or options.Adam(), layout),
    ))  # fmt: skip
    step = aligned_empty(n + N_SUMS)
    step[:] = 1e-3

    def steps(n_steps: int) -> Iterator[np.ndarray]:
        for _ in range(n_steps):
            step[n:] = 1, 1, 0, 0
            yield step

    for n_steps in (3, max(20, int(seconds * 2e8 / n / world.size))):
        world.Barrier()
        start = time.perf_counter()
        algorithm.run(steps(n_steps) if world.rank > 0 else ())
        spent = time.perf_counter() - start
    return n_steps * (world.size - 1) / spent


def best(function, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def optimizers(n: int) -> dict:
    source, target = aligned_empty(n), aligned_empty(n)
    source[:] = 1
    copy_s = best(lambda: np.copyto(target, source), 10)
    bytes_per_s = 8 * n / copy_s
    print(f"\n{n / 1e6:g} M parameters; copying moves {bytes_per_s / 1e9:.1f} GB/s")
    steps = {}
    for kind in (options.Sgd(momentum=0.9), options.Adam(), options.RmsProp(), options.AdaDelta(), options.AdaGrad(),
                 options.Lars(), options.Lamb()):  # fmt: skip
        optimizer = make_optimizer(kind, FlatLayout(((n,),)))
        optimizer.update(target, source)
        spent = best(lambda optimizer=optimizer: optimizer.update(target, source), 10)
        n_bytes = n * 4 * (3 + 2 * {"sgd": 1, "adagrad": 1, "rmsprop": 1, "lars": 1}.get(kind.name, 2))
        steps[kind.name] = spent * 1e3, spent / (n_bytes / bytes_per_s)
        print(f"{kind.name:9} {spent * 1e3:7.2f} ms  {steps[kind.name][1]:5.2f}× the copy of its bytes")
    return {"copy_gb_per_s": bytes_per_s / 1e9, "optimizers": steps}


found = {}
for size in (82_000, 235_146, 421_576, 1_250_000, 10_000_000):
    found[size] = updates_per_second(size)
    if world.rank == 0:
        print(f"{size:>10} parameters: {found[size]:8,.0f} updates/s", flush=True)
if world.rank == 0:
    frameworks = [name for name in ("tensorflow", "torch") if name in sys.modules]
    print("frameworks loaded:", frameworks)
    figures = {"updates_per_second": found, "frameworks": frameworks} | optimizers(10_000_000)
    RESULTS.write_text(json.dumps(known() | {"master": figures}, indent=1))
world.Barrier()
