"""The runs of the experiment: algorithm and settings of each row of the tables."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

N_RANKS, N_TRAINING = 8, 10_240


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        algorithm: The section ``algorithm:``.
        learning_rate: The learning rate of Adam.
        batch_size: Samples per rank and step.
        hosts: The number of hosts, with equal numbers of ranks.
        schedule: How the learning rate changes.
    """

    algorithm: dict
    learning_rate: float
    batch_size: int = 32
    hosts: int = 4
    epochs: int = 2
    seed: int = 0
    schedule: str = "constant"

    @property
    def key(self) -> str:
        """The key of its result: everything on which it depends. A constant learning rate is not part of it."""
        return json.dumps({k: v for k, v in asdict(self).items() if v != "constant"}, sort_keys=True)


def clusters(size: int = 2, **options: object) -> dict:
    """An algorithm section."""
    return {"name": "clusters", "size": size, **options}


def seeds(run: Run, n: int = 3) -> list[Run]:
    """The same run with `n` seeds."""
    return [replace(run, seed=seed) for seed in range(n)]


OUTER = {"name": "nesterov", "learning_rate": 0.7, "momentum": 0.7}
ALLREDUCE = {"name": "allreduce"}


def low_rank(matrix_rank: int, **options: object) -> dict:
    """`ALLREDUCE` with gradients of low rank."""
    return ALLREDUCE | {"compression": "power-sgd", "matrix_rank": matrix_rank, **options}


RUNS = {
    "allreduce, rate 0.002": [Run(ALLREDUCE, 0.002)],
    "allreduce": seeds(Run(ALLREDUCE, 0.003)),
    "allreduce, rate 0.004": seeds(Run(ALLREDUCE, 0.004)),
    "low rank 32": seeds(Run(low_rank(32), 0.003)),
    "low rank 32, rate 0.006, cosine": seeds(Run(low_rank(32), 0.006, schedule="cosine")),
    "low rank 28, 3 exact steps": seeds(Run(low_rank(28, exact_steps=3), 0.003)),
    "low rank 28, 3 exact steps, rate 0.006, cosine": seeds(Run(low_rank(28, exact_steps=3), 0.006, schedule="cosine")),
    "low rank 64": seeds(Run(low_rank(64), 0.003)),
    "low rank 64, rate 0.006, cosine": seeds(Run(low_rank(64), 0.006, schedule="cosine")),
    "downpour": [Run({"name": "downpour"}, 0.001)],
    "clusters": seeds(Run(clusters(), 0.002)),
    "clusters, rate 0.004": [Run(clusters(), 0.004)],
    "clusters, batch 16": seeds(Run(clusters(), 0.002, 16)),
    "clusters, batch 16, rate 0.004": [Run(clusters(), 0.004, 16)],
    "clusters, batch 16, outer": seeds(Run(clusters(exchange_every=15, outer=OUTER), 0.003, 16)),
    "clusters, batch 16, outer every 5": seeds(Run(clusters(exchange_every=5, outer=OUTER), 0.003, 16)),
    "clusters, every step": seeds(Run(clusters(exchange_every=1), 0.004)),
    "allreduce, rate 0.006, cosine": seeds(Run(ALLREDUCE, 0.006, schedule="cosine")),
    "clusters, batch 8": [Run(clusters(), 0.002, 8)],
    "clusters, batch 8, rate 0.001": [Run(clusters(), 0.001, 8)],
    "clusters, batch 16, 4 epochs": [Run(clusters(), 0.002, 16, epochs=4)],
    "clusters of 1": [Run(clusters(1), 0.002)],
    "clusters of 4": [Run(clusters(4), 0.002)],
    "clusters of 8": [Run(clusters(8), 0.002)],
    "8 hosts": [Run(clusters(1), 0.002, hosts=8)],
    "2 hosts": [Run(clusters(4), 0.002, hosts=2)],
    "1 host": [Run(clusters(8), 0.002, hosts=1)],
}
"""Rows of the tables. Rows whose names differ only in ``, rate …`` make the same computations."""

TUNING = {f"downpour, rate {rate}": seeds(Run({"name": "downpour"}, rate)) for rate in (0.0005, 0.001, 0.002)}
"""Rows that are compared on other images than those of the test set. Without the network the staleness is the same."""
