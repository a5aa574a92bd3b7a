"""Problems of COCO (Hansen et al., Optim. Methods Softw. 36, 2021), of its suites bbob and bbob-mixint.

``pip install coco-experiment`` installs them. No strategy was tuned on them.
"""

from __future__ import annotations

import numpy as np
from problems import Problem

from mpi_opt.core.search_space.space import Dimension, Integer, Parameters, Real

CHOSEN = {
    "coco8d10": ("bbob", 8, 10, 149.15),
    "coco15d5": ("bbob", 15, 5, 1000.0),
    "coco3d10m": ("bbob-mixint", 3, 10, -46.209),
}
"""Name -> suite, function, dimensions and optimum; always the first instance."""


def coco(name: str) -> Problem:
    """One of `CHOSEN`."""
    import cocoex

    suite, function, n_dimensions, optimum = CHOSEN[name]
    chosen = f"function_indices:{function} dimensions:{n_dimensions} instance_indices:1"
    problem = cocoex.Suite(suite, "", chosen)[0]

    def measure(parameters: Parameters) -> float:
        return float(problem(np.array(list(parameters.values()), dtype=float)))

    ranges = zip(problem.lower_bounds.tolist(), problem.upper_bounds.tolist(), strict=True)
    space: dict[str, Dimension] = {
        f"x{index}": Integer(int(low), int(high)) if index < problem.number_of_integer_variables else Real(low, high)
        for index, (low, high) in enumerate(ranges)
    }
    return Problem(name, space, measure, lambda parameters: measure(parameters) - optimum)
