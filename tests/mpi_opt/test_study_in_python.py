"""A study in Python: ask and tell, trials of elsewhere, notes, and how it is shown."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mpi_learn
import mpi_opt
from mpi_opt import Categorical, Integer, Real, Study, search
from mpi_opt.errors import StoreError, UserError
from mpi_opt.store import Store
from mpi_opt.strategies import make_strategy
from mpi_opt.study.asking.by_hand import plan_of
from mpi_opt.study.opening.announcement import n_to_run
from mpi_opt.views.page.report import report
from mpi_opt.views.text import tables
from tests.mpi_opt.store.made_up import make_study
from tests.optional_packages import needs

SPACE = {
    "x": Real(0, 1),
    "optimizer": Categorical(["sgd", "adam"]),
    "layers": Integer(1, 5, when={"optimizer": "sgd"}),
    "units": Integer(8, 64),
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'a.db'}"


@pytest.fixture
def study(url: str) -> Study:
    return Study.create(url, "hand", SPACE, trials=8, strategy="random", seed=3)


def test_trials_are_asked_for_and_told_from_python(study: Study, url: str) -> None:
    asked = study.ask(3)
    strategy = make_strategy("random", study.space, seed=3, options={})
    assert [trial.parameters for trial in asked] == [proposal.parameters for proposal in strategy.ask(3)]
    assert [(t.number, t["attempt"], t["study"]) for t in asked] == [(0, 1, "hand"), (1, 1, "hand"), (2, 1, "hand")]
    assert json.loads(json.dumps(asked)) == asked and asked[0].seed == asked[0]["seed"]
    assert [trial.state for trial in study.trials] == ["running"] * 3
    study.tell(np.int64(2), np.float32(0.25), uncertainty=np.float64(0.5))
    study.tell(asked[0].number, failed="the disk is full")
    study.tell(1, lost="the node was shut down")
    assert [(t.state, t.figure_of_merit, t.uncertainty) for t in study.trials] == [
        ("failed", None, None),
        ("queued", None, None),
        ("complete", 0.25, 0.5),
    ]
    assert study.best.number == 2 and study.trials == Study.open(url, "hand").trials
    assert [(trial.number, trial["attempt"]) for trial in study.ask(1)] == [(1, 2)]


def test_study_of_python_ends_with_its_trials_and_is_found_again(study: Study, url: str) -> None:
    while asked := study.ask(3):
        for trial in asked:
            study.tell(trial.number, trial.parameters["x"])
    assert study.is_finished and len(study.trials) == 8
    again = Study.create(url, "hand", SPACE, trials=8, strategy="random", seed=3)
    assert again.trials == study.trials and again.is_finished
    with pytest.raises(UserError, match="another space"):
        Study.create(url, "hand", {"x": Real(0, 2)})


def test_search_and_asking_continue_each_other(url: str) -> None:
    options = {"space": {"x": Real(0, 1)}, "strategy": "random", "study": "both", "store": url, "progress": False}
    found = search(lambda t: t.parameters["x"], trials=2, **options)
    assert found.ask(2) == []  # all of its trials have been given out
    found.add_trial({"x": 0.5}, -1.0)
    found = search(lambda t: t.parameters["x"], trials=5, **options)
    assert found.best.number == 2 and [t.number for t in found.trials] == list(range(5))
    alone = make_strategy("random", found.space, seed=7, options={}).ask(2)
    assert [t.parameters for t in found.trials[:2]] == [proposal.parameters for proposal in alone]


def test_study_records_the_commands_that_ran_its_trials(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"space": {"x": Real(0, 1)}, "strategy": "random", "study": "both", "store": url, "progress": False}
    for script, trials in (("first.py", 2), ("repeated.py", 2), ("second.py", 3)):
        monkeypatch.setattr(sys, "orig_argv", ["python", script])
        found = search(lambda t: t.parameters["x"], trials=trials, resume=True, **options)
    assert found.record.commands == ("python first.py", "python second.py")  # the other one ran no trial
    monkeypatch.setattr(sys, "orig_argv", ["python", "asking.py"])
    study = Study.create(url, "asked", {"x": Real(0, 1)}, strategy="random")
    assert study.record.commands == ()
    study.ask(1)
    assert study.record.commands == ("python asking.py",)


def test_trial_of_elsewhere_is_added_and_learnt_from(study: Study) -> None:
    point = {"x": np.float64(0.5), "optimizer": "sgd", "layers": np.int64(2), "units": 8}
    assert study.add_trial(point, 0.125, uncertainty=0.5) == 0
    (trial,) = study.trials
    assert (trial.state, trial.figure_of_merit, trial.uncertainty) == ("complete", 0.125, 0.5)
    assert trial.parameters == {"x": 0.5, "optimizer": "sgd", "layers": 2, "units": 8}
    assert [type(value) for value in trial.parameters.values()] == [float, str, int, int]
    assert study.ask(1)[0].number == 1


@pytest.mark.parametrize("told", [1.0, [1.0], {"loss": 1.0, "cost": 2.0}])
def test_values_that_do_not_fit_several_figures_name_them(url: str, told) -> None:
    study = Study.create(url, "s", {"x": Real(0, 1)}, figure_of_merit=["loss", "rate"], direction=["minimize"] * 2)
    study.ask(1)
    with pytest.raises(
        UserError, match=r"expected 2 numbers, for loss and rate; found .*\n.*'loss': 0.25, 'rate': 0.25"
    ):
        study.tell(0, told)
    with pytest.raises(UserError, match="value of rate: expected a finite number, found inf"):
        study.tell(0, {"loss": 1.0, "rate": float("inf")})
    study.tell(0, {"rate": np.float32(2.0), "loss": 1})
    assert study.trials[0].figures_of_merit == {"loss": 1.0, "rate": 2.0}


OWN_LOOP = """
from mpi_opt import Real, Study
study = Study.create("sqlite:///own.db", "own", {"x": Real(-5, 10)}, trials=6, strategy="random")
study.add_trial({"x": 3}, 1.2)
study.add_trial({"x": 3}, 1.3)
study.add_trial({"x": 3}, 1.3, 0.1)
while asked := study.ask(2):
    for trial in asked:
        calls.append(trial.number)
        if len(calls) == stop_after:
            raise KeyboardInterrupt
        study.tell(trial.number, trial.parameters["x"] ** 2)
