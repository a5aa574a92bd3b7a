"""A search without ranks or a store: asks a strategy and reports the cost of each proposal."""

from __future__ import annotations

import random

import numpy as np


def cost(space, parameters):
    """Smallest, 0, at the middle of every dimension."""
    return float(np.sum((space.encode(parameters) - 0.5) ** 2))


def run(strategy, space, n_trials, in_flight=4, outcome=None, order=0):
    """Asks and tells `n_trials`, some in flight, in a shuffled order; returns proposals and reported outcomes."""
    outcome = outcome or (lambda proposal: cost(space, proposal.parameters))
    rng, pending, asked, told = random.Random(order), [], [], []
    while len(told) < n_trials:
        if len(pending) < in_flight and len(asked) < n_trials:
            new = strategy.ask(min(in_flight - len(pending), n_trials - len(asked)))
            asked, pending = asked + new, pending + new
            if not new and not pending:
                break
        if pending:
            proposal = pending.pop(rng.randrange(len(pending)))
            told.append((proposal, outcome(proposal)))
            strategy.tell(*told[-1])
    return asked, told
