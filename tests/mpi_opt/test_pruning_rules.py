"""The rules of ``search.pruning``: what holds for each of them, alone and in searches with any strategy."""

import math
import random
import time

import pytest

from mpi_opt import Integer, Real, Study, search
from mpi_opt.configuration.read_study import read_study
from mpi_opt.coordinator.pruning.curve_rule import CurveRule
from mpi_opt.coordinator.pruning.median_rule import MedianRule
from mpi_opt.core.search_space.space import Space
from mpi_opt.core.trial import Proposal, TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.store.records import CurveRecord
from tests.mpi_opt.outcomes import one_figure

SPACE = Space({"x": Real(0.0, 1.0)})
RULES = {
    "median": lambda sign=1.0: MedianRule("report", sign),
    "curves": lambda sign=1.0: CurveRule("report", sign, SPACE),
}


@pytest.fixture(params=RULES)
def new_rule(request):
    """Builds a rule of costs; with the argument -1, of values to be maximised."""
    return RULES[request.param]


def curve(x, n=20):
    """Costs that fall towards x."""
    return [x + 2.0 * 0.6**step for step in range(n)]


def run(rule, number, values, x=0.5, sign=1.0):
    """Runs a trial until it is stopped; returns the number of values that it has reported."""
    proposal = Proposal(number, {"x": x})
    for step, value in enumerate(values):
        if rule.prunes(proposal, 1, step, value):
            rule.end(proposal, 1, None)
            return step + 1
    rule.end(proposal, 1, sign * values[-1])
    return len(values)


def trials(n, seed=1):
    """Number, x and curve of some trials."""
    rng = random.Random(seed)
    return [(number, x, curve(x)) for number, x in enumerate(rng.random() for _ in range(n))]


def test_bad_trials_are_stopped_and_the_best_one_is_not(new_rule):
    rule, lengths, best = new_rule(), [], math.inf
    for number, x, values in trials(60):
        lengths.append(run(rule, number, values, x))
        assert lengths[-1] == 20 or x > best
        best = min(best, x)
    assert sum(n < 20 for n in lengths) > 15 and sum(lengths) < 0.9 * 20 * 60


def test_a_resumed_rule_decides_as_one_that_has_seen_the_trials(new_rule):
    """The stored figures of merit and values are to be maximised. Other curves of a trial are not used."""
    rule, resumed, records, curves = new_rule(-1.0), new_rule(-1.0), [], []
    for number, x, values in trials(40):
        n = run(rule, number, values, x, sign=-1.0)
        state = "complete" if n == len(values) else "pruned"
        records.append(TrialRecord(number, state, {"x": x}, one_figure(-values[n - 1])))
        curves += [CurveRecord(number, 0, "report", [-value for value in values[:n]])]
        curves += [CurveRecord(number, 1, "report", [0.0]), CurveRecord(number, 0, "loss", [9.0])]
    run(resumed, 999, curve(0.0))  # is forgotten
    resumed.resume(records, curves)
    later = [[run(each, 200 + number, values, x) for number, x, values in trials(20, 3)] for each in (rule, resumed)]
    assert later[0] == later[1] and min(later[0]) < 20


@pytest.mark.parametrize("n_before", [30, 51, 75])
def test_a_search_that_was_interrupted_stops_the_same_trials(new_rule, n_before):
    rng = random.Random(5)
    noisy = [(n, x, [value + rng.gauss(0.0, 0.1) for value in values]) for n, x, values in trials(150)]
    whole, lengths = new_rule(), []
    lengths = [run(whole, *each[::2], each[1]) for each in noisy]
    continued, records, curves = new_rule(), [], []
    for (number, x, values), length in zip(noisy[:n_before], lengths, strict=False):
        state = "complete" if length == len(values) else "pruned"
        records.append(TrialRecord(number, state, {"x": x}, one_figure(values[length - 1])))
        curves.append(CurveRecord(number, 0, "report", values[:length]))
    continued.resume(records, curves)
    assert [run(continued, *each[::2], each[1]) for each in noisy[n_before:]] == lengths[n_before:]


