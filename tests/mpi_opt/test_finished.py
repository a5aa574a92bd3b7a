"""Whether a study is finished, from the events and the trials in its store."""

from __future__ import annotations

import pytest

from mpi_opt.store import Store
from mpi_opt.store.records import StudyRecord
from mpi_opt.study.reading import is_finished
from tests.mpi_opt.store.made_up import SPACE, finish, start

CASES = {
    "a new study": ([], [], {}, False),
    "finished by a search": (["study_finished"], [1.0], {"trials": 9}, True),
    "continued": (["study_finished", "study_resumed"], [1.0, 1.0], {"trials": 2}, False),
    "stopped early": (["study_resumed", "search_stopped"], [1.0, 1.0], {"trials": 2}, False),
    "finished after it was continued": (["study_resumed", "study_finished"], [1.0], {"trials": 9}, True),
    "finished, then a note": (["study_finished", "rank_lost"], [1.0], {"trials": 9}, True),
    "all trials told": ([], [1.0, None], {"trials": 2}, True),
    "a trial less": ([], [1.0], {"trials": 2}, False),
    "one of them still runs": ([], [1.0, 1.0, ...], {"trials": 2}, False),
    "the search leaves trials of others": (["search_finished"], [1.0, ...], {"trials": 9}, False),
    "these have ended": (["search_finished"], [1.0, 1.0], {"trials": 9}, True),
    "target reached": ([], [0.5, 0.2, ...], {"trials": 9, "target": 0.2}, True),
    "target missed": ([], [0.5, 0.3, ...], {"trials": 9, "target": 0.2}, False),
    "target of a search that stopped": (["search_stopped"], [0.1], {"trials": 9, "target": 0.2}, False),
}
"""Events, figures of merit (None: failed; ...: running), the section of the search, and whether it is finished."""


def study_of(store: Store, events: list[str], values: list, search: dict) -> StudyRecord:
    study = store.create_study("a", strategy="random", seed=1, configuration={"search": search}, space=SPACE)
    store.start(study.id, [start(number) for number in range(len(values))])
    store.finish(
        study.id,
        [
            finish(number, value, state="failed" if value is None else "complete")
            for number, value in enumerate(values)
            if value is not ...
        ],
    )
    for kind in events:
        store.event(study.id, kind, "why")
    return store.study("a")


@pytest.mark.parametrize(("events", "values", "search", "expected"), CASES.values(), ids=CASES)
def test_a_study_is_finished_by_its_latest_search_or_by_its_trials(tmp_path, events, values, search, expected):
    with Store.open(str(tmp_path / "a.db")) as store:
        assert is_finished(store, study_of(store, events, values, search)) is expected
