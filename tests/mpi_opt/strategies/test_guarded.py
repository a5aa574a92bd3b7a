"""Exceptions inside of a strategy: the search goes on with random points, and with the strategy when it works again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpi_opt
from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.read_study import read_study
from mpi_opt.core.search_space.space import Integer, Real, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError, SearchFailed
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.strategy import Decision, Strategy
from mpi_opt.strategies.surrogates.fitting import Surrogate
from mpi_opt.strategies.surrogates.proposing.prepared_proposals import PreparedProposals
from mpi_opt.strategies.surrogates.rung_model import RungModel
from mpi_opt.strategies.wrappers import Guarded
from mpi_opt.study.asking import ask_tell
from mpi_opt.study.asking.external_results import read_results
from mpi_opt.testing.strategy_tests import cost, run

SPACE = Space({"x": Real(0, 1), "n": Integer(1, 9)})


class Fragile(Strategy):
    """Proposes x = 0.25; raises in the calls whose names are in `broken`."""

    broken: set[str] = set()  # noqa: RUF012 - shared by all that the guard makes
    made: list[Fragile] = []  # noqa: RUF012

    def __init__(self, space=None, seed=0, options=None):
        self.check("__init__")
        self.told, self.pending, self.next = [], [], 0
        self.made.append(self)

    def check(self, name):
        if name in self.broken:
            raise np.linalg.LinAlgError("no factor\nmore")

    def ask(self, count):
        self.check("ask")
        self.next += count
        return [Proposal(number, {"x": 0.25, "n": 1}) for number in range(self.next - count, self.next)]

    def tell(self, proposal, outcome):
        self.check("tell")
        self.told.append((proposal, outcome))

    def resume(self, observed, pending=()):
        self.check("resume")
        self.told, self.pending = list(observed), list(pending)
        self.next = len(self.told) + len(self.pending)

    def report(self, proposal, step, value):
        self.check("report")
        return Decision.STOP

    @property
    def finished(self):
        self.check("finished")
        return False


class Steered(Fragile):
    """Proposes the points of hints first, and says where the others are."""

    points, limits = (), None

    def steer(self, points, limits):
        self.check("steer")
        self.points, self.limits = list(points), limits

    def ask(self, count):
        proposals = super().ask(count)
        return [replace(one, parameters=self.points.pop(0)) if self.points else one for one in proposals]


HINTS = [{"x": 0.5, "n": 2}, {"x": 0.5, "n": 3}, {"x": 0.5, "n": 4}, {"x": 0.5, "n": 5}]


def test_random_points_and_the_next_strategy_follow_hints_once():
    strategy = Guarded("steered", Steered, SPACE, 3)
    strategy.steer(HINTS[:3], {"n": (6, 7)})
    (first,) = strategy.ask(1)
    strategy.tell(first, 1.0)
    Fragile.broken = {"ask"}
    second, third, fourth = strategy.ask(3)
    assert [one.parameters for one in (first, second, third)] == HINTS[:3]
    assert is_random(fourth) and 6 <= fourth.parameters["n"] <= 7
    strategy.steer(HINTS, {"n": (8, 9)})
    fifth, sixth = strategy.ask(2)
    assert fifth.parameters == HINTS[3] and sixth.parameters["n"] >= 8
    Fragile.broken = set()
    for proposal in (second, third):
        strategy.tell(proposal, 1.0)
    assert [one.parameters["n"] for one in strategy.ask(2)] == [1, 1]  # of the strategy, which is in use again
    assert (Fragile.made[-1].points, Fragile.made[-1].limits) == ([], {"n": (8, 9)})


def test_a_new_strategy_that_cannot_follow_hints_ends_no_search():
    strategy = guarded()
    (first,) = strategy.ask(1)
    Fragile.broken = {"ask"}
    (second,) = strategy.ask(1)
    strategy.steer(HINTS, {})
    Fragile.broken = set()
    for proposal in (first, second):
        strategy.tell(proposal, 1.0)
    assert not is_random(strategy.ask(1)[0])
    assert any("does not follow hints" in problem for problem in strategy.problems())


@pytest.fixture(autouse=True)
def fragile():
    Fragile.broken, Fragile.made = set(), []
    return Fragile


def guarded(**options) -> Guarded:
    return Guarded("fragile", Fragile, SPACE, 3, **options)


def is_random(proposal) -> bool:
    SPACE.check(proposal.parameters)
    return proposal.parameters["x"] != 0.25


@pytest.mark.parametrize("method", ["ask", "tell", "report", "finished", "resume", "__init__"])
def test_after_an_exception_proposals_are_random_until_the_strategy_works_again(method, fragile):
    fragile.broken = {"tell", method}
    strategy = guarded()
    first, second = strategy.ask(2)
    assert strategy.report(first, 0, 1.0) in (Decision.CONTINUE, Decision.STOP)
    assert strategy.finished is False
    strategy.tell(first, 0.5)
    (third,) = strategy.ask(1)
    assert is_random(third) or method in ("tell", "report", "finished")
    fragile.broken = set()
    strategy.tell(second, Failed("no"))
    strategy.tell(third, 0.25)
    (fourth,) = strategy.ask(1)
    assert [proposal.number for proposal in (first, second, third, fourth)] == [0, 1, 2, 3]
    assert not is_random(fourth)
    assert fragile.made[-1].told == [(first, 0.5), (second, Failed("no")), (third, 0.25)]


def test_pending_trials_are_passed_to_the_new_strategy(fragile):
    strategy = guarded()
    first, second = strategy.ask(2)
    fragile.broken = {"tell"}
    strategy.tell(first, 0.5)
    (third,) = strategy.ask(1)
    fragile.broken = set()
    strategy.tell(third, 0.5)
    assert strategy.ask(1)[0].number == 3
    assert fragile.made[-1].pending == [second]


def test_a_strategy_that_always_fails_is_made_a_few_times_only(fragile):
    fragile.broken = {"resume", "ask"}
    asked, _ = run(strategy := guarded(), SPACE, 200, outcome=lambda p: 0.5)
    assert len({proposal.parameters["x"] for proposal in asked}) == 200
    assert 5 <= len(fragile.made) <= 10
    problems = strategy.problems()
    assert [problem.partition("\n")[0].partition(" (")[0] for problem in problems] == [
        "fragile: ask raised LinAlgError: no factor",
        "fragile: resume raised LinAlgError: no factor",
    ]
    assert problems[0].partition("\n")[0].endswith("; the next points are random")
    assert 'raise np.linalg.LinAlgError("no factor' in problems[0]
    assert strategy.problems() == []


def test_random_points_satisfy_the_constraints_and_do_not_repeat(fragile):
    fragile.broken = {"ask"}
    space = Space({"n": Integer(1, 9)})
    strategy = Guarded("fragile", Fragile, space, 3, ["n > 4"])
    asked, _ = run(strategy, space, 5, outcome=lambda p: 0.5)
    assert sorted(proposal.parameters["n"] for proposal in asked) == [5, 6, 7, 8, 9]


def test_errors_of_this_project_reach_the_caller():
    strategy = make_strategy("random", SPACE, options={"constraints": ["x > 2"]}, guarded=True)
    with pytest.raises(SearchFailed, match="satisfies"):
        strategy.ask(1)


@pytest.mark.parametrize("method", ["ask", "__init__"])
def test_a_strategy_of_the_user_that_fails_at_once_is_an_error(fragile, method):
    fragile.broken = {method}
    with pytest.raises(ConfigurationError, match=rf"Fragile: {method} raised LinAlgError: no factor \(test_guarded"):
        make_strategy(f"{__name__}:Fragile", SPACE, guarded=True).ask(1)


def test_a_strategy_of_the_user_that_fails_later_is_survived(fragile):
    strategy = make_strategy(f"{__name__}:Fragile", SPACE, guarded=True)
    (first,) = strategy.ask(1)
    fragile.broken = {"ask"}
    strategy.tell(first, 0.5)
    assert is_random(strategy.ask(1)[0])
    assert len(strategy.problems()) == 1


@pytest.mark.parametrize("options", [{}, {"reproducible": True, "lag": 4}])
@pytest.mark.parametrize("name", ["bayesian", "halving"])
def test_a_model_that_cannot_be_fitted_is_survived(name, options, monkeypatch):
    def fit(self, observed):
        raise FloatingPointError("a fault of the numerics")

    monkeypatch.setattr(Surrogate, "fit", fit)
    strategy = make_strategy(
        name, SPACE, seed=3, options=options | ({"max_budget": 9} if name == "halving" else {}), guarded=True
    )
    asked, told = run(strategy, SPACE, 24)
    assert len({repr(proposal) for proposal in asked}) == len(told) == 24
    if name == "halving":
        assert {proposal.budget for proposal in asked} <= {1.0, 3.0, 9.0}
    assert any("FloatingPointError: a fault of the numerics" in problem for problem in strategy.problems())


def test_a_model_of_a_rung_that_fails_is_survived(monkeypatch):
    def point(self, points, rungs, n_pending):
        raise FloatingPointError("a fault")

    monkeypatch.setattr(RungModel, "point", point)
    strategy = make_strategy("halving", SPACE, seed=3, options={"max_budget": 9})
    run(strategy, SPACE, 8)
    (problem,) = strategy.problems()
    assert "halving: the model of a rung raised FloatingPointError: a fault" in problem


def test_a_search_whose_strategy_fails_reports_it_once_and_can_be_continued(monkeypatch, tmp_path):
    monkeypatch.setattr(Surrogate, "fit", lambda self, observed: 1 / 0)
    settings = {"space": dict(SPACE), "strategy": "bayesian", "study": "s", "store": f"sqlite:///{tmp_path}/s.db"}

    def objective(trial):
        return cost(SPACE, trial.parameters)

    study = mpi_opt.search(objective, trials=14, **settings)
    assert [trial.state for trial in study.trials] == ["complete"] * 14
    (event,) = [event.detail for event in study.events() if event.kind == "strategy_failed"]
    assert event.startswith("bayesian: ask raised ZeroDivisionError: division by zero (test_guarded.py:")
    study = mpi_opt.search(objective, trials=16, **settings)
    assert len(study.trials) == 16


def test_ask_reports_a_problem_once(monkeypatch, tmp_path):
    monkeypatch.setattr(Surrogate, "fit", lambda self, observed: 1 / 0)
    content = {
        "store": f"sqlite:///{tmp_path}/s.db",
        "objective": "external",
        "space": {name: dimension.entry() for name, dimension in SPACE.items()},
        "search": {"strategy": "bayesian", "options": {"initial_points": 4}},
    }
    plan, notes = Plan(read_study(content), tmp_path), []
    for number in range(7):
        (asked,) = ask_tell.ask(plan, 1, notes.append)
        assert asked["number"] == number
        ask_tell.tell(content["store"], None, read_results({"number": number, "value": float(number)}))
    (note,) = notes
    assert note.startswith("strategy failed: bayesian: ask raised ZeroDivisionError: division by zero (test_guarded")


def test_a_preparation_that_failed_is_followed_by_the_next_one():
    prepared: PreparedProposals[int] = PreparedProposals()
    answers = iter([lambda: 1 / 0, lambda: [7]])
    refill = lambda: prepared.refill(lambda left, count: next(answers))  # noqa: E731
    refill()
    with pytest.raises(ZeroDivisionError):
        prepared.wait()
    with pytest.raises(ZeroDivisionError):
        refill()
    refill()
    prepared.wait()
    answers = iter([list])
    refill()
    assert prepared.pop() == 7


def test_hints_reach_the_strategy_with_its_points_and_its_limits(monkeypatch):
    steered = []
    monkeypatch.setattr(Fragile, "steer", lambda strategy, points, limits: steered.append((points, limits)))
    points, limits = [{"x": 0.5, "n": 3}], {"x": (0.2, 0.3)}
    guarded().steer(points, limits)
    assert steered == [(points, limits)]
