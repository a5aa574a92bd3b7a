"""The protocol of all searches: eight trials at a time, lognormal durations, outcomes reported as trials end."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from problems import Problem

from mpi_opt.core.search_space.space import Parameters

N_IN_FLIGHT = 8


class Searcher(Protocol):
    """A search method: a strategy of MPI Opt or a method of another program."""

    def ask(self) -> tuple[Any, Parameters]:
        """Returns a token and the point to evaluate."""

    def tell(self, token: Any, value: float) -> None:
        """Reports the value of a point; NaN for a failure."""


def regrets(
    problem: Problem, make: Callable[[dict, int], Searcher], seed: int, n_trials: int, noise: float = 0.0
) -> np.ndarray:
    """One search.

    Args:
        problem: What to minimise.
        make: Space and seed -> searcher.
        seed: Seed of the searcher, of the durations and of the noise.
        n_trials: Number of reported trials.
        noise: Relative standard deviation of the noise in reported values.

    Returns:
        Shape (n_trials,): the simple regret of the incumbent after each reported trial. The incumbent is the point with
        the best reported value.
    """
    searcher, rng = make(problem.space, seed), np.random.default_rng(seed)
    running: list[tuple[float, int, Any, Parameters]] = []
    best, curve, clock, n_asked = (math.inf, math.inf), [], 0.0, 0
    while len(curve) < n_trials:
        while len(running) < N_IN_FLIGHT and n_asked < n_trials:
            token, parameters = searcher.ask()
            heapq.heappush(running, (clock + rng.lognormal(0.0, 0.5), n_asked, token, parameters))
            n_asked += 1
        clock, _, token, parameters = heapq.heappop(running)
        value = problem.measure(parameters) * (1 + noise * rng.standard_normal())
        searcher.tell(token, value)
        if not math.isnan(value) and value < best[0]:
            best = (value, problem.regret(parameters))
        curve.append(best[1])
    return np.array(curve)
