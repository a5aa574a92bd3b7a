"""The median stopping rule with any strategy."""

import math
import random
import statistics
import time

import pytest

from mpi_opt import Integer, Real, Study, search
from mpi_opt.configuration.configuration import read_study
from mpi_opt.coordinator.trials.median_rule import MedianRule
from mpi_opt.errors import ConfigurationError
from mpi_opt.store.records import CurveRecord


def rule_with(curves, sign=1.0):
    rule = MedianRule("report", sign)
    for number, curve in enumerate(curves):
        assert not any(rule.prunes((number, 1), step, value) for step, value in enumerate(curve))
        rule.end((number, 1), is_complete=True)
    return rule


# means up to step 1: 8.5, 7.5, 6.5, 5.5, 4.5
CURVES = [[9.0, 8.0], [8.0, 7.0], [7.0, 6.0], [6.0, 5.0], [5.0, 4.0]]


@pytest.mark.parametrize(
    ("values", "is_stopped"),
    [([9.0, 6.6], True), ([9.0, 6.5], False), ([6.0, 100.0], False), ([9.0], False), ([math.nan, math.nan], True)],
    ids=["worse", "equal", "good-before", "first-value", "nan"],
)
def test_a_trial_is_stopped_if_its_best_value_is_worse_than_the_median_mean(values, is_stopped):
    rule = rule_with(CURVES)
    assert [rule.prunes((9, 1), step, value) for step, value in enumerate(values)][-1] == is_stopped


def test_few_or_shorter_trials_stop_none():
    assert not any(rule_with(CURVES[:4]).prunes((9, 1), step, 99.0) for step in range(2))
    assert not rule_with(CURVES).prunes((9, 1), 5, 99.0)


def test_a_stopped_trial_is_no_reference():
    rule = rule_with(CURVES[:4])
    rule.prunes((4, 1), 0, 5.0)
    rule.prunes((4, 1), 1, 4.0)
    rule.end((4, 1), is_complete=False)
    assert not any(rule.prunes((9, 1), step, 99.0) for step in range(2))


def is_stopped(values, complete, step):
    """The definition of the rule, for the values (step, cost) of a trial and of complete ones."""
    means = [
        statistics.fmean(cost for at, cost in one if at <= step)
        for one in complete
        if any(at <= step for at, _ in one) and any(at >= step for at, _ in one)
    ]
    if len(values) < 2 or len(means) < 5:
        return False
    return min(cost for _, cost in values) > statistics.median(means)


@pytest.mark.parametrize("max_steps", [1000, 3], ids=["all-steps-kept", "few-steps-kept"])
def test_the_rule_follows_its_definition_on_random_curves(monkeypatch, max_steps):
    """Trials run at the same time, and report at different steps, in any order."""
    monkeypatch.setattr("mpi_opt.coordinator.trials.median_rule.MAX_STEPS", max_steps)
    rng, rule, complete, running, n_stopped = random.Random(1), MedianRule("report", 1.0), [], {}, 0
    for number in range(3000):
        trial = running.setdefault(rng.randrange(7), (number, [], rng.randint(0, 64)))
        step, cost = rng.randrange(12), rng.choice([math.inf, *(trial[2] + rng.randint(0, 32) for _ in range(20))])
        trial[1].append((step, cost))
        stopped = rule.prunes((trial[0], 1), step, cost)
        assert stopped == is_stopped(trial[1], complete, step)
        n_stopped += stopped
        if rng.random() < 0.1:
            running = {block: one for block, one in running.items() if one is not trial}
            rule.end((trial[0], 1), is_complete=not stopped)
            complete += [trial[1]] * (not stopped)
        assert len(rule._means) <= max_steps
    assert 300 < n_stopped < 2700 and len(complete) > 100


def test_a_resumed_rule_is_the_same():
    curves = [CurveRecord(number, 0, "report", [-value for value in curve]) for number, curve in enumerate(CURVES)]
    others = [
        CurveRecord(7, 0, "report", [0.0, 0.0]),
        CurveRecord(0, 1, "report", [0.0]),
        CurveRecord(0, 0, "loss", [0.0]),
    ]
    rule = MedianRule("report", -1.0)
    rule.resume([*curves, *others], set(range(5)))
    assert not rule.prunes((9, 1), 0, 9.0)
    assert rule.prunes((9, 1), 1, 6.6)


def test_bad_trials_are_stopped_with_every_strategy_and_after_a_resume(tmp_path):
    def objective(trial):
        for step in range(8):
            trial.report(step, trial.parameters["x"] + 1 / (1 + step))
            time.sleep(0.01)  # the coordinator is another thread
            if trial.should_stop():
                break
        return trial.parameters["x"]

    space, store = {"x": Real(0, 1), "n": Integer(1, 9)}, f"sqlite:///{tmp_path}/s.db"
    for n_trials in (8, 30):
        search(objective, space=space, trials=n_trials, strategy="random", study="s", store=store, pruning="median",
               progress=False)  # fmt: skip
    study = Study.open(store, "s")
    good, bad = study.ranked(("complete",)), study.ranked(("pruned",))
    assert len(bad) > 5 and study.best.figure_of_merit == min(one.figure_of_merit for one in study.trials)
    n_steps = [len(curve.values) for curve in study.curves([one.number for one in bad])]
    assert sum(n_steps) < 0.7 * 8 * len(bad)
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
