"""Hints to a study: points to try next, and narrower ranges."""

import numpy as np
import pytest

from mpi_opt import Categorical, Integer, Real, Study, search
from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.read_study import read_study
from mpi_opt.core.search_space.space import Hint, Space, points_and_limits, points_in
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.study.asking.ask_tell import ask
from mpi_opt.study.hinting import FOLLOWING
from tests.mpi_opt.views.test_commands import program

SPACE = {
    "lr": Real(1e-5, 1, prior="log-uniform"),
    "units": Integer(1, 100),
    "kind": Categorical(["a", "b"]),
    "rate": Real(0, 1, when={"kind": "b"}),
}


def cost(point):
    return (np.log10(point["lr"]) + 1) ** 2 + (point["units"] - 90) ** 2 / 1e3 + (point["kind"] == "a")


def searched(path, n_trials, objective=None, strategy="random"):
    return search(objective or (lambda trial: cost(trial.parameters)), space=SPACE, trials=n_trials, strategy=strategy,
                  study="s", store=f"sqlite:///{path}", progress=False, resume=True)  # fmt: skip


def hint(path, *arguments):
    return program(["hint", "--study", "s", "--store", str(path), *arguments])


@pytest.mark.parametrize("name", FOLLOWING)
def test_a_strategy_tries_the_point_next_and_stays_in_the_ranges(name):
    """The best points are outside of the narrow ranges."""
    strategy, space = make_strategy(name, SPACE, seed=1, guarded=True), Space(SPACE)
    for proposal in strategy.ask(25):
        strategy.tell(proposal, cost(proposal.parameters))
    point = {"lr": 0.5, "units": 7, "kind": "a"}
    strategy.steer([point], {"lr": (1e-4, 1e-3), "units": (20, 30)})
    first, *others = strategy.ask(12)
    assert first.parameters == point
    assert all(1e-4 <= one.parameters["lr"] <= 1e-3 and 20 <= one.parameters["units"] <= 30 for one in others)
    strategy.steer([], {})
    for proposal in others:
        strategy.tell(proposal, cost(proposal.parameters))
    assert not all(1e-4 <= one.parameters["lr"] <= 1e-3 for one in strategy.ask(12))
    assert all(space.check(one.parameters) is None for one in others)


def test_the_last_range_of_a_hyperparameter_counts():
    hints = [Hint(narrow={"x": (0, 1), "y": (2, 3)}), Hint(widen=("x",)), Hint({"z": 1}, {"y": (2, 2.5)})]
    assert points_and_limits(hints) == ([{"z": 1}], {"y": (2, 2.5)})
    assert [Hint.from_text(one.as_text()) for one in hints] == hints


def test_a_running_search_follows_a_hint_and_a_later_one_remembers_it(tmp_path, capsys):
    path = tmp_path / "s.db"
    searched(path, 5)
    best = min(Study.open(str(path), "s").trials, key=lambda one: one.figure_of_merit).parameters
    assert hint(path, "lr=0.01", "units=64") == 0
    assert hint(path, "--narrow", "lr=1e-4..1e-2") == 0
    assert "to try next: lr=0.01, units=64" in capsys.readouterr().out
    seen = []

    def hinting(trial):
        seen.append(trial.parameters)
        if len(seen) == 3:
            assert hint(path, "units=33") == 0
        if len(seen) >= 3:
            import time

            time.sleep(0.6)
        return cost(trial.parameters)

    study = searched(path, 13, hinting)
    assert seen[0] == best | {"lr": 0.01, "units": 64}
    assert all(1e-4 <= point["lr"] <= 1e-2 for point in seen[1:3])
    assert sum(point["units"] == 33 for point in seen) == 1
    assert sum(event.kind == "hint" for event in study.events()) == 3
    assert hint(path, "--widen") == 0
    assert "range of lr: that of the space" in capsys.readouterr().out
    later = searched(path, 40).trials[13:]
    assert not any(one.parameters["units"] == 64 and one.parameters["lr"] == 0.01 for one in later)
    assert not all(1e-4 <= one.parameters["lr"] <= 1e-2 for one in later)


