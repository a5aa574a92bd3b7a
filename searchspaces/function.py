"""The objective of function.yaml."""

import math


def branin(trial) -> float:
    """Branin's function, to be minimised.

    A trial also offers ``trial.comm``, the MPI communicator of its block, for code that runs on several ranks;
    ``trial.seed``; ``trial.report(step, value)`` and ``trial.should_stop()`` for code that takes long. What rank 0 of
    the block returns counts.

    Args:
        trial: ``trial.parameters`` holds the hyperparameters of function.yaml, by name.
    """
    x, y = trial.parameters["x"], trial.parameters["y"]
    curved = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return curved**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10