"""


def test_a_script_with_a_loop_of_its_own_can_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[int] = []
    exec(OWN_LOOP, {"calls": calls, "stop_after": 0})
    study = Study.open("own.db", "own")
    exec(OWN_LOOP, {"calls": calls, "stop_after": 0})
    again = Study.open("own.db", "own")
    assert (again.trials, again.is_finished) == (study.trials, True)
    assert calls == [3, 4, 5] and [trial.figure_of_merit for trial in study.trials[:3]] == [1.2, 1.3, 1.3]
    assert again.add_trial({"x": 3.0}, 1.3) == 1


def test_equal_categories_of_different_types_are_different_points(url: str) -> None:
    study = Study.create(url, "s", {"k": Categorical([1, True])}, trials=6, strategy="random")
    assert [study.add_trial({"k": kind}, 0.5) for kind in (1, True, 1, True)] == [0, 1, 0, 1]


def test_waiting_trials_are_announced_unless_the_target_is_reached(url: str) -> None:
    study = Study.create(url, "s", {"x": Real(0, 1)}, trials=2, strategy="random")
    first, second = study.ask(2)
    study.tell(first.number, 1.0)
    study.tell(second.number, lost="stopped")
    for changes, expected in (({"trials": 1}, 1), ({"target": 0.9}, 1), ({"target": 1.0}, 0)):
        search = study.record.configuration["search"] | changes
        plan = plan_of(replace(study.record, configuration=study.record.configuration | {"search": search}), url)
        with Store.open(url) as store:
            assert n_to_run(plan, study.record, store) == expected


def test_study_with_the_former_key_learn_of_a_transfer_continues(url: str) -> None:
    study = Study.create(url, "s", {"x": Real(0, 1)}, trials=2, strategy="random")
    search = study.record.configuration["search"] | {
        "transfer": {"store": "old.db", "study": None, "best": 5, "learn": True}
    }
    plan = plan_of(replace(study.record, configuration=study.record.configuration | {"search": search}), url)
    assert plan.configuration.search.transfer.best == 5


def test_adding_the_result_of_a_trial_that_a_search_has_run_is_a_new_trial(url: str) -> None:
    options = {"space": {"x": Real(0, 1)}, "strategy": "random", "study": "both", "store": url, "progress": False}
    study = search(lambda t: t.parameters["x"], trials=1, **options)
    assert study.add_trial(study.trials[0].parameters, study.trials[0].figure_of_merit) == 1


def test_an_interrupted_loop_continues_and_says_which_trial_it_has_left_running(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        exec(OWN_LOOP, {"calls": calls, "stop_after": 1})
    with pytest.warns(UserWarning, match=r"trials 3, 4 are still running; .* study.tell\(3, lost=\"why\"\)"):
        exec(OWN_LOOP, {"calls": calls, "stop_after": 0})
    study = Study.open("own.db", "own")
    for number in (3, 4):
        study.tell(number, lost="interrupted")
    with warnings.catch_warnings(action="error"):
        exec(OWN_LOOP, {"calls": calls, "stop_after": 0})
    assert Study.open("own.db", "own").is_finished and calls == [3, 5, 3, 4]


@pytest.mark.parametrize("strategy", ["bayesian", "evolutionary", "sobol", "constructive"])
def test_strategies_continue_after_a_trial_of_elsewhere(url: str, strategy: str) -> None:
    study = Study.create(url, "s", {"x": Real(0, 1)}, trials=6, strategy=strategy)
    study.add_trial({"x": 1}, 3.0)
    while asked := study.ask(2):
        for trial in asked:
            study.tell(trial.number, trial.parameters["x"])
    assert study.is_finished and [trial.number for trial in study.trials] == list(range(6))
    assert type(study.trials[0].parameters["x"]) is float


def test_several_figures_of_merit_are_told_by_name_or_in_order(url: str) -> None:
    options = {"direction": ["minimize", "maximize"], "figure_of_merit": ["loss", "rate"], "strategy": "random"}
    study = Study.create(url, "two", {"x": Real(0, 1)}, trials=9, **options)
    study.add_trial({"x": 0.5}, {"rate": 7.0, "loss": 1.0})
    study.add_trial({"x": 0.25}, np.array([2.0, 5.0]))
    assert [trial.figures_of_merit for trial in study.trials] == [{"loss": 1, "rate": 7}, {"loss": 2, "rate": 5}]
    assert [trial.number for trial in study.pareto()] == [0]
    assert "minimize loss, maximize rate" in repr(study)


GOOD = {"x": 0.5, "optimizer": "adam", "units": 8}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s: s.add_trial(GOOD | {"x": 1.5}, 1.0), "x: 1.5 is outside of"),
        (lambda s: s.add_trial({"x": 0.5}, 1.0), "'optimizer' is missing"),
        (lambda s: s.add_trial(GOOD | {"layers": 2}, 1.0), "does not exist for these values"),
        (lambda s: s.add_trial(GOOD, float("nan")), "expected a finite number"),
        (lambda s: s.add_trial(GOOD, None), "exactly one of"),
        (lambda s: s.add_trial(GOOD, [1.0, 2.0]), "expected one number"),
        (lambda s: s.tell(7, 1.0), "there is no trial 7"),
        (lambda s: s.add_trial(3, 1.0), "parameters: expected a mapping from names to values, found 3"),
        (lambda s: s.add_trial(GOOD, -1.0, "large"), r"uncertainty: expected one number, found 'large'"),
        (lambda s: s.tell(True, 1.0), "number: expected a whole number of 0 or more, found True"),
        (lambda s: s.tell(0), r'found none of them\n.*study.tell\(0, 0.25\), study.tell\(0, failed="why"\)'),
        (lambda s: s.tell(0, 1.0, failed="x"), "found value and failed"),
        (lambda s: s.tell(0, 1.0, -0.5), "uncertainty: expected a finite number of 0 or more, found -0.5"),
        (lambda s: s.tell(0, np.nan), r'value: expected a finite number, found nan\n.*failed="the loss is nan"'),
        (lambda s: s.tell(0, "0.5"), "value: expected one number, found '0.5'"),
        (lambda s: s.tell(0, 1j), "value: expected one number, found 1j"),
        (lambda s: s.tell(0, failed=3), "failed: expected the reason as a text, found 3"),
        (lambda s: s.tell(0, failed="x", uncertainty=1.0), "a trial without a value has none"),
        (lambda s: s.tell("0", 1.0), "number: expected a whole number of 0 or more, found '0'"),
        (lambda s: s.ask(1.5), "count: expected a whole number of 0 or more, found 1.5"),
        (lambda s: s.note(0, 3), "text: expected a text, found 3"),
        (lambda s: s.note(7, "?"), "there is no trial 7"),
    ],
)
def test_invalid_call_is_refused_and_changes_nothing(study: Study, url: str, wrong, message: str) -> None:
    study.ask(1)
    with pytest.raises(UserError, match=message) as caught:
        wrong(study)
    assert "JSON" not in str(caught.value) and "section of keys" not in str(caught.value) and ": 5`" not in str(caught)
    assert [trial.state for trial in Study.open(url, "hand").trials] == ["running"]


@pytest.mark.parametrize(("strategy", "options"), [("halving", {"max_budget": 9}), ("random", {"reproducible": True})])
def test_strategy_that_learns_from_its_own_trials_only_refuses_others(url: str, strategy: str, options: dict) -> None:
    study = Study.create(url, "own", {"x": Real(0, 1)}, strategy=strategy, options=options)
    with pytest.raises(UserError, match="learns from its own trials only"):
        study.add_trial({"x": 0.5}, 1.0)
    assert Study.open(url, "own").trials == []


def test_store_in_memory_is_refused_before_a_study_is_created() -> None:
    with pytest.raises(UserError, match="in memory"):
        Study.create("sqlite://", "a", {"x": Real(0, 1)})


@needs("pandas")
def test_notes_are_shown_everywhere_and_are_absent_without_one(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "b.db")) as store:
        make_study(store, n_trials=12)
    study = Study.open(str(tmp_path / "b.db"), "digits")
    assert "note" not in tables.trials_table(study.record, study.ranked()).splitlines()[0].split()
    study.note(study.best.number, "  the seed of <paper>\n")
    study.note(3, "wrong")
    study.note(3, "")
    assert [trial.number for trial in study.trials if trial.note is not None] == [study.best.number]
    assert study.best.note == "the seed of <paper>"
    header, first, *_ = tables.trials_table(study.record, study.ranked()).splitlines()
    assert header.endswith("note") and first.endswith("the seed of <paper>")
    assert "note" in tables.trial_page(study.record, study.best, [], [], [])
    page = report(study)
    assert "<td>the seed of &lt;paper&gt;</td>" in page and '"the seed of \\u003cpaper>"' in page
    assert "the seed of &lt;paper&gt;" in study._repr_html_()
    assert study.dataframe()["note"].notna().sum() == 1


def test_representation_has_a_few_lines(study: Study, url: str) -> None:
    lines = repr(study).splitlines()
    assert lines == [
        f"Study 'hand' in {study.store}: not finished",
        "  no trials; minimize figure of merit; strategy random",
    ]
    study.add_trial(GOOD, 0.125, 0.01)
    study.ask(1)
    _, *lines = repr(study).splitlines()
    assert lines == [
        "  2 trials: 1 complete, 1 running; minimize figure of merit; strategy random",
        "  best: trial 0, figure of merit 0.125 ± 0.01",
        "  x=0.5, optimizer=adam, units=8",
    ]
    assert study._repr_html_().startswith(f"<div>Study &#x27;hand&#x27; in {study.store}: not finished<br>2 trials:")


@needs("pandas")
def test_data_frame_has_numbers_and_times(study: Study) -> None:
    import pandas

    study.add_trial({"x": 1, "optimizer": "sgd", "layers": 2, "units": 8}, 1)
    study.add_trial(GOOD, 0.5)
    study.tell(study.ask(1)[0].number, failed="no")
    frame = study.dataframe()
    kinds = {name: frame[name].dtype.kind for name in frame}
    assert {name for name, kind in kinds.items() if kind == "f"} == {
        "figure_of_merit",
        "uncertainty",
        "duration_s",
        "x",
        "layers",
    }
    assert {name for name, kind in kinds.items() if kind == "i"} == {"number", "units", "attempts"}
    for name in ("started_at", "finished_at"):
        assert isinstance(frame[name].dtype, pandas.DatetimeTZDtype) and str(frame[name].dt.tz) == "UTC"
        texts = [getattr(trial, name) for trial in study.trials]
        assert [time.isoformat(timespec="microseconds") for time in frame[name]] == texts
    assert frame["layers"].tolist()[0] == 2 and np.isnan(frame["layers"][1]) and np.isnan(frame["figure_of_merit"][2])


@needs("pandas")
def test_data_frame_without_trials_or_with_integers_beyond_floats_loses_nothing(url: str) -> None:
    study = Study.create(url, "few", SPACE | {"far": Integer(0, 2**60, when={"optimizer": "sgd"})})
    assert study.dataframe()[["x", "layers"]].dtypes.tolist() == [float, float]
    study.add_trial(GOOD, 0.5)  # all integers are inactive but one
    assert study.dataframe()[["x", "layers"]].dtypes.tolist() == [float, float]
    study.add_trial({"x": 1, "optimizer": "sgd", "layers": 2, "units": 8, "far": 2**60 - 1}, 1)
    assert study.dataframe()["far"][1] == 2**60 - 1


def test_public_names_are_listed() -> None:
    assert {"Categorical", "Integer", "Real", "Study", "Trial", "search"} <= set(dir(mpi_opt))
    assert {"Result", "read_configuration", "train"} <= set(dir(mpi_learn))
    for package in (mpi_opt, mpi_learn):
        assert dir(package) == sorted(package.__all__)
        assert all(getattr(package, name) is not None for name in dir(package))


def test_the_front_of_one_figure_of_merit_is_all_trials_with_the_best_value(url: str) -> None:
    study = Study.create(url, "ties", {"x": Real(0, 1)}, trials=9, strategy="random")
    for x, value in [(0.1, 2.0), (0.2, 1.0), (0.3, 1.0)]:
        study.add_trial({"x": x}, value)
    assert [trial.number for trial in study.pareto()] == [1, 2]


def test_reading_a_study_never_opens_its_store_for_writing(study: Study, url: str, monkeypatch) -> None:
    opened: list[bool] = []
    real = Store.open

    def noted(*arguments, read_only: bool = False, **more):
        opened.append(read_only)
        return real(*arguments, read_only=read_only, **more)

    study.ask(1)
    monkeypatch.setattr(Store, "open", noted)
    for read in (study.folds, study.curves, study.attempts, study.events, study.codes, study._read_again):
        read()
    assert opened == [True] * 6
    with Store.open(url, read_only=True) as store, pytest.raises(UserError, match="read"):
        store.note(study.record.id, 0, "no")
    study.note(0, "yes")
    assert Study.open(url, "hand").trials[0].note == "yes"


def test_a_store_may_be_a_path(tmp_path):
    file = tmp_path / "s.db"
    Study.create(file, "created", {"x": Real(0, 1)}).add_trial({"x": 0.5}, 2.0)
    search(lambda trial: 1.0, space={"x": Real(0, 1)}, trials=1, study="searched", store=file, progress=False)
    assert [Study.open(file, name).best.figure_of_merit for name in ("created", "searched")] == [2.0, 1.0]
    with pytest.raises(StoreError, match="expected the URL of a database, found 5") as refused:
        Study.open(5, "created")
    assert refused.value.cure == "write sqlite:///results.db"
