"""The best points of an earlier study are mapped to this space and evaluated first."""

import json
import sqlite3

import pytest

from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.read_study import read_study
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.errors import ConfigurationError, StoreError
from mpi_opt.store import Store
from mpi_opt.strategies import STRATEGIES, Transfer, make_strategy
from mpi_opt.study.opening.earlier_study import mapped
from mpi_opt.study.opening.open_study import open_study
from mpi_opt.study.study import Study
from tests.mpi_opt.outcomes import an_end, an_outcome
from tests.mpi_opt.store.made_up import finish, start

EARLIER = Space(
    {
        "rate": Real(1e-4, 1.0, "log-uniform"),
        "units": Integer(16, 256),
        "kind": Categorical(["relu", "tanh"]),
        "old": Real(0, 1),
    }
)
NEW = {
    "rate": {"type": "real", "low": 1e-3, "high": 0.1, "prior": "log-uniform"},
    "units": {"type": "integer", "low": 32, "high": 128, "step": 32},
    "kind": {"type": "categorical", "categories": ["relu", "elu"]},
    "fresh": {"type": "real", "low": 0.0, "high": 1.0},
}
POINTS = [
    ({"rate": 0.5, "units": 50, "kind": "relu", "old": 0.1}, 3.0),
    ({"rate": 0.01, "units": 64, "kind": "tanh", "old": 0.2}, 1.0),
    ({"rate": 0.02, "units": 300, "kind": "relu", "old": 0.3}, 2.0),
    ({"rate": 0.02, "units": 300, "kind": "relu", "old": 0.4}, 2.5),
]


def earlier_study(path, name="before", direction="minimize", points=POINTS, space=EARLIER):
    with Store.open(str(path)) as store:
        study = store.create_study(
            name,
            figures_of_merit=FiguresOfMerit(directions=(direction,)),
            strategy="random",
            seed=1,
            configuration={},
            space=space,
        )
        for number, (parameters, merit) in enumerate(points):
            store.start(study.id, [start(number, parameters)])
            store.finish(study.id, [finish(number, merit)])
        return Study.read(store, name)


def configuration(path, transfer, **search):
    wanted = {"strategy": "random", "trials": 9, "seed": 1, "transfer": transfer} | search
    return read_study(
        {"study": "now", "store": f"sqlite:///{path}", "objective": "o.py:f", "space": NEW, "search": wanted}
    )


def begun(path, transfer, **search):
    with open_study(Plan(configuration(path, transfer, **search), path.parent)) as study:
        return study.strategy


def test_points_are_mapped_to_the_common_hyperparameters_best_first(tmp_path):
    study = earlier_study(tmp_path / "a.db")
    found = mapped(study.record, study.trials, read_study(configuration_dict()).search_space(), FiguresOfMerit())
    assert [(one.parameters, one.figure_of_merit) for one in found] == [
        ({"rate": pytest.approx(0.01), "units": 64}, 1.0),
        ({"rate": pytest.approx(0.02), "units": 128, "kind": "relu"}, 2.0),
        ({"rate": 0.1, "units": 64, "kind": "relu"}, 3.0),
    ]


def configuration_dict():
    return {"objective": "o.py:f", "space": NEW}


def test_best_of_a_study_that_maximises_are_the_largest(tmp_path):
    study = earlier_study(tmp_path / "a.db", direction="maximize")
    found = mapped(study.record, study.trials, read_study(configuration_dict()).search_space(), FiguresOfMerit())
    assert [one.figure_of_merit for one in found] == [-3.0, -2.5, -1.0]


