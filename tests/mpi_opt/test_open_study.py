"""The strategy of a study is built once, and does not depend on which program drives the study."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from mpi_learn.errors import ConfigurationError
from mpi_learn.training.configuration import read_configuration
from mpi_opt import search
from mpi_opt.cli.main import main, run
from mpi_opt.core.search_space.space import Real
from mpi_opt.errors import StoreError
from mpi_opt.store import Store, reading
from mpi_opt.store.errors import StoreUnreachableError
from mpi_opt.store.records import LeaseRecord
from mpi_opt.strategies import make_strategy
from mpi_opt.study.reading import EXTERNAL_RANKS, PastTrials
from mpi_opt.study.study import Study

RECORDER = '''
import json
from mpi_opt.core.trial import Proposal
from mpi_opt.strategies.strategy import Strategy

def write(*entry):
    with open("recorded.jsonl", "a") as file:
        file.write(json.dumps(entry) + "\\n")

class Recorder(Strategy):
    """Writes how it is built and what it learns."""

    def __init__(self, space, seed=0, options=None):
        write("built", seed, options)
        self.n = 0

    def ask(self, count):
        self.n += count
        return [Proposal(number, {"x": 0.25}) for number in range(self.n - count, self.n)]

    def tell(self, proposal, outcome):
        pass

    def resume(self, told, pending=()):
        told = list(told)
        write("resumed", [(proposal.number, value) for proposal, value in told])
        self.n = len(told) + len(list(pending))
'''

OBJECTIVE = """
def objective(trial):
    return float(trial.fold + trial.number)
