"""Databases that earlier versions have written: each is opened, migrated and continued.

The files `earlier/schema_N.sql` are dumps of databases that the program wrote when `schema.VERSION` was N: a search
with 12 trials of two folds, of which trial 4 has failed, and which was killed while it ran trial 7.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mpi_opt import Categorical, Real, Study, search
from mpi_opt.store import Store, schema
from mpi_opt.store.errors import StoreOutdatedError
from mpi_opt.study.asking.ask_tell import tell
from mpi_opt.study.asking.external_results import ExternalResult
from tests.optional_packages import needs

EARLIER = Path(__file__).parent / "earlier"
VERSIONS = range(1, schema.VERSION + 1)
SPACE = {
    "x": Real(-5, 10),
    "kind": Categorical(["sgd", "adam"]),
    "momentum": Real(0, 0.9, when={"kind": "sgd"}),
}
every_version = pytest.mark.parametrize("version", VERSIONS)


def objective(trial):
    if trial.number == 4:
        raise ValueError("no memory")
    trial.report(0, 1.0)
    parameters = trial.parameters
    return (parameters["x"] - 2) ** 2 + parameters.get("momentum", 0.5) + 0.1 * trial.fold


def written_by(version: int, folder: Path) -> str:
    """The URL of a new database with the content of the dump."""
    with closing(sqlite3.connect(folder / "old.db")) as database:
        database.executescript((EARLIER / f"schema_{version}.sql").read_text(encoding="utf-8"))
    return f"sqlite:///{folder}/old.db"


def rows(url: str, query: str) -> list[tuple]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        return database.execute(query).fetchall()


def test_every_version_has_its_dump():
    assert sorted(path.name for path in EARLIER.iterdir()) == [f"schema_{version}.sql" for version in VERSIONS]


@every_version
def test_database_of_an_earlier_version_has_the_tables_of_a_new_one_once_opened(version, tmp_path):
    url = written_by(version, tmp_path)
    results = rows(url, "SELECT number, state, figure_of_merit, uncertainty, parameters, ended FROM trials")
    parts = {table: rows(url, f"SELECT * FROM {table}") for table in ("folds", "metrics", "events")}
    Store.open(url).close()
    Store.open(f"sqlite:///{tmp_path}/new.db").close()
    assert columns(url) == columns(f"sqlite:///{tmp_path}/new.db")
    assert rows(url, "SELECT version FROM schema_version") == [(schema.VERSION,)]
    assert rows(url, "SELECT number, state, figure_of_merit, uncertainty, parameters, ended FROM trials") == results
    assert {table: rows(url, f"SELECT * FROM {table}") for table in parts} == parts
    assert rows(url, "SELECT n_ended FROM studies") == [(7,)]


def columns(url: str) -> dict[str, set[str]]:
    """Table -> the names of its columns."""
    tables = [name for (name,) in rows(url, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {table: {row[1] for row in rows(url, f"PRAGMA table_info({table})")} for table in tables}


@every_version
def test_study_of_an_earlier_version_continues(version, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = written_by(version, tmp_path)
    before = rows(url, "SELECT * FROM folds")
    study = search(
        objective,
        space=SPACE,
        trials=12,
        strategy="random",
        seed=3,
        folds=2,
        study="old",
        store=url,
        resume=True,
        progress=False,
    )
    fresh = search(
        objective, space=SPACE, trials=12, strategy="random", seed=3, folds=2, study="new", store="sqlite://"
    )
    assert [trial.parameters for trial in study.trials] == [trial.parameters for trial in fresh.trials]
    assert [trial.state for trial in study.trials] == ["complete"] * 4 + ["failed"] + ["complete"] * 7
    assert [trial.figure_of_merit for trial in study.trials] == [trial.figure_of_merit for trial in fresh.trials]
    assert study.trials[7].attempts == 2
    assert rows(url, "SELECT * FROM folds")[: len(before)] == before
    assert len(rows(url, "SELECT x, kind, momentum FROM study_old WHERE state = 'complete'")) == 11


@every_version
def test_results_of_an_earlier_version_are_read_after_it_was_opened(version, tmp_path):
    url = written_by(version, tmp_path)
    if version < schema.VERSION:
        with pytest.raises(StoreOutdatedError, match="older schema") as raised:
            Study.open(url, "old")
        assert "mpi-opt search" in raised.value.cure
        Store.open(url).close()
    study = Study.open(url, "old")
    assert (study.best.number, len(study.trials)) == (2, 8)
    assert study.best.figure_of_merit == pytest.approx(min(one.figure_of_merit or 99 for one in study.trials))


@every_version
def test_result_of_a_trial_that_an_earlier_version_gave_out_is_recorded(version, tmp_path):
    url = written_by(version, tmp_path)
    with closing(sqlite3.connect(tmp_path / "old.db")) as database:
        database.execute("UPDATE attempts SET block = -1, ranks = 'external' WHERE finished_at IS NULL")
        database.commit()
    tell(url, "old", [ExternalResult(number=7, value=0.25)])
    assert rows(url, "SELECT state, figure_of_merit FROM trials WHERE number = 7") == [("complete", 0.25)]


@needs("pandas")
@every_version
def test_data_frame_of_an_earlier_version_has_all_trials(version, tmp_path):
    url = written_by(version, tmp_path)
    Store.open(url).close()
    assert len(Study.open(url, "old").dataframe()) == 8