@pytest.mark.parametrize(
    ("names", "directions", "best"),
    [
        (("seconds",), ("minimize",), [(4, 1.0), (3, 2.0), (1, 3.0), (2, 9.0), (6, 9.5)]),  # the figure of this name
        (("seconds",), ("maximize",), [(4, -1.0), (3, -2.0), (1, -3.0), (2, -9.0), (6, -9.5)]),
        (
            ("loss",),
            ("minimize",),
            [(2, -0.9), (1, -0.8), (6, -0.75), (3, -0.7), (4, -0.2)],
        ),  # or the first
        (("accuracy", "seconds"), ("maximize", "minimize"), [(2, 0.9), (1, 0.8), (3, 0.7), (4, 0.2), (6, 0.75)]),
    ],
)
def test_study_with_several_figures_of_merit_is_ranked_by_that_of_the_new_study(tmp_path, names, directions, best):
    two = FiguresOfMerit(("accuracy", "seconds"), ("maximize", "minimize"))
    space = Space({"units": Integer(1, 9)})
    figures = {1: (0.8, 3.0), 2: (0.9, 9.0), 3: (0.7, 2.0), 4: (0.2, 1.0), 5: None, 6: (0.75, 9.5)}  # 2 dominates 6
    with Store.open(str(tmp_path / "a.db")) as store:
        study = store.create_study("a", figures_of_merit=two, strategy="random", seed=1, configuration={}, space=space)
        for units, values in figures.items():
            store.start(study.id, [start(units, {"units": units})])
            failed = an_outcome(units, "failed", error="it failed")
            outcome = failed if values is None else an_outcome(units, "complete", two.read(values))
            store.finish(study.id, [an_end(outcome, 1, 0)])
        earlier = Study.read(store, "a")
    found = mapped(earlier.record, earlier.trials, space, FiguresOfMerit(names, directions))
    assert [(one.parameters["units"], one.figure_of_merit) for one in found] == best


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_tries_the_best_points_first(name, tmp_path):
    earlier_study(tmp_path / "a.db")
    strategy = begun(tmp_path / "b.db", {"store": str(tmp_path / "a.db"), "best": 2}, strategy=name)
    first, second, third = strategy.ask(3)
    assert (first.parameters["rate"], first.parameters["units"]) == (pytest.approx(0.01), 64)
    assert {**second.parameters, "fresh": 0} == {"rate": pytest.approx(0.02), "units": 128, "kind": "relu", "fresh": 0}
    assert third.parameters["rate"] != 0.1


def test_users_own_points_come_before_and_constraints_hold(tmp_path):
    earlier_study(tmp_path / "a.db")
    own = {"rate": 0.05, "units": 96, "kind": "elu", "fresh": 0.5}
    options = {"initial": [own], "constraints": ["units < 128"]}
    strategy = begun(tmp_path / "b.db", str(tmp_path / "a.db"), options=options)
    asked = [proposal.parameters for proposal in strategy.ask(3)]
    assert asked[0] == own
    assert [point["units"] for point in asked[1:]] == [64, 64]


def test_a_known_point_that_the_earlier_study_tried_does_not_count_as_one_of_its_best():
    transfer = Transfer([{"x": 0.5}, {"x": 0.25}, {"x": 0.75}], best=1)
    options = {"initial": [{"x": 0.5}]}
    strategy = make_strategy("random", Space({"x": Real(0, 1)}), seed=1, options=options, transfer=transfer)
    assert [proposal.parameters["x"] for proposal in strategy.ask(2)] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"initial": 5}, "initial"),
        ({"constraints": [3]}, "constraints"),
        ({"constraints": "units < 128"}, "constraints"),
    ],
)
def test_invalid_options_are_refused_as_without_transfer(tmp_path, options, problem):
    earlier_study(tmp_path / "a.db")
    with pytest.raises(ConfigurationError, match=rf"search\.options\.{problem}"):
        begun(tmp_path / "b.db", str(tmp_path / "a.db"), options=options)


def test_study_continues_with_its_copy_after_the_earlier_study_is_removed(tmp_path):
    earlier_study(tmp_path / "a.db")
    before = begun(tmp_path / "b.db", str(tmp_path / "a.db")).ask(4)
    (tmp_path / "a.db").unlink()
    assert begun(tmp_path / "b.db", None).ask(4) == before
    assert begun(tmp_path / "b.db", str(tmp_path / "a.db")).ask(4) == before
    with Store.open(str(tmp_path / "b.db"), read_only=True) as store:
        rows = store.sql("SELECT position, figure_of_merit FROM transferred ORDER BY position")[1]
    assert rows == [(0, 1.0), (1, 2.0), (2, 3.0)]


