"""The new runs of the best points at the end of a search, as text."""

from __future__ import annotations

from mpi_opt.core.counted import counted
from mpi_opt.store.records import StudyRecord
from mpi_opt.study.confirmation import Confirmation, ConfirmedPoint
from mpi_opt.study.presentation import shown_names
from mpi_opt.views.text.tables import aligned


def confirmation_text(study: StudyRecord, confirmed: Confirmation | None, *, colour: bool = False) -> str:
    """A table with a line per point, and a sentence with the probability that the best is better than the default.

    Empty if no point has run again.
    """
    if confirmed is None:
        return ""
    most = max(len(point.figures) for point in confirmed.points)
    (name,) = shown_names(study)
    columns = ("point", f"{name} in the search", "mean of new runs", "standard deviation", "runs")
    lines = [
        f"new runs of the best points, up to {counted(most, 'run')} with new seeds (study {confirmed.study}):",
        aligned(columns, [_row(point) for point in confirmed.points], colour=colour),
    ]
    if confirmed.probability is not None:
        lines.append(
            f"{_name(confirmed.winner)} is better than the default configuration {_likely(confirmed.probability)}"
        )
    elif confirmed.winner.is_default:
        lines.append("the default configuration is the best point")
    return "\n".join(lines)


def _row(point: ConfirmedPoint) -> tuple[object, ...]:
    in_search = None if point.trial is None else point.trial.figure_of_merit
    return _name(point), in_search, float(point.mean), point.mean.uncertainty, len(point.figures)


def _name(point: ConfirmedPoint) -> str:
    if point.trial is None:
        return "default"
    return f"trial {point.trial.number}" + (" (default)" if point.is_default else "")


def _likely(probability: float) -> str:
    shown = min(max(probability, 0.001), 0.999)
    least = "at least " if probability > shown else "at most " if probability < shown else ""
    return f"with a probability of {least}{shown:.1%}"
