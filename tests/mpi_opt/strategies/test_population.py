import math

import numpy as np
import pytest

from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import make_strategy

SPACE = Space({"rate": Real(1e-4, 1, prior="log-uniform"), "units": Integer(8, 64)})


def test_worst_takes_over_from_the_best_and_keeps_the_shape_of_its_network():
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 4})
    trials = strategy.ask(4)
    for proposal in trials:
        strategy.tell(proposal, float(proposal.number))
    following = strategy.ask(4)
    assert [proposal.resume_from for proposal in following] == [0, 1, 2, 0]
    assert all(proposal.budget == 2 for proposal in following)
    assert [following[n].parameters for n in range(3)] == [trials[n].parameters for n in range(3)]
    assert following[3].parameters["units"] == trials[0].parameters["units"]
    assert following[3].parameters["rate"] != trials[0].parameters["rate"]


def test_changed_hyperparameters_satisfy_the_constraints():
    """The best points are at the border, which every second change would cross."""
    options = {"population": 5, "constraints": ["rate < 0.1"]}
    strategy, n_changed = make_strategy("population", SPACE, seed=1, options=options), 0
    for _ in range(60):
        (proposal,) = strategy.ask(1)
        assert proposal.parameters["rate"] < 0.1
        n_changed += proposal.resume_from is not None
        strategy.tell(proposal, -proposal.parameters["rate"])
    assert n_changed > 40


def test_failed_network_is_replaced():
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 2})
    first, second = strategy.ask(2)
    strategy.tell(first, 1.0)
    strategy.tell(second, Failed("diverged"))
    assert [proposal.resume_from for proposal in strategy.ask(2)] == [0, 0]


def test_complete_network_is_not_continued_in_place_of_a_failed_one():
    """Three of eight networks are complete and better than the rest when a fourth one fails."""
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 8, "max_budget": 2})
    trials = strategy.ask(8)
    for proposal in trials[:3]:
        strategy.tell(proposal, 1.0 + proposal.number)
    for proposal in strategy.ask(3):
        strategy.tell(proposal, 0.0)
    strategy.tell(trials[3], Failed("diverged"))
    (proposal,) = strategy.ask(1)
    assert (proposal.resume_from, proposal.budget) == (0, 2)


def test_another_network_starts_for_one_that_fails_before_any_has_succeeded():
    """A failure that arrives first costs one more trial."""
    for failure_is_first in (True, False):
        strategy = make_strategy("population", SPACE, seed=1, options={"population": 4, "max_budget": 3})
        first = strategy.ask(4)
        for proposal in first if failure_is_first else first[::-1]:
            strategy.tell(proposal, Failed("diverged") if proposal is first[0] else 1.0)
        n_trials = 4
        while proposals := strategy.ask(1):
            strategy.tell(proposals[0], 1.0)
            n_trials += 1
        assert (n_trials, strategy.finished) == (13 if failure_is_first else 12, True)


def test_slow_network_is_compared_with_those_that_had_as_many_epochs():
    """The first network of four needs longer for its first epoch than the others for nine."""
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 4})
    slow, *others = strategy.ask(4)
    for _ in range(9):
        for proposal in others:
            strategy.tell(proposal, 1.0 / proposal.budget)
        others = strategy.ask(3)
    strategy.tell(slow, 0.9)  # the best after one epoch; all others have smaller costs now
    (proposal,) = strategy.ask(1)
    assert proposal.resume_from == slow.number


def test_slow_network_takes_over_a_training_whose_checkpoint_is_kept():
    strategy, kept = make_strategy("population", SPACE, seed=1, options={"population": 4}), set()
    slow, *others = strategy.ask(4)
    for _ in range(9):
        for proposal in others:
            strategy.tell(proposal, 1.0 / proposal.budget)
            kept.add(proposal.number)
        kept.difference_update(strategy.obsolete())
        others = strategy.ask(3)
    strategy.tell(slow, 2.0)
    (proposal,) = strategy.ask(1)
    assert proposal.resume_from in kept


def test_number_of_kept_checkpoints_does_not_grow_with_the_number_of_trials():
    strategy, kept = make_strategy("population", SPACE, seed=1), set()
    for _ in range(400):
        (proposal,) = strategy.ask(1)
        assert proposal.resume_from is None or proposal.resume_from in kept
        strategy.tell(proposal, float(proposal.number % 7))
        kept.add(proposal.number)
        kept.difference_update(strategy.obsolete())
    assert len(kept) < 40


def test_other_networks_start_for_failed_ones_if_only_a_complete_one_succeeded():
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 2, "max_budget": 2})
    first, second = strategy.ask(2)
    strategy.tell(Proposal(7, first.parameters, budget=2), 0.5)
    strategy.tell(first, Failed("diverged"))
    strategy.tell(second, Failed("diverged"))
    (proposal,) = strategy.ask(2)  # the complete network is one of the two
    assert (proposal.budget, proposal.resume_from) == (1, None)


