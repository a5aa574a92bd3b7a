import math

import numpy as np
import pytest

from mpi_opt.errors import ConfigurationError
from mpi_opt.space import Integer, Real, Space
from mpi_opt.strategies import Decision, make_strategy
from mpi_opt.trial import Failed

SPACE = Space({"x": Real(0, 1)})
OPTIONS = {"min_budget": 1, "max_budget": 9, "factor": 3}


def test_best_third_is_promoted_and_resumes_its_own_trial():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS)
    first = strategy.ask(9)
    assert {proposal.budget for proposal in first} == {1}
    for proposal in first:
        strategy.tell(proposal, proposal.parameters["x"])
    best = sorted(first, key=lambda proposal: proposal.parameters["x"])[:3]
    promoted = strategy.ask(3)
    assert [(one.budget, one.resume_from, one.parameters) for one in promoted] == [
        (3, one.number, one.parameters) for one in best
    ]
    for proposal in promoted:
        strategy.tell(proposal, proposal.parameters["x"])
    (final,) = strategy.ask(1)
    assert (final.budget, final.resume_from, final.parameters) == (9, promoted[0].number, best[0].parameters)


def test_failed_trials_are_not_promoted():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS)
    for proposal in strategy.ask(9):
        strategy.tell(proposal, Failed("diverged") if proposal.number else math.nan)
    assert {proposal.resume_from for proposal in strategy.ask(5)} == {None}


def test_hyperband_starts_some_configurations_higher():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS | {"brackets": 3})
    budgets = [proposal.budget for proposal in strategy.ask(60)]
    assert budgets.count(1) > budgets.count(3) > budgets.count(9) > 0


def test_without_resuming_a_running_trial_is_stopped_at_a_rung():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS | {"resume": False})
    trials = strategy.ask(6)
    assert {proposal.budget for proposal in trials} == {None}
    decisions = [strategy.report(proposal, 0, float(proposal.number)) for proposal in trials]
    assert decisions == [Decision.CONTINUE] * 2 + [Decision.STOP] * 4
    assert strategy.report(trials[0], 1, 0.0) is Decision.CONTINUE


def test_min_budget_above_max_budget_is_an_error():
    with pytest.raises(ConfigurationError, match="min_budget"):
        make_strategy("halving", SPACE, options={"min_budget": 10, "max_budget": 3})


def test_reaches_the_regret_of_full_trainings_with_a_fifth_of_the_epochs():
    """Curves that cross little: value = quality + distance that shrinks with the epochs at a rate of its own."""
    rng = np.random.default_rng(0)
    quality, rate = rng.random(1500), rng.uniform(0.1, 0.2, 1500)

    def value(row, epoch):
        return quality[row] + 0.5 * math.exp(-rate[row] * epoch)

    space, ours, theirs = {"row": Integer(0, 1499)}, [], []
    for seed in range(11):
        strategy = make_strategy("halving", space, seed=seed, options={"min_budget": 2, "max_budget": 52})
        spent, last, best = 0.0, {}, math.inf
        while spent <= 0.2 * 100 * 52:
            (proposal,) = strategy.ask(1)
            spent += proposal.budget - last.get(proposal.resume_from, 0)
            last[proposal.number] = proposal.budget
            outcome = value(proposal.parameters["row"], proposal.budget)
            best = min(best, value(proposal.parameters["row"], 52) if proposal.budget == 52 else math.inf)
            strategy.tell(proposal, outcome)
        ours.append(best)
        theirs.append(min(value(row, 52) for row in np.random.default_rng(seed).integers(0, 1500, 100)))
    assert np.median(ours) <= np.median(theirs)
