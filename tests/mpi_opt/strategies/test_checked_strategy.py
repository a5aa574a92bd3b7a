"""Proposals of a user's strategy: what is refused before it reaches the store, and what is passed on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpi_opt import Categorical, Integer, Real, search
from mpi_opt.core.search_space.space import Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.strategies.points.checked_strategy import CheckedStrategy
from mpi_opt.strategies.strategy import Decision, Strategy

SPACE = Space({"lr": Real(0, 1), "units": Integer(16, 64), "mirror": Categorical((True, False))})
POINT = {"lr": 0.5, "units": 32, "mirror": True}

SCRIPT = """
import numpy as np
from mpi_opt.core.trial import Proposal
from mpi_opt.strategies.strategy import Strategy

class Mine(Strategy):
    def __init__(self, space, seed=0, options=None):
        self.next, self.change = 0, dict(options)

    def ask(self, count):
        self.next += 1
        point = {"x": np.float64(0.25), "n": np.int64(3)}
        return [Proposal(**({"number": self.next - 1, "parameters": point} | self.change))]

    def tell(self, proposal, outcome):
        pass

    def resume(self, observed, pending=()):
        pass
"""


class Listed(Strategy):
    """Returns the given lists of proposals one after the other, and records its other calls."""

    finished, waits = True, True

    def __init__(self, *answers):
        self.answers, self.calls = list(answers), []

    def ask(self, count):
        return self.answers.pop(0)

    def tell(self, *arguments):
        self.calls.append(("tell", *arguments))

    def resume(self, observed, pending=()):
        self.calls.append(("resume", list(observed), list(pending)))

    def expect(self, n_figures):
        self.calls.append(("expect", n_figures))

    def report(self, proposal, step, value):
        return Decision.STOP

    def obsolete(self):
        return [5]


def proposal(number=0, **changes) -> Proposal:
    return replace(Proposal(number, POINT), **changes)


def ask(*answers, count=2, observed=(), pending=()) -> list[Proposal]:
    """The last of the answers, after the trials `observed` and `pending` of an earlier search."""
    strategy = CheckedStrategy(Listed(*answers), SPACE)
    strategy.resume(observed, pending)
    return [strategy.ask(count) for _ in answers][-1]


@pytest.mark.parametrize(
    ("proposed", "problem"),
    [
        (None, "Listed.ask returned None\n  → return a list of Proposal"),
        ([{"number": 0}], r"returned \[\{'number': 0\}\]\n  → return a list of Proposal"),
        ([proposal(3), proposal(4), proposal(5)], "returned 3 proposals, and was asked for 2\n  → return at most"),
        ([proposal(-1)], "proposed trial -1\n  → number the proposals 0, 1, 2, …"),
        ([proposal(10**9)], "proposed trial 1000000000\n  → number .* below 1,000,000,000"),
        ([proposal(True)], "proposed trial True\n  → number the proposals"),
        ([proposal(2.0)], r"proposed trial 2\.0\n  → number the proposals"),
        ([proposal(1)], "proposed trial 1, which exists already\n  → .*after `resume`, the one after the largest"),
        ([proposal(2)], "proposed trial 2, which exists already"),
        ([proposal(3), proposal(3)], "proposed trial 3, which exists already"),
        (
            [proposal(3, parameters=POINT | {"lr": 2.0})],
            r"not a point of the space: lr: 2\.0 is .*\n  → .*space.decode",
        ),
        ([proposal(3, parameters={"lr": 0.5})], "not a point of the space: hyperparameter 'units' is missing"),
        ([proposal(3, parameters=POINT | {"x": 1})], "not a point of the space: 'x' is not a hyperparameter"),
        ([proposal(3, budget=0)], "proposed trial 3 with the budget 0\n  → give a number of epochs above 0"),
        ([proposal(3, budget="5")], "with the budget '5'"),
        ([proposal(3, budget=float("inf"))], "with the budget inf"),
        ([proposal(3, resume_from=3)], "trial 3, which resumes from trial 3\n  → give the number of an earlier trial"),
        ([proposal(5, resume_from=4)], "trial 5, which resumes from trial 4"),
        ([proposal(3, resume_from=-1)], "trial 3, which resumes from trial -1"),
    ],
)
def test_a_proposal_that_the_store_could_not_read_again_is_refused(proposed, problem):
    with pytest.raises(ConfigurationError, match=problem) as raised:
        ask(proposed, observed=[(proposal(0), 0.1), (proposal(1), Failed("no"))], pending=[proposal(2)])
    assert raised.value.where == "search.strategy"


def test_a_number_of_an_earlier_proposal_or_of_a_trial_of_others_is_not_new():
    with pytest.raises(ConfigurationError, match="proposed trial 0, which exists already"):
        ask([proposal(0)], [proposal(0)])
    strategy = CheckedStrategy(Listed([proposal(7)]), SPACE)
    strategy.tell(proposal(7), 1.0)
    with pytest.raises(ConfigurationError, match="proposed trial 7, which exists already"):
        strategy.ask(1)


def test_numpy_scalars_become_python_numbers():
    point = {"lr": np.float32(0.5), "units": np.int64(32), "mirror": np.bool_(True)}
    (first,) = ask([Proposal(np.int64(0), point)])
    (second,) = ask([proposal(1, budget=np.int64(3), resume_from=np.int32(0))], observed=[(proposal(0), 0.1)])
    assert first == Proposal(0, POINT)
    assert second == proposal(1, budget=3, resume_from=0)
    values = [first.number, *first.parameters.values(), second.budget, second.resume_from]
    assert [type(value) for value in values] == [int, float, int, bool, int, int]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_number_of_low_precision_at_the_end_of_a_range_is_in_the_range(kind):
    strategy = CheckedStrategy(Listed([Proposal(0, {"lr": kind(0.1)})]), Space({"lr": Real(0, 0.1)}))
    assert strategy.ask(1) == [Proposal(0, {"lr": 0.1})]


def test_all_other_calls_reach_the_strategy():
    strategy = CheckedStrategy(inner := Listed(), SPACE)
    strategy.expect(2)
    strategy.resume([(proposal(0), 1.0)], [proposal(1)])
    strategy.tell(proposal(1), 2.0)
    assert inner.calls == [
        ("expect", 2),
        ("resume", [(proposal(0), 1.0)], [proposal(1)]),
        ("tell", proposal(1), 2.0),
    ]
    assert strategy.report(proposal(1), 0, 1.0) is Decision.STOP
    assert strategy.obsolete() == [5]
    assert (strategy.finished, strategy.waits) == (True, True)


SETTINGS = {"space": {"x": Real(0, 1), "n": Integer(1, 8)}, "strategy": "mine.py:Mine", "trials": 3}


def test_a_search_records_the_proposals_of_numpy_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)
    found = search(lambda trial: 1.0, store="sqlite:///own.db", **SETTINGS)
    assert [trial.parameters for trial in found.trials] == [{"x": 0.25, "n": 3}] * 3


@pytest.mark.parametrize(
    "options", [{"number": 10**9}, {"resume_from": 0}, {"parameters": {"x": 7.0, "n": 1}}], ids=str
)
def test_a_search_ends_before_a_wrong_proposal_damages_the_store(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)
    with pytest.raises(ConfigurationError, match=r"Mine\.ask proposed trial"):
        search(lambda trial: 1.0, store="sqlite:///own.db", options=options, **SETTINGS)
    with Store.open("sqlite:///own.db") as store:
        assert store.trials(store.studies()[0].id) == []