def test_values_that_are_no_numbers_or_huge_stop_their_trial_only(new_rule):
    rule = new_rule()
    odd = [math.nan, math.inf, 1.7e308]
    for number, x, values in trials(60):
        run(rule, number, values if number % 6 else [odd[number // 6 % 3]] * 20, x)
    assert run(rule, 100, [math.nan] * 20) < 20
    assert run(rule, 101, [1.7e308] * 20) < 20
    assert run(rule, 102, curve(0.0), 0.0) == 20


def test_all_trials_run_if_their_costs_are_equal(new_rule):
    rule = new_rule()
    assert all(run(rule, number, [1.0] * 10, x) == 10 for number, x, _ in trials(30))


def test_the_values_of_a_trial_that_moves_stay_those_of_the_trial(new_rule):
    rule = new_rule()
    for number, x, values in trials(40):
        run(rule, number, values, x)
    moving = Proposal(100, {"x": 0.0})
    for step, value in enumerate(curve(0.0)[:8]):
        assert not rule.prunes(moving, 1, step, value)
    rule.carry((100, 1), (100, 2))
    assert not any(rule.prunes(moving, 2, step, value) for step, value in enumerate(curve(0.0)) if step >= 8)


@pytest.mark.parametrize(("least_of_best", "n_values"), [(0.5, 2), (2e-4, 2), (5e-5, 20)])
def test_no_trial_is_stopped_that_is_as_likely_as_a_best_one_was(monkeypatch, least_of_best, n_values):
    class FakeModel:
        def __init__(self, *_args):
            pass

        def probability(self, _row, curve):
            return 1e-4 if curve[0] > 1.0 else 0.05

        def least_of_best(self, _count):
            return least_of_best

    monkeypatch.setattr("mpi_opt.coordinator.pruning.curve_rule.CurveModel", FakeModel)
    rule = RULES["curves"]()
    assert all(run(rule, number, [x] * 20, x) == 20 for number, x, _ in trials(30))
    assert run(rule, 60, [2.0] * 20) == n_values


@pytest.mark.parametrize(
    ("values", "probability", "n_values"),
    [
        ([3.0] * 20, 0.0224, 2),
        ([3.0] * 20, 0.0226, 20),
        ([1.0] * 20 + [3.0] * 9, 0.0012, 28),
        ([1.0] * 20 + [3.0] * 9, 0.0013, 29),
    ],
    ids=["at first", "not at first", "after the others", "not after the others"],
)
def test_a_trial_is_compared_with_new_ones_in_the_steps_that_are_left(monkeypatch, values, probability, n_values):
    """A new trial becomes the best one with 0.05 in 20 steps: 0.0025 in each. A trial may be half as likely.

    At step 1, 18 steps are left until 19, the last step of most other trials; at step 27, one step counts as left.
    """

    class FakeModel:
        def __init__(self, *_args):
            pass

        def probability(self, _row, curve):
            return probability if curve[0] > 2.9 else 0.05

        def least_of_best(self, _count):
            return 1.0

    monkeypatch.setattr("mpi_opt.coordinator.pruning.curve_rule.CurveModel", FakeModel)
    rule = RULES["curves"]()
    for number, x, _ in trials(30):
        run(rule, number, [x] * (40 if number < 10 else 20), x)
    assert run(rule, 60, values) == n_values


@pytest.mark.parametrize("pruning", RULES)
def test_a_search_and_its_continuation_stop_bad_trials_of_a_function(tmp_path, pruning):
    def objective(trial):
        for step in range(8):
            trial.report(step, trial.parameters["x"] + 1 / (1 + step))
            time.sleep(0.01)  # the coordinator is another thread
            if trial.should_stop():
                break
        return trial.parameters["x"]

    space, store = {"x": Real(0, 1), "n": Integer(1, 9)}, f"sqlite:///{tmp_path}/s.db"
    for n_trials in (20, 40):
        search(objective, space=space, trials=n_trials, strategy="random", seed=3, study="s", store=store,
               pruning=pruning, progress=False)  # fmt: skip
    study = Study.open(store, "s")
    good, bad = study.ranked(("complete",)), study.ranked(("pruned",))
    pruned = sorted(one.number for one in bad)
    assert pruned[0] < 20, "a trial is compared with others of the same search"
    assert min(one for one in pruned if one >= 20) < 24, "and with those of earlier ones"
    assert len(bad) > 5 and study.best.figure_of_merit == min(one.figure_of_merit for one in study.trials)
    n_steps = [len(curve.values) for curve in study.curves([one.number for one in bad])]
    assert sum(n_steps) < 0.7 * 8 * len(bad)
    if pruning == "median":
        assert max(one.figure_of_merit for one in good[: len(good) // 2]) < min(one.figure_of_merit for one in bad)


@pytest.mark.parametrize(
    "changed",
    [
        {"search": {"pruning": "median", "strategy": "halving"}},
        {"direction": ["minimize", "minimize"]},
        {"objective": "external"},
        {"search": {"pruning": "median", "options": {"reproducible": True}}},
        {"objective": "train", "training": {}, "figure_of_merit": "seconds"},
    ],
    ids=["halving", "several", "external", "reproducible", "no-curve"],
)
def test_pruning_without_comparable_values_is_refused(changed):
    space = {"x": {"type": "real", "low": 0, "high": 1}}
    content = {"objective": "a.py:f", "space": space, "search": {"pruning": "median"}} | changed
    with pytest.raises(ConfigurationError, match=r"search\.pruning"):
        read_study(content)