def test_ask_gives_out_the_hinted_point_first(tmp_path):
    study = Study.create(f"sqlite:///{tmp_path}/s.db", "s", SPACE, trials=9, strategy="random")
    assert hint(f"{tmp_path}/s.db", "lr=0.1", "units=3", "kind=a") == 0
    assert study.ask(2)[0].parameters == {"lr": 0.1, "units": 3, "kind": "a"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "the hint is empty"),
        (["lr=7"], "found 7"),
        (["rl=0.1"], "did you mean lr"),
        (["lr"], "expected name=value"),
        (["--narrow", "kind=a..b"], "only the ranges of numbers"),
        (["--narrow", "lr=1e-9..1e-2"], "extend: true"),
        (["--narrow", "lr=0.1"], "expected LOW..HIGH"),
        (["--narrow", "units=3.2..3.8"], "there is no value from 3.2 to 3.8: integer, 1 to 100"),
        (["--narrow", "units=4..3"], "write 3..4"),
        (["--narrow", "units=1234567..3"], "write 3..1234567"),
        (["--widen", "lr=1e-3..1e-1"], "--widen lr"),
        (["kind=a..b"], "write one of these values"),
        (["--narrow", "share=0.11..0.19"], "there is no value from"),
        (["--narrow", "share=0.15..0.15"], "there is no value from"),
        (["--widen"], "no range is narrowed"),
        (["kind=a", "rate=0.5"], "rate does not exist"),
    ],
    ids=str,
)
def test_a_wrong_hint_is_refused_and_not_recorded(tmp_path, capsys, arguments, expected):
    space = SPACE | {"share": Real(0, 1, step=0.1)}
    Study.create(f"sqlite:///{tmp_path}/s.db", "s", space, trials=9, strategy="random")
    assert hint(f"{tmp_path}/s.db", *arguments) == 2
    assert expected in capsys.readouterr().err
    assert not Study.open(f"{tmp_path}/s.db", "s").events()


def test_a_point_that_violates_the_constraints_is_refused(tmp_path, capsys):
    path, options = f"{tmp_path}/s.db", {"constraints": ["lr * units < 10"]}
    study = Study.create(f"sqlite:///{path}", "s", SPACE, trials=9, strategy="random", options=options)
    assert hint(path, "lr=0.9", "units=12") == 2
    assert "violates the constraint lr * units < 10" in capsys.readouterr().err
    assert not study.events() and hint(path, "lr=0.9", "units=11") == 0


def test_a_point_of_a_smaller_space_is_completed_and_not_tried_again(tmp_path):
    """Only the second point has no trial yet when the space is extended."""
    path = f"{tmp_path}/s.db"
    settings = {"strategy": "random", "study": "s", "store": f"sqlite:///{path}", "progress": False}
    space = {"x": Real(0, 1), "n": Integer(1, 9)}
    search(lambda trial: trial.parameters["x"], space=space, trials=2, **settings)
    assert hint(path, "x=0.5", "n=3") == 0
    search(lambda trial: trial.parameters["x"], space=space, trials=4, **settings)
    assert hint(path, "x=0.25", "n=4") == 0
    larger = space | {"rate": Real(0, 1, default=0.75)}
    study = search(lambda trial: trial.parameters["x"], space=larger, trials=8, extend=True, **settings)
    points = [one.parameters for one in study.trials]
    assert points.count({"x": 0.5, "n": 3, "rate": 0.75}) == 1
    assert points[4] == {"x": 0.25, "n": 4, "rate": 0.75}
    assert sum(point["x"] in (0.25, 0.5) for point in points) == 2


def test_ask_completes_a_point_of_a_smaller_space_and_gives_it_out_once(tmp_path):
    path, space = f"{tmp_path}/s.db", {"x": Real(0, 1), "n": Integer(1, 9)}
    study = Study.create(f"sqlite:///{path}", "s", space, trials=20, strategy="random")
    assert hint(path, "x=0.5", "n=3") == 0
    study.ask(1)
    assert hint(path, "x=0.25", "n=4") == 0
    larger = {name: one.entry() for name, one in (space | {"rate": Real(0, 1, default=0.75)}).items()}
    content = {"study": "s", "store": f"sqlite:///{path}", "space": larger, "objective": "external",
               "search": {"strategy": "random", "trials": 20, "extend": True}}  # fmt: skip
    asked = ask(Plan(read_study(content), tmp_path), 5)
    assert asked[0]["parameters"] == {"x": 0.25, "n": 4, "rate": 0.75}
    assert not any(one["parameters"]["x"] in (0.25, 0.5) for one in asked[1:])


def test_points_that_a_space_does_not_have_are_left_out():
    space = Space({"x": Real(0, 1), "kind": Categorical(["a", "b"]), "rate": Real(0, 1, when={"kind": "b"})})
    points = [{"x": 1, "kind": "a"}, {"x": 2.0, "kind": "a"}, {"x": 0.5, "kind": "c"}, {"x": 0.5, "kind": "b"}]
    assert repr(points_in(space, points)) == repr([{"x": 1.0, "kind": "a"}, {"x": 0.5, "kind": "b", "rate": 0.5}])


def test_a_range_is_that_of_the_values_in_it_and_can_be_one_value(tmp_path, capsys):
    space = {"units": Integer(1, 100, step=3), "share": Real(0, 1, step=0.1), "lr": Real(1e-5, 1, prior="log-uniform")}
    study = Study.create(f"sqlite:///{tmp_path}/s.db", "s", space, trials=9, strategy="random")
    narrow = ["--narrow", "units=6..13.5", "--narrow", "share=0.3..0.3", "--narrow", "lr=0.007..0.007"]
    assert hint(f"{tmp_path}/s.db", *narrow) == 0
    assert "range of units: 7 to 13\nrange of share: 0.3 to 0.3" in capsys.readouterr().out
    points = [one.parameters for one in study.ask(9)]
    assert {point["units"] for point in points} == {7, 10, 13}
    assert {(point["share"], point["lr"]) for point in points} == {(0.3, 0.007)}


