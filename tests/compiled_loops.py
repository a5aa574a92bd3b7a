"""``python -m tests.compiled_loops``: compiles the loops of mpi_learn into numba's cache, in one process.

In a new checkout, six ranks of a test would compile the same loops at once, which takes most of the CPU time of
`test_algorithms`. `tests.conftest` starts this program where pytest uses several processes.
"""

from __future__ import annotations

from pydantic import TypeAdapter

from mpi_learn.compression.encodings import ENCODINGS
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.optimizers.configuration import FusedConfiguration
from mpi_learn.optimizers.optimizer import make_optimizer
from mpi_learn.testing.algorithm_tests import Rank
from mpi_learn.testing.thread_ranks import run_ranks
from tests.mpi_learn.test_algorithm_conformance import LOW_RANK

OPTIMIZERS = [
    *({"name": name} for name in ("sgd", "adam", "rmsprop", "adadelta", "adagrad", "lars", "lamb")),
    *({"name": "sgd", "momentum": 0.9}, {"name": "rmsprop", "momentum": 0.9, "centered": True}),
]
ALGORITHMS = [{"name": "easgd"}, {"name": "gem"}, LOW_RANK]
"""Those with loops of their own."""


def main() -> None:
    """The loops that trainings use most come first."""
    layout = FlatLayout(((4, 2), (2,)))
    for section in OPTIMIZERS:
        weights, gradient = aligned_empty(layout.size), aligned_empty(layout.size)
        weights[:], gradient[:] = 1.0, 0.5
        make_optimizer(TypeAdapter(FusedConfiguration).validate_python(section), layout).update(weights, gradient, 1.0)
    for options in ALGORITHMS:
        run_ranks(3, lambda comm, options=options: Rank(comm, options, 2).epoch(2))
    for encoding in ENCODINGS.values():
        encoding.decode(encoding.encode(weights), layout.size)


if __name__ == "__main__":
    main()
