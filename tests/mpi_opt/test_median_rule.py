"""The median stopping rule with any strategy."""

import math
import random
import statistics

import pytest

from mpi_opt.coordinator.pruning.median_rule import MedianRule
from mpi_opt.core.trial import Proposal


def rule_with(curves):
    rule = MedianRule("report", 1.0)
    for number, curve in enumerate(curves):
        assert not any(rule.prunes(Proposal(number, {}), 1, step, value) for step, value in enumerate(curve))
        rule.end(Proposal(number, {}), 1, curve[-1])
    return rule


# means up to step 1: 8.5, 7.5, 6.5, 5.5, 4.5
CURVES = [[9.0, 8.0], [8.0, 7.0], [7.0, 6.0], [6.0, 5.0], [5.0, 4.0]]
LATER = Proposal(9, {})


@pytest.mark.parametrize(
    ("values", "is_stopped"),
    [([9.0, 6.6], True), ([9.0, 6.5], False), ([6.0, 100.0], False), ([9.0], False), ([math.nan, math.nan], True)],
    ids=["worse", "equal", "good-before", "first-value", "nan"],
)
def test_a_trial_is_stopped_if_its_best_value_is_worse_than_the_median_mean(values, is_stopped):
    rule = rule_with(CURVES)
    assert [rule.prunes(LATER, 1, step, value) for step, value in enumerate(values)][-1] == is_stopped


def test_few_or_shorter_trials_stop_none():
    assert not any(rule_with(CURVES[:4]).prunes(LATER, 1, step, 99.0) for step in range(2))
    assert not rule_with(CURVES).prunes(LATER, 1, 5, 99.0)


def test_a_stopped_trial_is_no_reference():
    rule = rule_with(CURVES[:4])
    rule.prunes(Proposal(4, {}), 1, 0, 5.0)
    rule.prunes(Proposal(4, {}), 1, 1, 4.0)
    rule.end(Proposal(4, {}), 1, None)
    assert not any(rule.prunes(LATER, 1, step, 99.0) for step in range(2))


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
    monkeypatch.setattr("mpi_opt.coordinator.pruning.median_rule.MAX_STEPS", max_steps)
    rng, rule, complete, running, n_stopped = random.Random(1), MedianRule("report", 1.0), [], {}, 0
    for number in range(3000):
        trial = running.setdefault(rng.randrange(7), (number, [], rng.randint(0, 64)))
        step, cost = rng.randrange(12), rng.choice([math.inf, *(trial[2] + rng.randint(0, 32) for _ in range(20))])
        trial[1].append((step, cost))
        stopped = rule.prunes(Proposal(trial[0], {}), 1, step, cost)
        assert stopped == is_stopped(trial[1], complete, step)
        n_stopped += stopped
        if rng.random() < 0.1:
            running = {block: one for block, one in running.items() if one is not trial}
            rule.end(Proposal(trial[0], {}), 1, None if stopped else cost)
            complete += [trial[1]] * (not stopped)
        assert len(rule._means) <= max_steps
    assert 300 < n_stopped < 2700 and len(complete) > 100
