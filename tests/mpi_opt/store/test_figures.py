"""Several figures of merit in the store: tables, the study's view, the Pareto front, and stores of the first schema."""

from __future__ import annotations

import numpy as np
from sqlalchemy import create_engine, event, inspect, text

from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Integer, Real, Space
from mpi_opt.store import Store, schema
from tests.mpi_opt.outcomes import a_fold, an_end, an_outcome, several_figures
from tests.mpi_opt.store.made_up import SEVERAL_SESSIONS, finish, make_study, start

TWO = FiguresOfMerit(("accuracy", "seconds"), ("maximize", "minimize"))
SPACE = Space({"x": Real(0, 1), "seconds": Integer(1, 3)})


def create(store, name="two", figures=TWO):
    return store.create_study(name, figures_of_merit=figures, strategy="random", seed=1, configuration={}, space=SPACE)


def ended(number, figures, state="complete", attempt=1):
    named = several_figures(dict(zip(TWO.names, figures, strict=True)), {"accuracy": 0.5, "seconds": 0.25})
    return an_end(an_outcome(number, state, named, None, 1.0, [a_fold(0, named)]), attempt, 0)


def test_the_front_contains_the_trials_that_no_complete_trial_dominates_in_any_order(store):
    study, rng = create(store), np.random.default_rng(4)
    points = [tuple(map(float, rng.integers(12, size=2))) for _ in range(60)]
    points[4] = (20.0, -1.0)  # pruned, and better than all others
    for first in range(0, 60, 7):
        batch = range(first, min(first + 7, 60))
        store.start(study.id, [start(n, {"x": 0.5, "seconds": 2}) for n in batch])
        store.finish(study.id, [ended(n, points[n], "pruned" if n % 9 == 4 else "complete") for n in batch])
    competing = {n: point for n, point in enumerate(points) if n % 9 != 4}
    expected = {
        n
        for n, (accuracy, seconds) in competing.items()
        if not any(a >= accuracy and s <= seconds and (a > accuracy or s < seconds) for a, s in competing.values())
    }
    assert {trial.number for trial in store.trials(study.id) if trial.pareto} == expected
    found = store.sql(f"SELECT number FROM {study.view} WHERE pareto = 1 ORDER BY number")[1]
    assert [row[0] for row in found] == sorted(expected)


@SEVERAL_SESSIONS
def test_front_is_right_with_several_that_write(url):
    with Store.open(url) as one, Store.open(url) as other:
        study = create(one)
        one.start(study.id, [start(n) for n in range(3)])
        one.finish(study.id, [ended(0, (0.5, 5.0))])
        other.finish(study.id, [ended(1, (0.6, 4.0))])
        one.finish(study.id, [ended(2, (0.55, 4.5))])
        assert [trial.pareto for trial in one.trials(study.id)] == [False, True, False]


def test_view_has_a_column_for_each_figure_and_hyperparameters_make_way(store):
    study = create(store)
    store.start(study.id, [start(0, {"x": 0.5, "seconds": 2})])
    store.finish(study.id, [ended(0, (0.9, 12.0))])
    columns, rows = store.sql(f"SELECT * FROM {study.view}")
    row = dict(zip(columns, rows[0], strict=True))
    assert row["accuracy"] == row["figure_of_merit"] == 0.9
    assert (row["seconds"], row["seconds_uncertainty"], row["parameter_seconds"], row["pareto"]) == (12.0, 0.25, 2, 1)


def test_trials_and_folds_keep_every_figure(store):
    study = create(store)
    store.start(study.id, [start(0), start(1)])
    store.finish(study.id, [ended(0, (0.9, 12.0)), finish(1, None, state="failed")])
    good, bad = store.trials(study.id)
    assert good.figures_of_merit == {"accuracy": 0.9, "seconds": 12.0}
    assert good.uncertainties == {"accuracy": 0.5, "seconds": 0.25}
    assert (good.pareto, bad.pareto, bad.figures_of_merit) == (True, False, {})
    rows = store.sql("SELECT fold, name, value FROM fold_figures_of_merit ORDER BY name")[1]
    assert rows == [(0, "accuracy", 0.9), (0, "seconds", 12.0)]


