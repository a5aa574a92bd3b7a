"""The objective of function.yaml."""

import math


def branin(trial) -> float:
    """Branin's function, to be minimised.

    Args:
        trial: ``trial.parameters`` has the hyperparameters of function.yaml by name. A trial also has ``trial.comm``,
            the MPI communicator of its block, for code that runs on several ranks; ``trial.seed``; and, for long
            functions, ``trial.report(step, value)`` and ``trial.should_stop()``.

    Returns:
        The figure of merit. With several ranks per block, the value of rank 0 is used.
    """
    x, y = trial.parameters["x"], trial.parameters["y"]
    curved = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return curved**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10
