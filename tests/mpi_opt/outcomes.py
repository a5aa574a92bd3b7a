"""Outcomes of trials and folds, in short."""

from __future__ import annotations

from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures import Figures, Measured
from mpi_opt.core.figures_of_merit import MAIN
from mpi_opt.core.trial import Outcome, Proposal, State


def one_figure(value: float | Figures | None, uncertainty: float | None = None) -> Figures:
    if isinstance(value, Figures):
        return value
    return Figures() if value is None else Figures({MAIN: Measured(value, uncertainty)})


def several_figures(values: dict[str, float], uncertainties: dict[str, float] | None = None) -> Figures:
    return Figures({name: Measured(value, (uncertainties or {}).get(name)) for name, value in values.items()})


def an_outcome(
    number: int,
    state: State,
    value: float | Figures | None = None,
    uncertainty: float | None = None,
    duration_s: float = 0.0,
    folds: list[Outcome] = (),
    error: str | None = None,
    host_fault: str = "",
) -> Outcome:
    return Outcome(number, state, one_figure(value, uncertainty), duration_s, list(folds), error, host_fault)


def a_fold(index: int, value: float | Figures | None, duration_s: float = 1.0, history: dict | None = None) -> Outcome:
    return Outcome(0, "complete", one_figure(value), duration_s, fold=index, history=history or {})


def an_end(outcome: Outcome, attempt: int = 1, block: int = 0) -> Attempt:
    """An attempt that has ended with `outcome`, for ``Store.finish``."""
    return Attempt(Proposal(outcome.number, {}), attempt, block, outcome=outcome)