"""

STUDY = {
    "study": "one",
    "store": "sqlite:///one.db",
    "objective": "objective.py:objective",
    "space": {"x": {"type": "real", "low": 0.0, "high": 1.0}},
    "search": {"strategy": "recorder.py:Recorder", "trials": 2, "seed": 5, "options": {"reproducible": False}},
    "folds": 4,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recorder.py").write_text(RECORDER)
    (tmp_path / "objective.py").write_text(OBJECTIVE)
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(STUDY))
    return tmp_path


def recorded(folder: Path) -> list[list]:
    """The calls of the strategies since the last call of this function."""
    path = folder / "recorded.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return entries


def searched(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["search", *arguments])
    assert ended.value.code == 0


def test_search_and_ask_build_the_strategy_once_and_teach_it_the_same(folder):
    searched("one.yaml")
    assert [entry[0] for entry in recorded(folder)] == ["built"]
    assert run(["ask", "one.yaml", "--trials", "3"]) == 0
    asked = recorded(folder)
    with Store.open("one.db") as store:
        store.requeue(1, [2], "lost")
    searched("one.yaml", "--trials", "3")
    assert recorded(folder) == asked
    (built, seed, options), (resumed, told) = asked
    assert (built, seed, options, resumed) == ("built", 5, {}, "resumed")
    assert told == [[0, 1.5], [1, 2.5]]


def test_asked_trials_get_the_budgets_that_a_search_would_give_them(folder, capsys):
    training = {"model": "model.py:build", "data": {"train": ["data.h5"]}, "epochs": 9}
    search = {"strategy": "halving", "trials": 9, "seed": 3}
    study = STUDY | {"objective": "train", "training": training, "search": search, "folds": 1}
    (folder / "one.yaml").write_text(yaml.safe_dump(study))
    assert run(["ask", "one.yaml", "-k", "6"]) == 0
    asked = json.loads(capsys.readouterr().out)
    strategy = make_strategy("halving", {"x": Real(0.0, 1.0)}, 3, {"max_budget": 9, "await_refit_up_to": 99})
    assert [(one["parameters"], one["budget"]) for one in asked] == [
        (one.parameters, one.budget) for one in strategy.ask(6)
    ]


def test_refused_strategy_leaves_no_store(folder):
    for command in ("search", "ask", "check"):
        (folder / "one.yaml").write_text(
            yaml.safe_dump(STUDY | {"search": {"strategy": "random", "options": {"a": 1}}})
        )
        with pytest.raises(SystemExit) as ended:
            main([command, "one.yaml"])
        assert ended.value.code == 2
        assert not (folder / "one.db").exists()


def test_a_study_does_not_continue_with_another_space(folder, capsys):
    assert run(["ask", "one.yaml"]) == 0
    (folder / "one.yaml").write_text(yaml.safe_dump(STUDY | {"space": {"x": STUDY["space"]["x"] | {"high": 2.0}}}))
    with pytest.raises(SystemExit) as ended:
        main(["ask", "one.yaml"])
    assert ended.value.code == 2
    assert "was created with another space: x.high: 1.0, now 2.0" in capsys.readouterr().err


@pytest.mark.parametrize(("folds", "status"), [(4, 2), (1, 0)])
def test_the_seed_of_a_study_with_folds_does_not_change(folder, capsys, folds, status):
    (folder / "one.yaml").write_text(yaml.safe_dump(STUDY | {"folds": folds}))
    assert run(["ask", "one.yaml"]) == 0
    search_section = STUDY["search"] | {"seed": 6}
    (folder / "one.yaml").write_text(yaml.safe_dump(STUDY | {"folds": folds, "search": search_section}))
    with pytest.raises(SystemExit) as ended:
        main(["ask", "one.yaml"])
    assert ended.value.code == status
    assert ("was created with another seed: 5, now 6" in capsys.readouterr().err) is (status == 2)


def test_another_strategy_is_said_and_recorded_and_decides_which_trial_is_the_best(tmp_path, capsys):
    """Trials of `population` are stages of longer trainings; of those of `halving`, only the longest can be best."""

    def run_with(strategy, trials, **options):
        store = f"sqlite:///{tmp_path}/s.db"
        return search(
            lambda trial: trial.budget or 0.0, space={"x": Real(0, 1)}, trials=trials, strategy=strategy, study="s",
            options=options, store=store, resume=True,
        )  # fmt: skip

    first = run_with("population", 2, population=2)
    assert "search_changed" not in {event.kind for event in first.events()}
    found = run_with("halving", 12, max_budget=9)
    changes = (
        "strategy: 'population', now 'halving'; options.population: 2, now nothing; options.max_budget: nothing, now 9"
    )
    assert [event.detail for event in found.events() if event.kind == "search_changed"] == [changes]
    assert changes in capsys.readouterr().err
    assert found.record.strategy == "halving"
    assert found.record.configuration["search"]["options"] == {"max_budget": 9}
    budgets = [trial.budget for trial in found.trials if trial.number >= 2]
    assert found.best.budget == max(budgets) > min(budgets)


def test_ask_with_another_strategy_records_it(folder):
    for strategy in ("random", "random", "sobol"):
        changed = STUDY | {"folds": 1, "search": {"strategy": strategy, "trials": 5}}
        (folder / "one.yaml").write_text(yaml.safe_dump(changed))
        assert run(["ask", "one.yaml"]) == 0
    study = Study.open("sqlite:///one.db", "one")
    changes = [event.detail for event in study.events() if event.kind == "search_changed"]
    assert (study.record.strategy, changes) == ("sobol", ["strategy: 'random', now 'sobol'"])


def test_ask_beside_a_search_leaves_the_settings_of_the_search(folder):
    def asked_with(strategy):
        changed = STUDY | {"folds": 1, "search": {"strategy": strategy, "trials": 5}}
        (folder / "one.yaml").write_text(yaml.safe_dump(changed))
        assert run(["ask", "one.yaml"]) == 0

    asked_with("random")
    owner = LeaseRecord("a", "node7", "node7", 4711, 1, "2026-01-02T03:04:05", "2026-01-02T03:04:05")
    with Store.open("sqlite:///one.db") as store:
        store.leases.acquire(store.study("one").id, owner, lambda owner: True)
    asked_with("sobol")
    assert Study.open("sqlite:///one.db", "one").record.strategy == "random"


def test_trial_that_ends_between_two_queries_is_not_read_as_running_too():
    """A workload system may report a trial while a search reads the study."""

    def record(state):
        return SimpleNamespace(number=8, state=state)

    class StoreOfOneTrial:
        def trials(self, study_id, states):
            return [record("running")]

        def attempts(self, study_id, numbers):
            return [SimpleNamespace(number=8, ranks=EXTERNAL_RANKS)]

        def ended_trials(self, study_id):
            return [record("complete")]

    past = PastTrials.read(StoreOfOneTrial(), 1, figures_of_merit=None, n_folds=1)
    assert [one.state for one in past.ended] == ["complete"]
    assert (past.unfinished, past.external) == ([], frozenset())


class Parabola:
    """An objective with a state."""

    def __init__(self, centre: float) -> None:
        self.centre = centre

    def __call__(self, trial) -> float:
        return (trial.parameters["x"] - self.centre) ** 2


def parabola(centre, trial) -> float:
    return Parabola(centre)(trial)


@pytest.mark.parametrize(
    ("make", "name"), [(partial(Parabola, 0.5), "Parabola"), (partial(partial, parabola, 0.5), "parabola")]
)
def test_an_objective_that_is_no_plain_function_is_the_same_in_the_next_run(make, name, tmp_path):
    objectives = [make(), make()]  # both exist, so that their addresses in memory differ
    for n_trials, objective in enumerate(objectives, 1):
        study = search(
            objective,
            space={"x": Real(0, 1)},
            trials=n_trials,
            strategy="random",
            study="study",
            store=f"sqlite:///{tmp_path}/results.db",
        )
    assert len(study.trials) == 2
    with Store.open(str(tmp_path / "results.db"), read_only=True) as store:
        assert store.study("study").configuration["objective"] == name


def deleted(folder: Path, number: int) -> str:
    """A finished study of six trials, of which another program has deleted one row; returns the URL."""
    url = f"sqlite:///{folder / 'd.db'}"
    options = {"space": {"x": Real(0, 1)}, "strategy": "random", "study": "d", "store": url, "progress": False}
    search(lambda trial: trial.parameters["x"], trials=6, **options)
    with contextlib.closing(sqlite3.connect(folder / "d.db")) as database:
        database.execute("DELETE FROM trials WHERE number = ?", [number])
        database.commit()
    return url


def test_a_deleted_trial_is_named_and_another_one_takes_its_place(tmp_path, capsys):
    url = deleted(tmp_path, 3)
    options = {"space": {"x": Real(0, 1)}, "strategy": "random", "study": "d", "store": url, "progress": True}
    study = search(lambda trial: trial.parameters["x"], trials=6, resume=True, **options)
    assert "\ntrial 3 is not in the store any more, because rows were deleted" in capsys.readouterr().err
    assert [trial.number for trial in study.trials] == [0, 1, 2, 4, 5, 6]
    assert study.add_trial({"x": 0.5}, 1.0) == 7


def test_a_continued_search_reads_and_counts_each_earlier_trial_once(tmp_path, monkeypatch, capsys):
    options = {"space": {"x": Real(0, 1)}, "strategy": "random", "study": "d", "store": str(tmp_path / "d.db")}

    def value(trial) -> float:
        n_read.append(len(read))
        if trial.number == 1:
            raise ValueError("no")
        return 0.5 + trial.number

    read, n_read, make = [], [], reading._trial
    monkeypatch.setattr(reading, "_trial", lambda *row: read.append(row) or make(*row))
    search(value, trials=40, progress=False, **options)
    read.clear()
    search(value, trials=41, progress=True, resume=True, **options)
    assert n_read[-1] < 2 * 40, "the best trial is read several times"
    assert "done: 41/41 trials, 1 failed, best 0.5 (trial 0)" in capsys.readouterr().err


def test_the_rest_of_a_deleted_last_trial_is_refused_instead_of_waiting_for_ever(tmp_path):
    url = deleted(tmp_path, 5)
    options = {"space": {"x": Real(0, 1)}, "strategy": "random", "study": "d", "store": url, "progress": False}
    with pytest.raises(StoreError, match="rows of trial 5 were deleted from the table trials, but not from the other"):
        search(lambda trial: trial.parameters["x"], trials=6, resume=True, **options)
    with contextlib.closing(sqlite3.connect(tmp_path / "d.db")) as database:
        for table in ("attempts", "folds", "metrics", "figures_of_merit", "fold_figures_of_merit"):
            database.execute(f"DELETE FROM {table} WHERE trial_id NOT IN (SELECT id FROM trials)")
        database.commit()
    study = search(lambda trial: trial.parameters["x"], trials=6, resume=True, **options)
    assert [trial.number for trial in study.trials] == list(range(6))


def test_a_study_continues_with_a_training_that_is_written_in_another_way(folder, capsys):
    def ask(**changes):
        data = {"train": ["data.h5"], "features": "x", "labels": "y"}
        training = {"model": "model.py:build", "data": data, "optimizer": {"name": "sgd", "learning_rate": "$x"}}
        changed = STUDY | {"objective": "train", "training": training | changes, "folds": 1}
        (folder / "one.yaml").write_text(yaml.safe_dump(changed))
        return run(["ask", "one.yaml"])

    assert ask(loss="mse") == 0
    assert ask(loss={"name": "mse"}) == 0
    assert ask(loss="mae") == 2
    assert "was created with another training: loss: 'mse', now 'mae'" in capsys.readouterr().err


def test_check_reports_the_study_in_the_store_or_why_it_cannot_continue(folder, capsys):
    (folder / "objective.py").write_text("def objective(trial):\n    return 1.0\n")
    assert run(["check", "one.yaml"]) == 0
    assert "exists" not in capsys.readouterr().out
    assert not (folder / "one.db").exists()
    assert run(["ask", "one.yaml"]) == 0
    assert run(["check", "one.yaml"]) == 0
    assert "exists     0 of 2 trials have ended" in capsys.readouterr().out
    (folder / "one.yaml").write_text(yaml.safe_dump(STUDY | {"direction": "maximize"}))
    assert run(["check", "one.yaml"]) == 2
    assert "was created with another direction" in capsys.readouterr().err


def with_belief(folder: Path, expect: dict | None, strategy: str = "bayesian") -> None:
    dimension = STUDY["space"]["x"] | ({} if expect is None else {"expect": expect})
    changed = STUDY | {"space": {"x": dimension}, "search": {"strategy": strategy, "trials": 9}, "folds": 1}
    (folder / "one.yaml").write_text(yaml.safe_dump(changed))


def test_a_study_continues_with_the_beliefs_of_its_file(folder, capsys):
    with_belief(folder, None)
    assert run(["ask", "one.yaml"]) == 0
    for value in (0.8125, 0.3125):
        capsys.readouterr()
        with_belief(folder, {"value": value, "spread": 0.1})
        assert run(["ask", "one.yaml"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["parameters"] == {"x": value}
    for command in ("ask", "check"):
        with_belief(folder, {"value": 0.5}, "random")
        assert run([command, "one.yaml"]) == 2
        assert "random does not use beliefs" in capsys.readouterr().err
    with_belief(folder, None, "random")
    assert run(["ask", "one.yaml"]) == 0


def changed_store(folder: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "one.db")) as database, database:
        for statement in statements:
            database.execute(statement)


def test_check_accepts_a_store_that_search_creates_or_migrates(folder, capsys):
    with_belief(folder, None)
    (folder / "one.db").touch()
    assert run(["check", "one.yaml"]) == 0
    assert not {"exists", "note"} & set(capsys.readouterr().out.split())
    assert run(["ask", "one.yaml"]) == 0
    changed_store(folder, "UPDATE schema_version SET version = version - 1")
    assert run(["check", "one.yaml"]) == 0
    assert "the store has an older schema" in (said := " ".join(capsys.readouterr().out.split()))
    assert "search migrates it" in said


def test_check_without_the_server_of_the_store_says_so(folder, capsys, monkeypatch):
    def refused(url, *, read_only):
        raise StoreUnreachableError("no connection", where=url, cure="start the server")

    monkeypatch.setattr(Store, "open", refused)
    (folder / "one.yaml").write_text(yaml.safe_dump(STUDY | {"store": "postgresql://ada@server/studies"}))
    assert run(["check", "one.yaml"]) == 0
    assert "the file was not compared with the study in postgresql" in capsys.readouterr().out


def test_check_needs_the_earlier_study_only_for_a_new_one(folder, capsys):
    source = {"space": {"x": Real(0, 1)}, "strategy": "random", "study": "source", "store": "sqlite:///source.db"}
    search(lambda trial: trial.parameters["x"], trials=2, progress=False, **source)
    transfer = {"transfer": {"store": "sqlite:///source.db", "best": 1}, "strategy": "bayesian", "trials": 9}
    (folder / "one.yaml").write_text(yaml.safe_dump(STUDY | {"search": transfer}))
    assert run(["ask", "one.yaml"]) == 0
    (folder / "source.db").unlink()
    assert run(["ask", "one.yaml"]) == 0
    assert run(["check", "one.yaml"]) == 0
    assert "transfer   2 trials of an earlier study, the best 1 first" in capsys.readouterr().out
    assert run(["check", "one.yaml", "--study", "new"]) == 2


def test_check_refuses_a_study_of_which_rows_were_deleted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "objective.py").write_text("def objective(trial):\n    return 1.0\n")
    content = STUDY | {"search": {"strategy": "random", "trials": 2}, "folds": 1}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(content))
    searched("one.yaml")
    changed_store(tmp_path, "DELETE FROM trials WHERE number = 1")
    assert run(["check", "one.yaml"]) == 2
    assert "rows of trial 1 were deleted" in capsys.readouterr().err


def test_the_file_of_the_other_program_is_recognised(folder, capsys):
    (folder / "training.yaml").write_text(yaml.safe_dump({"model": "m.py:f", "data": {"train": ["a.h5"]}, "epochs": 2}))
    assert run(["check", "training.yaml"]) == 2
    assert "this is the configuration of a training, not of a search" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="this is the configuration of a search, not of a training"):
        read_configuration(folder / "one.yaml")


@pytest.mark.parametrize("name", ["a\tb", "digits\n", "a\x1b[2Jb", "a\u2028b"])
def test_a_new_study_has_a_name_of_one_line(name, tmp_path):
    store = tmp_path / "a.db"
    with pytest.raises(ConfigurationError, match=re.escape(repr(name))):
        search(lambda trial: 0.0, space={"x": Real(0, 1)}, trials=1, study=name, store=str(store))
    assert not store.exists()


def test_a_study_whose_name_has_a_tab_can_be_read_and_continues(tmp_path, capsys):
    store = str(tmp_path / "a.db")
    options = {"space": {"x": Real(0, 1)}, "strategy": "random", "store": store, "resume": True}
    search(lambda trial: 0.0, trials=1, study="a b", **options)
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE studies SET name = ?", ("a\tb",))
    assert search(lambda trial: 0.0, trials=2, study="a\tb", **options).is_finished
    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        main(["results", "--store", store])
    _, row = capsys.readouterr().out.splitlines()
    assert "\t" not in row
    assert len(Study.open(store, "a\tb").trials) == 2