def test_another_study_of_the_same_store_can_be_transferred(tmp_path):
    earlier_study(tmp_path / "a.db")
    assert begun(tmp_path / "a.db", {"study": "before"}).ask(1)[0].parameters["units"] == 64
    assert begun(tmp_path / "a.db", {}).ask(1)[0].parameters["units"] == 64


@pytest.mark.parametrize(
    ("transfer", "kind", "problem"),
    [
        ("none.db", StoreError, "there is no such file"),
        ({"store": "a.db", "study": "nobody"}, StoreError, "there is no study 'nobody'"),
        (
            {"store": "two.db"},
            ConfigurationError,
            "expected the name of a study, found several in sqlite:///.*two.db: before, second",
        ),
        ({}, ConfigurationError, "there is no other study"),
        ({"store": "b.db", "study": "now"}, ConfigurationError, "cannot be transferred to itself"),
        ({"store": "other.db"}, ConfigurationError, "no hyperparameter in common"),
        ({"store": "empty.db"}, ConfigurationError, "no complete trial"),
    ],
)
def test_invalid_transfer_is_refused_before_the_study_is_created(transfer, kind, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "two"):
        earlier_study(f"{name}.db")
    earlier_study("two.db", "second")
    earlier_study("other.db", points=[({"rate": "high"}, 1.0)], space=Space({"rate": Categorical(["high", "low"])}))
    earlier_study("empty.db", points=[])
    with pytest.raises(kind, match=problem) as caught:
        begun(tmp_path / "b.db", transfer)
    assert caught.value.cure
    with Store.open(str(tmp_path / "b.db")) as store:
        assert store.studies() == []


def test_transfer_to_a_study_that_began_without_it_is_refused(tmp_path):
    earlier_study(tmp_path / "a.db")
    begun(tmp_path / "b.db", None)
    with pytest.raises(ConfigurationError, match="was created without this key"):
        begun(tmp_path / "b.db", str(tmp_path / "a.db"))


def test_bayesian_with_an_earlier_study_proposes_the_same_after_resuming():
    space = Space({"a": Real(0, 1), "b": Real(0, 1)})
    transfer = Transfer([{"a": 0.1 * number, "b": 0.3} for number in range(9)])

    def made():
        return make_strategy("bayesian", space, seed=3, options={"initial_points": 6}, transfer=transfer)

    living, resumed, ended = made(), made(), []
    for _ in range(9):
        proposal = living.ask(1)[0]
        ended.append((proposal, sum(value**2 for value in proposal.parameters.values())))
        living.tell(*ended[-1])
    resumed.resume(ended)
    assert resumed.ask(1) == living.ask(1)


def test_values_of_another_direction_change_their_sign(tmp_path):
    study = earlier_study(tmp_path / "a.db")
    found = mapped(
        study.record,
        study.trials,
        read_study(configuration_dict()).search_space(),
        FiguresOfMerit(directions=("maximize",)),
    )
    assert [one.figure_of_merit for one in found] == [-1.0, -2.0, -3.0]


def test_a_study_that_was_created_with_the_former_key_learn_continues(tmp_path):
    earlier_study(tmp_path / "a.db")
    before = begun(tmp_path / "b.db", str(tmp_path / "a.db")).ask(2)
    with sqlite3.connect(tmp_path / "b.db") as database:
        (text,) = database.execute("SELECT configuration FROM studies").fetchone()
        content = json.loads(text)
        content["search"]["transfer"]["learn"] = True
        database.execute("UPDATE studies SET configuration = ?", [json.dumps(content)])
    assert begun(tmp_path / "b.db", None).ask(2) == before