@pytest.mark.parametrize("name", FOLLOWING)
def test_ranges_without_an_allowed_point_end_no_search(name):
    """Earlier versions recorded ranges without a value."""
    for space in ({"x": Real(0, 1, step=0.1)}, {"x": Real(0, 1)}):
        strategy = make_strategy(name, space, seed=1, options={"constraints": ["x > 0.5"]}, guarded=True)
        for limits in ({"x": (0.11, 0.19)}, {"x": (0.0, 0.0)}):
            strategy.steer([], limits)
            for proposal in strategy.ask(3):
                strategy.tell(proposal, proposal.parameters["x"])
                assert proposal.parameters["x"] > 0.5


def test_points_are_drawn_in_the_ranges_where_accepted_points_are_rare():
    space = Space({"x": Integer(0, 10**6), "y": Integer(0, 10**6)})
    bookkeeping = Bookkeeping(space, Options(constraints=("(x + y) % 500 == 0",)))
    bookkeeping.steer([], {"x": (100, 120)})
    for _ in range(5):
        point = Sampler(space, 1).new_point(bookkeeping)
        assert 100 <= bookkeeping.propose(point).parameters["x"] <= 120


def test_the_points_of_a_finite_space_are_listed_for_all_ranges():
    """The last proposal for each range repeats a point, because no other one is left in it."""
    space = Space({"x": Integer(0, 99)})
    bookkeeping, sampler = Bookkeeping(space, Options(constraints=("x != 7",))), Sampler(space, 1)
    for low, high in ((0, 3), (50, 52), (5, 9)):
        bookkeeping.steer([], {"x": (low, high)})
        allowed = [x for x in range(low, high + 1) if x != 7]
        found = [bookkeeping.propose(sampler.new_point(bookkeeping)).parameters["x"] for _ in range(len(allowed) + 1)]
        assert sorted(found[:-1]) == allowed and found[-1] in allowed


def test_a_range_of_one_real_number_gives_exactly_this_number():
    for space in ({"x": Real(-0.3, 1)}, {"x": Real(1e-5, 1, prior="log-uniform")}):
        for name in FOLLOWING:
            strategy = make_strategy(name, space | {"n": Integer(1, 9)}, seed=1)
            strategy.steer([], {"x": (0.007, 0.007)})
            for proposal in strategy.ask(15):
                assert proposal.parameters["x"] == 0.007
                strategy.tell(proposal, proposal.parameters["n"] * 1.0)
            assert {one.parameters["x"] for one in strategy.ask(3)} == {0.007}


def test_a_strategy_that_follows_no_hints_says_so(tmp_path, capsys):
    Study.create(f"sqlite:///{tmp_path}/s.db", "s", {"x": Real(0, 1, step=0.1)}, trials=9, strategy="grid")
    assert hint(f"{tmp_path}/s.db", "x=0.5") == 2
    assert "grid does not follow hints" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="does not follow hints"):
        make_strategy("grid", {"x": Real(0, 1, step=0.1)}).steer([], {})


OWN = """
from mpi_opt.core.trial import Proposal
from mpi_opt.strategies.strategy import Strategy

class Deaf(Strategy):
    def __init__(self, space, seed=0, options=None):
        self.points, self.n = [], 0

    def ask(self, count):
        self.n += 1
        return [Proposal(self.n - 1, self.points.pop(0) if self.points else {"x": 0.125})]

    def tell(self, proposal, outcome):
        pass

    def resume(self, observed, pending=()):
        self.n = len(list(observed)) + len(list(pending))

class Own(Deaf):
    def steer(self, points, limits):
        self.points = list(points)
"""


@pytest.mark.parametrize(("name", "first"), [("Own", 0.75), ("Deaf", 0.125)])
def test_a_strategy_of_a_user_receives_hints_if_it_can(tmp_path, monkeypatch, capsys, name, first):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    settings = {"space": {"x": Real(0, 1)}, "strategy": f"own.py:{name}", "study": "s", "store": "sqlite:///s.db"}
    search(lambda trial: trial.parameters["x"], trials=2, progress=False, **settings)
    assert hint("s.db", "x=0.75") == 0
    study = search(lambda trial: trial.parameters["x"], trials=4, progress=True, **settings)
    assert [one.parameters["x"] for one in study.trials] == [0.125, 0.125, first, 0.125]
    assert ("hint ignored: " in capsys.readouterr().err) == (name == "Deaf")


def test_a_hint_to_a_store_that_does_not_exist_creates_none(tmp_path):
    assert hint(tmp_path / "other.db", "x=0.5") != 0
    assert not (tmp_path / "other.db").exists()
