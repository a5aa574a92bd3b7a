"""The search strategies: one file per method, each behind the `Strategy` interface."""

from mpi_opt.strategies.make_strategy import NOT_LEARNING, REFITTING, STRATEGIES, make_strategy, strategy_class
from mpi_opt.strategies.points.warm_start import Transfer
from mpi_opt.strategies.strategy import Decision, Strategy

__all__ = [
    "NOT_LEARNING",
    "REFITTING",
    "STRATEGIES",
    "Decision",
    "Strategy",
    "Transfer",
    "make_strategy",
    "strategy_class",
]