@pytest.mark.parametrize(("interval", "budgets"), [(2, [2, 4, 5]), (7, [5])])
def test_last_trial_of_a_network_ends_at_max_budget(interval, budgets):
    options = {"population": 3, "interval": interval, "max_budget": 5}
    strategy, found = make_strategy("population", SPACE, seed=1, options=options), []
    while proposals := strategy.ask(3):
        for proposal in proposals:
            strategy.tell(proposal, proposal.parameters["rate"])
            found.append(proposal.budget)
    assert found == [budget for budget in budgets for _ in range(3)]
    assert strategy.finished


@pytest.mark.parametrize(("high", "change"), [(4, 1), (16, 2)])
def test_an_integer_always_changes_and_moves_up_as_far_as_down(high, change):
    """A step is a tenth of the range: 0.4, which rounding would lose, and 1.6, which is rounded to 2."""
    space = Space({"rate": Real(0, 1), "units": Integer(0, high)})
    steps = set()
    for seed in range(20):
        options = {"population": 2, "perturb": ["units"], "resample": 0.0}
        strategy = make_strategy("population", space, seed=seed, options=options)
        first, second = strategy.ask(2)
        strategy.tell(first, 1.0)
        strategy.tell(second, Failed("diverged"))
        before, after = first.parameters["units"], strategy.ask(2)[1].parameters["units"]
        if change <= before <= high - change:
            steps.add(after - before)
    assert steps == {-change, change}


@pytest.mark.parametrize("dimension", [Real(0, 1, step=0.25), Integer(0, 100, step=25)], ids=str)
def test_number_with_a_coarse_step_moves_to_a_neighbour(dimension):
    space, moves = Space({"rate": Real(0, 1), "x": dimension}), set()
    for seed in range(20):
        strategy = make_strategy("population", space, seed=seed, options={"population": 2, "perturb": ["x"]})
        first, second = strategy.ask(2)
        strategy.tell(first, 1.0)
        strategy.tell(second, Failed("diverged"))
        before, after = first.parameters["x"], strategy.ask(2)[1].parameters["x"]
        if dimension.low < before < dimension.high:
            moves.add((after - before) / dimension.step)
    assert moves == {-1.0, 1.0}


@pytest.mark.parametrize("max_budget", [None, 4])
def test_no_network_resumes_from_a_trial_of_another_strategy(max_budget):
    """Such a trial has no checkpoint."""
    earlier = [(proposal, 1.0) for proposal in make_strategy("random", SPACE, seed=1).ask(12)]
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 3, "max_budget": max_budget})
    strategy.resume(earlier)
    assert [(proposal.number, proposal.resume_from) for proposal in strategy.ask(3)] == [
        (12, None), (13, None), (14, None),
    ]  # fmt: skip


def test_finishes_when_every_network_had_its_epochs():
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 3, "interval": 2, "max_budget": 6})
    n_trials = 0
    while proposals := strategy.ask(2):
        for proposal in proposals:
            strategy.tell(proposal, proposal.parameters["rate"])
            n_trials += 1
    assert n_trials == 9
    assert strategy.finished


def test_first_networks_are_spread_evenly():
    for seed in range(5):
        strategy = make_strategy("population", {"rate": Real(1e-4, 1, prior="log-uniform")}, seed=seed)
        places = sorted(int(8 * (math.log10(one.parameters["rate"]) + 4) / 4) for one in strategy.ask(8))
        assert places == list(range(8))


def test_network_is_compared_with_those_that_had_as_many_epochs():
    """One network after the other. A network with one more epoch is better, and is not copied for that reason."""
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 4})
    for proposal in strategy.ask(4):
        strategy.tell(proposal, 10.0 + proposal.number)
    for number in range(3):
        (proposal,) = strategy.ask(1)
        assert (proposal.resume_from, proposal.budget) == (number, 2)
        strategy.tell(proposal, 5.0 - number)
    (last,) = strategy.ask(1)
    assert (last.resume_from, last.budget) == (0, 2)


def test_few_are_replaced_at_first_and_many_at_the_end():
    """Without noise and with rates that have no effect, the values of the networks do not change."""
    strategy = make_strategy("population", SPACE, seed=1, options={"population": 8, "max_budget": 8})
    n_replaced, slots = [], None
    for _ in range(8):
        proposals = strategy.ask(8)
        if slots is not None:
            n_replaced.append(sum(one.resume_from != before for one, before in zip(proposals, slots, strict=True)))
        slots = [one.number for one in proposals]
        for place, proposal in enumerate(proposals):
            strategy.tell(proposal, float(place))
    assert n_replaced[0] == 1
    assert n_replaced[-1] == 4
    assert n_replaced == sorted(n_replaced)
    assert strategy.finished


