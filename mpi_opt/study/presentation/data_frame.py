"""The trials of a study as a data frame of pandas."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from mpi_opt.core.search_space.space import Categorical, Integer, Real
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import StoreError
from mpi_opt.store.records import StudyRecord
from mpi_opt.study.presentation.trial_table import study_columns, trial_columns, trial_rows

if TYPE_CHECKING:
    import pandas

TIMES = ("started_at", "finished_at")

MAX_EXACT = 2**53
"""Up to this, floats have all integers; larger ones are in columns of the type Int64 of pandas, with NA."""


def data_frame(study: StudyRecord, trials: Sequence[TrialRecord]) -> pandas.DataFrame:
    """A row for each trial: times as UTC, numbers as floats or integers, NaN in place of missing ones.

    Raises:
        StoreError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise StoreError("a data frame needs pandas", cure="pip install mpi-opt[plots]") from None
    rows = trial_rows(trials, study)
    frame = pandas.DataFrame(rows, columns=trial_columns(study))
    named = study_columns(study)
    kinds = {column: study.space[name] for name, column in named.parameters.items()}
    numbers = ["figure_of_merit", "uncertainty", "duration_s", *chain(*named.figures.values())]
    numbers += [column for column, dimension in kinds.items() if isinstance(dimension, Real)]
    integers = {column: kind for column, kind in kinds.items() if isinstance(kind, Integer)}
    # they remain integers, unless the hyperparameter is inactive in a trial
    numbers += [column for column in integers if frame[column].dtype.kind != "i"]
    frame = frame.astype(dict.fromkeys(numbers, float))
    for name, column in named.parameters.items():  # tables show the category None as text
        if isinstance(kinds[column], Categorical) and None in kinds[column]:
            values = [trial.parameters.get(name) for trial in trials]
            frame[column] = pandas.Series(values, index=frame.index, dtype=object)  # integers stay integers
    for column, kind in integers.items():
        if column in numbers and max(abs(kind.low), abs(kind.high)) > MAX_EXACT:
            frame[column] = pandas.array([row[column] for row in rows], dtype="Int64")
    return frame.assign(**{time: pandas.to_datetime(frame[time], utc=True, format="ISO8601") for time in TIMES})
