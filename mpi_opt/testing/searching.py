"""A search without ranks or a store: asks a strategy and reports the cost of each proposal."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.strategy import Cost, Strategy


def cost(space: Space, parameters: Parameters) -> float:
    """Smallest, 0, at the middle of every dimension."""
    return float(np.sum((space.encode(parameters) - 0.5) ** 2))


def run(
    strategy: Strategy,
    space: Space,
    n_trials: int,
    in_flight: int = 4,
    outcome: Callable[[Proposal], Cost | Failed] | None = None,
    order: int = 0,
) -> tuple[list[Proposal], list[tuple[Proposal, Cost | Failed]]]:
    """Runs trials, some at the same time, whose outcomes arrive in a shuffled order.

    Args:
        strategy: A new strategy, or one that has been resumed.
        space: Its search space.
        n_trials: The search ends after this number of trials, or when the strategy makes no more proposals.
        in_flight: The largest number of trials without an outcome.
        outcome: The outcome of a proposal; by default its `cost`.
        order: The seed of the order.

    Returns:
        The proposals in the order of asking, and the reported outcomes in theirs.
    """
    outcome = outcome or (lambda proposal: cost(space, proposal.parameters))
    rng = random.Random(order)
    pending: list[Proposal] = []
    asked: list[Proposal] = []
    observed: list[tuple[Proposal, Cost | Failed]] = []
    while len(observed) < n_trials:
        if len(pending) < in_flight and len(asked) < n_trials:
            new = strategy.ask(min(in_flight - len(pending), n_trials - len(asked)))
            asked, pending = asked + new, pending + new
            if not new and not pending:
                break
        if pending:
            proposal = pending.pop(rng.randrange(len(pending)))
            observed.append((proposal, outcome(proposal)))
            strategy.tell(*observed[-1])
    return asked, observed
