"""Passwords in URLs are shown nowhere: not in messages, the store, reports or events."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
import yaml

from mpi_opt.cli.main import main
from mpi_opt.core.trial import Proposal
from mpi_opt.errors import ConfigurationError, without_passwords
from mpi_opt.store import Store
from mpi_opt.store.records import GivenBack
from mpi_opt.study.study import Study
from mpi_opt.views.page.report import report
from mpi_opt.views.text.progress_counts import ProgressCounts
from mpi_opt.views.text.progress_display import PlainProgress
from mpi_opt.views.trackers import FailSafeTracker, Tracker, make_tracker
from tests.mpi_opt.outcomes import an_end, an_outcome
from tests.mpi_opt.store.made_up import make_study, start
from tests.optional_packages import needs


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ada:secret@host/db", "postgresql://ada:***@host/db"),
        ("postgresql://ada:sec@ret@host:5432/db", "postgresql://ada:***@host:5432/db"),
        ("postgresql://ada:sec/ret@host/db", "postgresql://ada:***@host/db"),
        ("postgresql://ada:12345@host/db", "postgresql://ada:***@host/db"),
        ("postgresql://host/db?user=ada&password=secret", "postgresql://host/db?user=ada&password=***"),
        ("postgresql://host/db?sslpassword=secret#x", "postgresql://host/db?sslpassword=***#x"),
        ("mlflow:http://ada:secret@host:5000", "mlflow:http://ada:***@host:5000"),
        ("https://host/a.h5?X-Amz-Signature=secret&x=1", "https://host/a.h5?X-Amz-Signature=***&x=1"),
        ("https://host/a.h5?token=secret", "https://host/a.h5?token=***"),
        ("https://host/a.h5?sig=secret", "https://host/a.h5?sig=***"),
        (
            "cannot reach 'http://ada:secret@host/x', nor http://bob@host",
            "cannot reach 'http://ada:***@host/x', nor http://bob@host",
        ),
        ("http://host:5000/runs@v2", "http://host:5000/runs@v2"),
        ("sqlite:////home/ada/a.db", "sqlite:////home/ada/a.db"),
        ("postgresql://ada@host:5432/db", "postgresql://ada@host:5432/db"),
        ("https://host/a.h5?monkey=banana&design=2", "https://host/a.h5?monkey=banana&design=2"),
        ("x = 3, key = 4", "x = 3, key = 4"),
    ],
)
def test_passwords_in_urls_are_replaced_and_nothing_else(text, shown):
    assert without_passwords(text) == shown


URL = "http://ada:secret@127.0.0.1:1/a?token=secret"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "objective.py").write_text(
        f"def objective(trial):\n    if trial.number:\n        raise ValueError('no data at {URL}')\n    return 1.0\n"
    )
    return tmp_path


def study(**changes) -> dict:
    space = {"x": {"type": "real", "low": 0.0, "high": 1.0}}
    search = {"strategy": "random", "trials": 2, "transfer": None}
    content = {"study": "one", "store": "sqlite:///one.db", "objective": "objective.py:objective", "space": space}
    return content | {"search": search} | changes


TENSORBOARD = f"tensorboard:runs?password=secret&at={URL}"


@pytest.mark.parametrize("track", [None, pytest.param(TENSORBOARD, marks=needs("tensorboardX"))])
def test_search_keeps_and_shows_no_password(folder, capsys, track):
    training = {"model": "m.py:m", "data": {"train": [URL]}}
    content = study(track=track, training=training)
    (folder / "one.yaml").write_text(yaml.safe_dump(content))
    for _ in range(2):  # also when the study continues, with the passwords that the store does not know
        with pytest.raises(SystemExit) as ended:
            main(["search", "one.yaml"])
        assert ended.value.code == 0
    with sqlite3.connect("one.db") as connection:
        dump = "\n".join(connection.iterdump())
    assert "no data at http://ada:***@127.0.0.1:1/a?token=***" in dump
    assert not track or '"track": "tensorboard:runs?password=***&at=http://ada:***@127.0.0.1:1/a?token=***"' in dump
    page = report(Study.open("one.db", "one"))
    for command in (["results", "--study", "one"], ["results", "--trial", "1"], ["best"]):
        with pytest.raises(SystemExit):
            main([*command, "--store", "one.db"])
    shown = "".join(capsys.readouterr())
    assert "# *** replaces a password" in shown
    for text in (dump, page, shown):
        assert "secret" not in text
        assert "ada:***@" in text


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_messages_of_commands_show_no_password(folder, capsys, debug):
    stores = [
        "postgresql://ada:secret@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?password=secret",
        "mango://a:secret@h",
    ]
    for store in stores:
        (folder / "one.yaml").write_text(yaml.safe_dump(study(store=store)))
        with pytest.raises(SystemExit) as ended:
            main(["search", "one.yaml", *debug])
        assert ended.value.code == 2
    (folder / "one.yaml").write_text(yaml.safe_dump(study(store=stores[1])))
    with pytest.raises(SystemExit):
        main(["check", "one.yaml"])
    shown = "".join(capsys.readouterr())
    assert "***" in shown
    assert "secret" not in shown


def test_errors_events_and_reasons_in_the_store_hold_no_password():
    with Store.open("sqlite://") as store:
        study_id = make_study(store, n_trials=1).id
        store.event(study_id, "rank_lost", URL)
        store.start(study_id, [start(5), start(6)])
        store.finish(
            study_id, [an_end(an_outcome(5, "failed", None, None, 0.1, [], URL), 1, 0)], [GivenBack(6, 1, URL)]
        )
        store.start(study_id, [start(6, attempt=2)])
        store.requeue(study_id, [6], URL)
        texts = [event.detail for event in store.events(study_id)]
        texts += [trial.error for trial in store.trials(study_id, ["failed"])]
        texts += [attempt.error for attempt in store.attempts(study_id, [5, 6])]
        assert texts == ["http://ada:***@127.0.0.1:1/a?token=***"] * 5


@needs("mlflow")
def test_trackers_and_progress_show_no_password(capsys):
    class Broken(Tracker):
        def record(self, outcome, parameters):
            raise OSError(f"no answer from {URL}")

    FailSafeTracker(Broken()).record(an_outcome(0, "complete", 1.0, None, 0.1), {})
    progress = PlainProgress(ProgressCounts(2, maximize=False))
    progress.note(URL)
    progress.finished(0, an_outcome(0, "failed", None, None, 0.1, error=URL), Proposal(0, {}))
    progress.tick()
    printed, said = capsys.readouterr()
    assert said and printed.count("***") == 4
    assert "secret" not in said + printed
    with pytest.raises(ConfigurationError) as caught:
        make_tracker("mlflow:nonsense://ada:secret@host", "one")
    assert "secret" not in str(caught.value)


def test_ask_and_tell_show_no_password(folder, capsys):
    (folder / "one.yaml").write_text(yaml.safe_dump(study(objective="external")))
    with pytest.raises(SystemExit) as asked:
        main(["ask", "one.yaml"])
    assert json.loads(capsys.readouterr().out)[0]["number"] == 0
    with pytest.raises(SystemExit) as told:
        main(["tell", "one.yaml", "--number", "0", "--failed", URL])
    assert (asked.value.code, told.value.code) == (0, 0)
    with sqlite3.connect("one.db") as connection:
        assert connection.execute("SELECT state, error FROM trials").fetchall() == [("failed", without_passwords(URL))]
        dump = "\n".join(connection.iterdump())
    assert "http://ada:***@127.0.0.1:1/a?token=***" in dump
    assert "secret" not in dump + "".join(capsys.readouterr())
