"""The trials of a study, sorted and chosen, for figures, texts and pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from mpi_opt.core.trial import TrialRecord, is_usable
from mpi_opt.errors import ConfigurationError
from mpi_opt.study.study import Study


def complete(study: Study) -> list[TrialRecord]:
    """The complete trials, best first."""
    return [trial for trial in study.ranked(("complete",)) if is_usable(trial.figure_of_merit)]


def main_figures(trials: Iterable[TrialRecord]) -> list[float]:
    """The figures of merit of the trials that have one."""
    return [trial.figure_of_merit for trial in trials if trial.figure_of_merit is not None]


def by_end_time(study: Study) -> list[TrialRecord]:
    """The finished trials in the order in which they ended."""
    return sorted((t for t in study.trials if t.finished_at), key=_order_of_ending)


def _order_of_ending(trial: TrialRecord) -> tuple[float, str, int]:
    """The position that the store recorded: the clocks of hosts differ. Old stores have the same one for several."""
    return math.inf if trial.ended is None else trial.ended, trial.finished_at or "", trial.number


def improvements(trials: Sequence[TrialRecord], maximize: bool) -> list[tuple[int, TrialRecord]]:
    """The complete trials that are better than all before them, each with its index in `trials`."""
    found: list[tuple[int, TrialRecord]] = []
    sign, best = -1.0 if maximize else 1.0, math.inf
    for index, trial in enumerate(trials):
        figure = trial.figure_of_merit
        if trial.state == "complete" and figure is not None and is_usable(figure) and sign * figure < best:
            found.append((index, trial))
            best = sign * figure
    return found


def choose_two(names: Sequence[str], x: str | None, y: str | None, kind: str) -> tuple[str, str]:
    """Two of `names`, which are at least two: `x` and `y`, and the first others in place of None.

    Raises:
        ConfigurationError: `x` or `y` is not one of `names`, or both are the same.
    """
    for name in (x, y):
        if name is not None and name not in names:
            raise ConfigurationError(f"{name!r} is not a {kind} of this study", cure=f"one of: {', '.join(names)}")
    if x is not None and x == y:
        raise ConfigurationError(f"{x} is on both axes", where="--y", cure=f"another {kind}: {', '.join(names)}")
    others = [name for name in names if name not in (x, y)]
    first = x or others.pop(0)
    return first, y or others.pop(0)


def local_time(stamp: str | None) -> datetime | None:
    """A time of the store as local time without a time zone, for libraries that require it."""
    return None if stamp is None else datetime.fromisoformat(stamp).astimezone().replace(tzinfo=None)