def test_number_moves_by_a_tenth_of_its_range_and_may_change_its_sign():
    options = {"population": 2, "initial": [{"x": 0.3}, {"x": 0.5}]}
    strategy, seen = make_strategy("population", {"x": Real(-1, 1)}, seed=1, options=options), {}
    for _ in range(100):
        (proposal,) = strategy.ask(1)
        seen[proposal.number] = proposal.parameters["x"]
        step = abs(seen[proposal.number] - seen.get(proposal.resume_from, seen[proposal.number]))
        assert step == pytest.approx(0.0, abs=1e-9) or step == pytest.approx(0.2)
        strategy.tell(proposal, abs(seen[proposal.number] + 0.7))
    assert min(abs(x + 0.7) for x in seen.values()) < 1e-6


def test_number_with_a_logarithmic_prior_is_multiplied_or_divided():
    """By 1.6 = 1 + `change`, whatever its magnitude; the bounds are far."""
    rates = [10.0**-number for number in range(2, 7)]
    options = {"population": 2, "initial": [{"rate": rate} for rate in rates]}
    strategy = make_strategy("population", {"rate": Real(1e-12, 1, prior="log-uniform")}, seed=1, options=options)
    seen, factors = {}, set()
    for _ in range(60):
        (proposal,) = strategy.ask(1)
        seen[proposal.number] = proposal.parameters["rate"]
        factors.add(round(seen[proposal.number] / seen.get(proposal.resume_from, seen[proposal.number]), 9))
        strategy.tell(proposal, abs(math.log(seen[proposal.number] / 1e-6)))
    assert factors == {1.0, 1.6, 0.625}


def test_category_that_may_change_does():
    space = {"kind": Categorical(("a", "b", "c")), "rate": Real(1e-3, 1, prior="log-uniform")}
    options = {"population": 8, "perturb": ["kind"]}
    strategy, n_changed = make_strategy("population", space, seed=1, options=options), 0
    kinds, rates = {}, set()
    for _ in range(400):
        (proposal,) = strategy.ask(1)
        kinds[proposal.number] = proposal.parameters["kind"]
        rates.add(proposal.parameters["rate"])
        n_changed += kinds.get(proposal.resume_from, kinds[proposal.number]) != kinds[proposal.number]
        strategy.tell(proposal, float(proposal.number % 8))
    assert n_changed > 0
    assert len(rates) == 8


def test_hyperparameter_that_others_depend_on_cannot_change():
    space = {"kind": Categorical(("a", "b")), "x": Real(0, 1, when={"kind": "a"})}
    with pytest.raises(ConfigurationError, match="another hyperparameter depends on it\n  → remove kind"):
        make_strategy("population", space, options={"perturb": ["kind"]})


def test_number_that_others_depend_on_is_not_changed_by_default():
    space = Space({"drop": Real(0, 1, step=0.1), "rate": Real(0, 1, when={"drop": [0.0, 0.1, 0.2, 0.3, 0.4]})})
    strategy = make_strategy("population", space, seed=1, options={"population": 4})
    told = []
    for _ in range(60):  # the best networks are on the border of the condition
        (proposal,) = strategy.ask(1)
        space.check(proposal.parameters)
        told.append((proposal, abs(proposal.parameters["drop"] - 0.45)))
        strategy.tell(*told[-1])
    make_strategy("population", space).resume(told)


def trained(weights, rate, n_steps, rng):
    """Stochastic gradient descent on a quadratic with noisy gradients: needs a large rate first, then a small one."""
    for _ in range(n_steps):
        gradient = np.array([1.0, 0.05]) * weights + 0.3 * rng.standard_normal(2)
        weights = weights - rate * gradient
    return weights


def loss(weights):
    return float(np.sum(np.array([1.0, 0.05]) * weights**2))


def test_learns_a_schedule_that_beats_every_constant_rate():
    start, n_steps, n_rounds = np.array([8.0, 8.0]), 20, 12
    grid = np.geomspace(1e-3, 1.5, 16)
    constant = min(
        np.mean([loss(trained(start, rate, n_steps * n_rounds, np.random.default_rng(s))) for s in range(10)])
        for rate in grid
    )
    reached = []
    for seed in range(10):
        space = {"rate": Real(1e-3, 1.5, prior="log-uniform")}
        options = {"population": 16, "max_budget": n_rounds, "change": 0.6}
        strategy = make_strategy("population", space, seed=seed, options=options)
        rng, saved, losses = np.random.default_rng(seed), {}, []
        while proposals := strategy.ask(1):
            (proposal,) = proposals
            weights = saved.get(proposal.resume_from, start)
            saved[proposal.number] = trained(weights, proposal.parameters["rate"], n_steps, rng)
            losses.append(loss(saved[proposal.number]))
            strategy.tell(proposal, losses[-1])
        reached.append(min(losses))
    assert np.mean(reached) < constant
