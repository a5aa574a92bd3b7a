"""The common behaviour of stores in all databases."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime

import pytest

from mpi_opt.configuration.read_study import read_study
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.core.trial import Proposal
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreConflictError
from mpi_opt.store.records import GivenBack, StudyRecord, now
from tests.mpi_opt.outcomes import a_fold, an_end, an_outcome
from tests.mpi_opt.store.made_up import CONFIGURATION, SEVERAL_SESSIONS, SPACE, finish, make_study, start

ONE = Space({"x": Real(0, 1)})


def create(store: Store, name: str = "demo", *, direction: str = "minimize", space: Space = ONE) -> StudyRecord:
    return store.create_study(
        name,
        figures_of_merit=FiguresOfMerit(directions=(direction,)),
        strategy="random",
        seed=3,
        configuration={"a": 1},
        space=space,
    )


def test_study_comes_back_as_it_was_created(store: Store) -> None:
    store.create_study(
        "digits",
        figures_of_merit=FiguresOfMerit(directions=("maximize",)),
        strategy="random",
        seed=2**40,
        configuration=CONFIGURATION,
        space=SPACE,
    )
    study = store.study("digits")
    assert (study.name, study.direction, study.strategy, study.seed) == ("digits", "maximize", "random", 2**40)
    assert study.configuration == CONFIGURATION
    assert study.space == SPACE
    assert study.view == "study_digits"
    assert study.counts == {} and study.best is None
    age = datetime.now(UTC) - datetime.fromisoformat(study.created_at)
    assert 0 <= age.total_seconds() < 60


def test_longest_name_of_a_study_fits_into_every_store(store: Store) -> None:
    name = "é" * 255
    space = {"x": {"type": "real", "low": 0, "high": 1}}
    assert read_study({"study": name, "objective": "o.py:f", "space": space}).study == name
    make_study(store, name, n_trials=1)
    assert [study.name for study in store.studies()] == [name]


def test_unknown_study_is_none(store: Store) -> None:
    assert store.study("nothing") is None
    assert store.studies() == []


def test_second_study_of_a_name_is_refused(store: Store) -> None:
    create(store)
    with pytest.raises(StoreConflictError):
        create(store)
    assert len(store.studies()) == 1


def test_started_trial_is_running(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0, {"x": 0.25, "name": "é\"'%"})])
    (trial,) = store.trials(study.id)
    assert (trial.number, trial.state, trial.attempts) == (0, "running", 1)
    assert trial.parameters == {"x": 0.25, "name": "é\"'%"}
    assert trial.figure_of_merit is None and trial.finished_at is None
    (attempt,) = store.attempts(study.id)
    assert (attempt.number, attempt.block, attempt.ranks, attempt.hosts) == (0, 0, "1-3", "node1")
    assert attempt.outcome is None


def test_the_latest_times_are_those_of_the_trials_that_ended_last(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(number) for number in range(4)])
    for number in (2, 0, 1):
        store.finish(study.id, [finish(number, 1.0)])
    trials = {trial.number: (trial.started_at, trial.finished_at) for trial in store.trials(study.id)}
    assert store.latest_times(study.id, 2) == [trials[1], trials[0]]
    assert store.latest_times(study.id, 9) == [trials[1], trials[0], trials[2]]


def test_a_trial_that_runs_again_has_the_start_of_its_latest_attempt(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0)])
    store.requeue(study.id, [0], "rank 2 was lost")
    store.start(study.id, [start(0, attempt=2)])
    (trial,), (first, second) = store.trials(study.id), store.attempts(study.id)
    assert first.started_at < first.finished_at < second.started_at
    assert trial.started_at == second.started_at


def test_attempts_of_a_killed_search_end_when_it_died_but_not_before_they_started(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0)])
    died_at = now()
    time.sleep(0.01)
    store.start(study.id, [start(1)])
    time.sleep(0.01)
    store.requeue(study.id, [0, 1], "the search ended", "killed", died_at)
    first, second = store.attempts(study.id)
    assert (first.finished_at, second.finished_at) == (died_at, second.started_at)
    assert first.duration_s == pytest.approx(0.005, abs=0.005)
    assert second.duration_s == 0.0


def test_only_a_killed_attempt_can_be_marked_as_lost(store: Store) -> None:
    study = create(store)
    for attempt, outcome in enumerate(("killed", "killed", "lost"), 1):
        store.start(study.id, [start(0, attempt=attempt)])
        store.requeue(study.id, [0], "the search ended", outcome)
    store.start(study.id, [start(0, attempt=4)])
    store.mark_lost(study.id, [(0, 2), (0, 3), (0, 4)])
    assert [attempt.outcome for attempt in store.attempts(study.id)] == ["killed", "lost", "lost", None]
    assert [trial.state for trial in store.trials(study.id)] == ["running"]


def test_finished_trial_holds_its_outcome_folds_and_curves(store: Store) -> None:
    study = create(store)
    history = {"loss": [0.9, math.nan, 0.5], "val_loss": [1.0, 0.8, 0.7]}
    folds = [a_fold(0, 0.7, 1.5, history), a_fold(1, None, 0.5)]
    store.start(study.id, [start(0)])
    store.finish(study.id, [an_end(an_outcome(0, "complete", 0.7, 0.01, 2.5, folds), 1, 0)])
    (trial,) = store.trials(study.id)
    assert (trial.state, trial.figure_of_merit, trial.uncertainty, trial.duration_s) == ("complete", 0.7, 0.01, 2.5)
    assert trial.started_at < trial.finished_at
    assert [(f.fold, f.figure_of_merit, f.duration_s) for f in store.folds(study.id)] == [(0, 0.7, 1.5), (1, None, 0.5)]
    loss, val_loss = store.curves(study.id)
    assert (loss.name, loss.fold, loss.values[0], loss.values[2]) == ("loss", 0, 0.9, 0.5)
    assert math.isnan(loss.values[1])
    assert store.sql("SELECT name, epoch FROM metrics WHERE value IS NULL")[1] == [("loss", 1)]  # also in PostgreSQL
    assert val_loss.values == [1.0, 0.8, 0.7]
    assert store.attempts(study.id)[0].outcome == "complete"


def test_failed_trial_keeps_its_error(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0)])
    store.finish(study.id, [an_end(an_outcome(0, "failed", error="ValueError: it went wrong\nTraceback: …"), 1, 0)])
    (trial,) = store.trials(study.id, ["failed"])
    assert trial.figure_of_merit is None
    assert trial.error == "ValueError: it went wrong\nTraceback: …"
    assert store.attempts(study.id)[0].error == "ValueError: it went wrong"  # the traceback is stored once


def test_texts_of_any_length_are_limited_and_keep_both_ends(store: Store) -> None:
    study = create(store)
    text = "first " + "x" * 1_000_000 + " last"
    store.start(study.id, [start(0), start(1)])
    store.finish(study.id, [an_end(an_outcome(0, "failed", error=text), 1, 0)])
    store.requeue(study.id, [1], text)
    store.event(study.id, "note", text)
    first, second = store.attempts(study.id)
    for found in (store.trials(study.id)[0].error, first.error, second.error, store.events(study.id)[0].detail):
        assert found.startswith("first x")
        assert found.endswith("x last")
        assert "characters left out" in found
        assert len(found) < 9000


def test_ended_trials_are_in_the_order_of_ending(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(number) for number in range(4)])
    store.finish(study.id, [finish(2), finish(0)])
    store.finish(study.id, [finish(3, None, state="failed")])
    assert [trial.number for trial in store.ended_trials(study.id)] == [2, 0, 3]
    assert [trial.number for trial in store.trials(study.id)] == [0, 1, 2, 3]


@SEVERAL_SESSIONS
def test_order_of_ending_continues_in_a_second_session(store: Store, url: str) -> None:
    study = create(store)
    store.start(study.id, [start(0), start(1), start(2)])
    store.finish(study.id, [finish(2)])
    store.close()
    with Store.open(url) as second:
        second.requeue(study.id, [0, 1], "the search ended")
        second.start(study.id, [start(1, attempt=2), start(0, attempt=2)])
        second.finish(study.id, [finish(1, attempt=2), finish(0, attempt=2)])
        assert [trial.number for trial in second.ended_trials(study.id)] == [2, 1, 0]


@SEVERAL_SESSIONS
def test_order_of_ending_is_one_for_all_processes(store: Store, url: str) -> None:
    study = create(store)
    store.start(study.id, [start(number) for number in range(6)])
    with Store.open(url) as other:
        for number, writer in ((4, store), (1, other), (5, store), (0, other), (3, other), (2, store)):
            writer.finish(study.id, [finish(number)])
        for reader in (store, other):
            assert [trial.number for trial in reader.ended_trials(study.id)] == [4, 1, 5, 0, 3, 2]
        assert store.sql("SELECT ended FROM trials ORDER BY ended")[1] == [(place,) for place in range(6)]


def test_trials_of_older_versions_that_share_a_place_come_by_time_and_number(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(number) for number in range(4)])
    store.finish(study.id, [finish(3)])
    store.finish(study.id, [finish(2), finish(1), finish(0)])
    with store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE trials SET ended = 0")
    assert [trial.number for trial in store.ended_trials(study.id)] == [3, 0, 1, 2]


@SEVERAL_SESSIONS
def test_trial_that_another_process_has_ended_is_refused_and_nothing_changes(store: Store, url: str) -> None:
    study = create(store)
    store.start(study.id, [start(0), start(1), start(2)])
    with Store.open(url) as other:
        other.finish(study.id, [finish(1, 0.25)])
        for action in (
            lambda: store.finish(study.id, [finish(0, 0.5), finish(1, 0.75)], [GivenBack(2, 1, "lost")]),
            lambda: store.finish(study.id, [finish(0, 0.5)], [GivenBack(1, 1, "lost")]),
            lambda: store.requeue(study.id, [0, 1], "lost"),
        ):
            with pytest.raises(StoreConflictError):
                action()
        states = [(trial.state, trial.figure_of_merit) for trial in store.trials(study.id)]
        assert states == [("running", None), ("complete", 0.25), ("running", None)]
        assert [attempt.outcome for attempt in store.attempts(study.id)] == [None, "complete", None]
        store.finish(study.id, [finish(0, 0.5)], [GivenBack(2, 1, "lost")])
    assert [trial.state for trial in store.trials(study.id)] == ["complete", "complete", "queued"]
    assert [attempt.outcome for attempt in store.attempts(study.id)] == ["complete", "complete", "lost"]
    assert [trial.number for trial in store.ended_trials(study.id)] == [1, 0]


def test_outcome_of_an_attempt_that_was_given_up_is_refused(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0)])
    store.requeue(study.id, [0], "rank 2 was lost")
    store.start(study.id, [start(0, attempt=2)])
    with pytest.raises(StoreConflictError):
        store.finish(study.id, [finish(0, 1.0)])
    store.finish(study.id, [finish(0, 2.0, attempt=2)])
    assert store.trials(study.id)[0].figure_of_merit == 2.0


def test_trial_that_is_not_in_the_queue_is_not_started_again(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0), start(1)])
    store.finish(study.id, [finish(0)])
    for number in (0, 1):
        with pytest.raises(StoreConflictError):
            store.start(study.id, [start(2), start(number, attempt=2)])
    assert [trial.state for trial in store.trials(study.id)] == ["complete", "running"]


def test_outcome_that_arrives_after_its_trial_was_requeued_is_kept(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0)])
    for _ in range(2):
        store.requeue(study.id, [0], "the search ends")
    store.finish(study.id, [finish(0, 0.5)])
    assert store.trials(study.id)[0].state == "complete"


def test_lost_trial_is_queued_and_runs_again(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0)])
    store.requeue(study.id, [0], "rank 2 was lost")
    assert store.trials(study.id)[0].state == "queued"
    store.start(study.id, [start(0, attempt=2, block=3)])
    store.finish(study.id, [finish(0, 0.5, attempt=2, block=3)])
    (trial,) = store.trials(study.id)
    assert (trial.state, trial.attempts, trial.figure_of_merit) == ("complete", 2, 0.5)
    first, second = store.attempts(study.id)
    assert (first.outcome, first.error, first.block) == ("lost", "rank 2 was lost", 0)
    assert (second.outcome, second.block) == ("complete", 3)


def test_attempt_that_was_lost_keeps_its_reason(store: Store) -> None:
    study = create(store)
    for attempt, why in enumerate(("rank 2 was lost", "rank 3 was lost"), 1):
        store.start(study.id, [start(0, attempt=attempt)])
        store.requeue(study.id, [0], why)
    assert [attempt.error for attempt in store.attempts(study.id)] == ["rank 2 was lost", "rank 3 was lost"]


def test_same_attempt_twice_is_refused_and_changes_nothing(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0)])
    with pytest.raises(StoreConflictError) as caught:
        store.start(study.id, [start(1), start(0)])
    assert caught.value.cure
    assert [trial.number for trial in store.trials(study.id)] == [0]


def test_budget_and_origin_of_a_resumed_trial_are_kept(store: Store) -> None:
    from dataclasses import replace

    study = create(store)
    store.start(study.id, [replace(start(0), proposal=Proposal(0, {"x": 0.5}, budget=3.0))])
    store.start(study.id, [replace(start(1), proposal=Proposal(1, {"x": 0.5}, budget=9.0, resume_from=0))])
    assert [(t.budget, t.resume_from) for t in store.trials(study.id)] == [(3.0, None), (9.0, 0)]


@pytest.mark.parametrize(("direction", "number"), [("minimize", 1), ("maximize", 2)])
def test_best_is_the_best_complete_trial(store: Store, direction: str, number: int) -> None:
    study = create(store, direction=direction)
    store.start(study.id, [start(n) for n in range(5)])
    store.finish(study.id, [finish(0, 0.5), finish(1, 0.1), finish(2, 0.9), finish(3, None, state="failed")])
    store.finish(study.id, [finish(4, 99.0 if direction == "maximize" else -99.0, state="pruned")])
    study = store.study("demo")
    assert study.best.number == number
    assert study.counts == {"complete": 3, "failed": 1, "pruned": 1}
    assert [trial.number for trial in store.best(study, 2)] == [number, 0]


def test_the_earlier_of_equal_trials_is_best(store: Store) -> None:
    study = create(store)
    store.start(study.id, [start(0), start(1)])
    store.finish(study.id, [finish(1, 0.5), finish(0, 0.5)])
    assert store.study("demo").best.number == 0


def test_studies_do_not_mix(store: Store) -> None:
    first, second = create(store, "first"), create(store, "second")
    for study, merit in ((first, 1.0), (second, 2.0)):
        store.start(study.id, [start(0)])
        store.finish(study.id, [finish(0, merit)])
    assert [store.trials(study.id)[0].figure_of_merit for study in (first, second)] == [1.0, 2.0]
    assert [study.name for study in store.studies()] == ["first", "second"]


def test_events_come_in_order(store: Store) -> None:
    study = create(store)
    store.event(study.id, "rank_lost", "rank 3")
    store.event(study.id, "block_retired", "block 0")
    assert [(e.kind, e.detail) for e in store.events(study.id)] == [
        ("rank_lost", "rank 3"),
        ("block_retired", "block 0"),
    ]


def test_view_has_a_typed_column_for_each_hyperparameter(store: Store) -> None:
    make_study(store, n_trials=20)
    columns, rows = store.sql("SELECT * FROM study_digits ORDER BY number")
    assert columns == ["number", "state", "figure_of_merit", "uncertainty", "duration_s", *SPACE]
    trials = store.trials(store.study("digits").id)
    for row, trial in zip(rows, trials, strict=True):
        values = dict(zip(columns, row, strict=True))
        assert values["state"] == trial.state
        assert {name: values[name] for name in SPACE if values[name] is not None} == trial.parameters
    condition = "state = 'complete' AND learning_rate > 0.001"
    query = f"SELECT number FROM study_digits WHERE {condition} ORDER BY figure_of_merit LIMIT 1"
    wanted = [t for t in trials if t.state == "complete" and t.parameters["learning_rate"] > 0.001]
    assert store.sql(query)[1] == [(min(wanted, key=lambda t: t.figure_of_merit).number,)]
    n_other = sum(trial.parameters["activation"] != "relu" for trial in trials)
    assert store.sql("SELECT count(*) FROM study_digits WHERE activation NOT LIKE 'r%'")[1] == [(n_other,)]


def test_views_of_odd_names_do_not_collide(store: Store) -> None:
    odd = Space(
        {"state": Integer(0, 9), "Größe": Real(0, 1), "a'b%s": Categorical([True, False]), 'a"b\\': Integer(0, 9)}
    )
    point = {"state": 4, "Größe": 0.5, "a'b%s": True, 'a"b\\': 7}
    views = []
    for name in ("a-b", "a b", "A_B"):
        study = create(store, name, space=odd)
        store.start(study.id, [start(0, point)])
        views.append(study.view)
    assert views == ["study_a_b", "study_a_b_2", "study_A_B_3"]
    for view in views:
        quoted = f'"{view}"'
        columns, ((*_, state, size, flag, quoted_name),) = store.sql(f"SELECT * FROM {quoted}")
        assert columns[5:] == ["parameter_state", "Größe", "a'b%s", 'a"b\\']
        assert (state, size, bool(flag), quoted_name) == (4, 0.5, True, 7)


def test_tables_hold_the_contracts_columns(store: Store) -> None:
    make_study(store, n_trials=10)
    contract = {
        "studies": "id, name, direction, strategy, seed, created_at, configuration",
        "trials": "id, study_id, number, state, figure_of_merit, uncertainty, parameters, started_at, finished_at, "
        "duration_s, attempts, error",
        "folds": "trial_id, fold, figure_of_merit, duration_s",
        "metrics": "trial_id, fold, epoch, name, value",
        "attempts": "trial_id, attempt, block, ranks, hosts, started_at, finished_at, outcome, error",
        "events": "study_id, at, kind, detail",
    }
    for table, columns in contract.items():
        found, rows = store.sql(f"SELECT {columns} FROM {table}")
        assert found == columns.split(", ")
        assert rows
    _, ((parameters,),) = store.sql("SELECT parameters FROM trials WHERE number = 0")
    assert set(json.loads(parameters)) <= set(SPACE)


def test_stores_of_all_kinds_hold_the_same_after_the_same_search(store: Store) -> None:
    make_study(store, n_trials=30)
    with Store.open("sqlite://") as oracle:
        make_study(oracle, n_trials=30)
        for table in ("trials", "folds", "metrics"):
            columns = "number, state, figure_of_merit, parameters, ended" if table == "trials" else "*"
            query = f"SELECT {columns} FROM {table}"
            assert sorted(map(repr, store.sql(query)[1])) == sorted(map(repr, oracle.sql(query)[1]))


def test_any_error_text_is_kept(store: Store) -> None:
    study = create(store)
    text = "bad file name \udce9t\udce9, a NUL \0 and a % 'quote'"
    store.start(study.id, [start(0)])
    store.finish(study.id, [an_end(an_outcome(0, "failed", None, None, 0.1, [], text), 1, 0)])
    assert store.trials(study.id)[0].error == "bad file name ?t?, a NUL � and a % 'quote'"


@SEVERAL_SESSIONS
def test_two_searches_share_a_store(store: Store, url: str) -> None:
    with Store.open(url) as other:
        first, second = create(store, "first"), create(other, "second")
        for number in range(20):
            for writer, study in ((store, first), (other, second)):
                writer.start(study.id, [start(number)])
                writer.finish(study.id, [finish(number)])
        store.close()
        other.start(second.id, [start(20)])
        other.finish(second.id, [finish(20)])
        assert [study.counts for study in other.studies()] == [{"complete": 20}, {"complete": 21}]
