"""Memory that ranks in threads share as on hosts, for algorithms with a parameter server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpi_learn.algorithms.parameter_server import masters
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.testing.algorithm_tests import N


@contextmanager
def shared_memory(n_ranks: int, n_hosts: int | None = 1) -> Iterator[None]:
    """Gives the ranks of each host memory that they share; to none if `n_hosts` is None."""
    rows = {rank: aligned_empty(N) for rank in range(n_ranks)}

    def host_of(rank: int) -> int:
        return rank * (n_hosts or 0) // n_ranks

    def rows_of_host(comm: Any, n: int) -> dict[int, np.ndarray]:
        return {rank: row for rank, row in rows.items() if n_hosts and host_of(rank) == host_of(comm.rank)}

    original = masters.rows_of_host
    masters.rows_of_host = rows_of_host
    try:
        yield
    finally:
        masters.rows_of_host = original
