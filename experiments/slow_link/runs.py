"""The runs of the experiment: algorithm and settings of each row of the tables."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

N_RANKS, N_TRAINING = 8, 10_240
N_RUNS = 3
"""Seeds of each row."""


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        algorithm: The section ``algorithm:``.
        learning_rate: That of the optimizer.
        batch_size: Samples per rank and step.
        hosts: The number of hosts, with equal numbers of ranks.
        schedule: How the learning rate changes.
        optimizer: The section ``optimizer:``; ``muon`` is `MuonAdam`.
    """

    algorithm: dict
    learning_rate: float
    batch_size: int = 32
    hosts: int = 4
    epochs: int = 2
    seed: int = 0
    schedule: str = "constant"
    optimizer: dict = field(default_factory=lambda: {"name": "adam"})

    @property
    def key(self) -> str:
        """The key of its result: everything on which it depends."""
        return json.dumps(asdict(self), sort_keys=True)


def clusters(size: int = 2, **options: object) -> dict:
    """An algorithm section."""
    return {"name": "clusters", "size": size, **options}


def seeds(run: Run) -> list[Run]:
    """The same run with each seed."""
    return [replace(run, seed=seed) for seed in range(N_RUNS)]


OUTER = {"name": "nesterov", "learning_rate": 0.7, "momentum": 0.7}
ALLREDUCE = {"name": "allreduce"}


def low_rank(matrix_rank: int, **options: object) -> dict:
    """`ALLREDUCE` with gradients of low rank."""
    return ALLREDUCE | {"compression": "power-sgd", "matrix_rank": matrix_rank, **options}


ROWS = {
    "downpour": Run({"name": "downpour"}, 0.001),
    "allreduce": Run(ALLREDUCE, 0.003),
    "allreduce, cosine": Run(ALLREDUCE, 0.006, schedule="cosine"),
    "low rank 32": Run(low_rank(32), 0.003),
    "low rank 32, cosine": Run(low_rank(32), 0.006, schedule="cosine"),
    "low rank 28, 3 exact steps": Run(low_rank(28, exact_steps=3), 0.003),
    "low rank 28, 3 exact steps, cosine": Run(low_rank(28, exact_steps=3), 0.006, schedule="cosine"),
    "clusters": Run(clusters(), 0.004),
    "clusters, batch 16": Run(clusters(), 0.002, 16),
    "clusters, batch 16, 4 epochs": Run(clusters(), 0.002, 16, epochs=4),
    "clusters, best of the search": Run(clusters(exchange_every=200, neighbours="all"), 0.0028, 64, epochs=4),
    "clusters, batch 16, outer": Run(clusters(exchange_every=15, outer=OUTER), 0.003, 16),
    "clusters, batch 16, outer every 5": Run(clusters(exchange_every=5, outer=OUTER), 0.003, 16),
    "clusters of 1": Run(clusters(1), 0.004),
    "clusters of 4": Run(clusters(4), 0.004),
    "8 hosts": Run(clusters(1), 0.004, hosts=8),
    "2 hosts": Run(clusters(4), 0.004, hosts=2),
}
"""Rows of the tables."""

FIVE, THREE = ({"name": "muon", "ns_steps": n} for n in (5, 3))
MUON = {
    "allreduce": ROWS["allreduce"],
    "allreduce, batch 64, cosine, 4 epochs": Run(ALLREDUCE, 0.006, 64, epochs=4, schedule="cosine"),
    "allreduce, batch 128, 4 epochs": Run(ALLREDUCE, 0.006, 128, epochs=4),
    "allreduce, Muon, cosine": Run(ALLREDUCE, 0.016, schedule="cosine", optimizer=FIVE),
    "allreduce, Muon, batch 64, cosine": Run(ALLREDUCE, 0.032, 64, schedule="cosine", optimizer=FIVE),
    "clusters, Muon, batch 64": Run(clusters(exchange_every=5, neighbours="all"), 0.02, 64, optimizer=FIVE),
    "clusters, Muon of 3 iterations, batch 64": Run(
        clusters(exchange_every=5, neighbours="all"), 0.02, 64, optimizer=THREE
    ),
    "clusters, Muon of 3 iterations, batch 128": Run(
        clusters(exchange_every=3, neighbours="all"), 0.03, 128, optimizer=THREE
    ),
    "clusters, best of the search": ROWS["clusters, best of the search"],
}
"""Rows of the measurement with Muon, on another day."""

WARM_UP = Run(clusters(1), 0.002, epochs=1)
TUNING = {f"downpour, rate {rate}": seeds(Run({"name": "downpour"}, rate)) for rate in (0.0005, 0.001, 0.002)}
"""Rows that are compared on images that are not in the test set. Without the network the staleness is the same."""