def test_figures_of_many_trials_are_read_without_a_parameter_for_each(url):
    """Databases limit the parameters of a statement: SQLite to 32766, PostgreSQL to 65535."""
    with Store.open(url) as store:
        study, numbers, n_parameters = create(store), range(1001), []
        store.start(study.id, [start(n) for n in numbers])
        store.finish(study.id, [ended(n, (n / 1000, 12.0)) for n in numbers])
        count = lambda *arguments: n_parameters.append(len(arguments[3]))  # noqa: E731
        event.listen(store._database._connection, "before_cursor_execute", count)
        assert [trial.figures_of_merit["accuracy"] for trial in store.trials(study.id)] == [n / 1000 for n in numbers]
    assert 0 < max(n_parameters) <= 1000


def test_trial_that_is_run_again_replaces_its_folds(store):
    study = create(store)
    store.start(study.id, [start(0)])
    store.requeue(study.id, [0], "rank 3 was lost")
    store.start(study.id, [start(0, attempt=2)])
    store.finish(study.id, [ended(0, (0.9, 12.0), attempt=2)])
    assert len(store.sql("SELECT * FROM fold_figures_of_merit")[1]) == 2


def test_best_is_the_front_trial_with_the_best_first_figure(store):
    study = create(store)
    store.start(study.id, [start(n) for n in range(3)])
    store.finish(study.id, [ended(0, (0.9, 12.0)), ended(1, (0.9, 11.0)), ended(2, (0.5, 1.0))])
    assert store.study("two").best.number == 1
    assert [trial.number for trial in store.best(study, 3)] == [1, 0, 2]


def test_figures_of_merit_of_a_study_are_read_back(store):
    several = FiguresOfMerit(("a", "b"), ("minimize", "maximize"), "median")
    assert create(store, "several", several).figures_of_merit == several
    single = FiguresOfMerit(("val_loss",), ("maximize",), "mean+std")
    one = create(store, "one", single)
    assert one.figures_of_merit == single
    assert one.direction == "maximize"
    assert store.sql("SELECT selection FROM studies ORDER BY id")[1] == [("median",), ("mean+std",)]


@SEVERAL_SESSIONS
def test_store_of_the_first_schema_becomes_one_of_this(url):
    with Store.open(url) as store:
        make_study(store, n_trials=12)
        before, figures = store.trials(1), store.study("digits").figures_of_merit
    _make_first(url)
    with Store.open(url) as store:
        assert store.sql("SELECT version FROM schema_version")[1] == [(schema.VERSION,)]
        assert store.trials(1) == before
        assert store.study("digits").figures_of_merit == figures
        test_the_front_contains_the_trials_that_no_complete_trial_dominates_in_any_order(store)
    assert _columns(url) == {
        table.name: {column.name for column in table.columns} for table in schema.metadata.tables.values()
    }


def _make_first(url):
    """Removes the additions of the second schema from a store."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in ("figures_of_merit", "fold_figures_of_merit", "transferred", "leases", "codes"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("DROP INDEX trials_by_ending"))
        columns = (
            ("studies", "selection"),
            ("studies", "merits"),
            ("studies", "n_ended"),
            ("studies", "commands"),
            ("trials", "pareto"),
        )
        columns += (("trials", "note"), ("attempts", "code"))
        for table, column in columns:
            connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        connection.execute(text("UPDATE schema_version SET version = 1"))
    engine.dispose()


def _columns(url):
    engine = create_engine(url)
    found = {
        name: {column["name"] for column in inspect(engine).get_columns(name)}
        for name in inspect(engine).get_table_names()
    }
    engine.dispose()
    return found
