import math
import time

import numpy as np
import pytest

from mpi_opt.core.figures import Measured
from mpi_opt.core.search_space.space import Integer, Real, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import Decision, make_strategy
from mpi_opt.strategies.bayesian import MAX_PENDING_ROWS
from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess
from mpi_opt.strategies.surrogates.rung_model import RungModel

SPACE = Space({"x": Real(0, 1)})
OPTIONS = {"min_budget": 1, "max_budget": 9, "factor": 3, "exploration": 0}


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


def test_promotions_come_from_the_highest_rung_first():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS)
    first = strategy.ask(12)
    for proposal in first[:9]:
        strategy.tell(proposal, proposal.parameters["x"])
    for proposal in [*strategy.ask(3), *first[9:]]:  # 3 costs at the second rung, 12 at the first
        strategy.tell(proposal, proposal.parameters["x"])
    assert [proposal.budget for proposal in strategy.ask(2)] == [9, 3]


@pytest.mark.parametrize(("least", "largest", "budgets"), [(1, 10, {1, 3, 10}), (0.1, 1, {0.1, math.sqrt(0.1), 1})])
def test_rungs_are_whole_epochs_if_the_first_and_the_last_are(least, largest, budgets):
    options = OPTIONS | {"min_budget": least, "max_budget": largest}
    strategy = make_strategy("halving", SPACE, seed=0, options=options)
    _, _, proposals = searched(strategy, 13, lambda one: one.parameters["x"])
    assert sorted({proposal.budget for proposal in proposals.values()}) == pytest.approx(sorted(budgets))


def test_failed_trials_are_not_promoted():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS)
    for proposal in strategy.ask(9):
        strategy.tell(proposal, Failed("diverged") if proposal.number else math.nan)
    assert {proposal.resume_from for proposal in strategy.ask(5)} == {None}


def test_hyperband_starts_some_configurations_higher():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS | {"brackets": 3})
    budgets = [proposal.budget for proposal in strategy.ask(600)]
    shares = np.array([1.0, 2 / 3, 3 / 9])  # (i + 1) / factor^i
    assert [budgets.count(budget) for budget in (1, 3, 9)] == pytest.approx(600 * shares / shares.sum(), abs=3)


def test_without_resuming_a_running_trial_is_stopped_at_a_rung():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS | {"resume": False})
    trials = strategy.ask(6)
    assert {proposal.budget for proposal in trials} == {None}
    decisions = [strategy.report(proposal, 0, float(proposal.number)) for proposal in trials]
    assert decisions == [Decision.CONTINUE] * 2 + [Decision.STOP] * 4
    assert strategy.report(trials[0], 1, 0.0) is Decision.CONTINUE


def test_a_stopped_trial_that_runs_again_is_stopped_at_the_same_rung():
    """Its rank may be lost before it stops. Its second attempt reports the same values."""
    strategy = make_strategy(
        "halving", SPACE, seed=0, options={"max_budget": 9, "factor": 3, "min_budget": 2, "resume": False}
    )
    trials = strategy.ask(3)
    for trial in trials:
        assert strategy.report(trial, 0, float(trial.number)) is Decision.CONTINUE
    assert [strategy.report(trial, 1, float(trial.number)) for trial in trials[:2]] == [Decision.CONTINUE] * 2
    for _attempt in range(2):
        assert strategy.report(trials[2], 0, 2.0) is Decision.CONTINUE
        assert strategy.report(trials[2], 1, 2.0) is Decision.STOP
    assert strategy.report(trials[0], 0, 0.0) is Decision.CONTINUE
    assert strategy.report(trials[0], 1, 0.0) is Decision.CONTINUE


def test_a_value_between_two_rungs_changes_neither():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS | {"resume": False})
    trials = strategy.ask(7)
    for trial in trials[:6]:
        strategy.report(trial, 0, 10.0 + trial.number)
    assert strategy.report(trials[0], 1, 99.0) is Decision.CONTINUE  # still the best at the first rung
    assert strategy.report(trials[2], 1, 0.0) is Decision.STOP  # too late: it was the third
    assert strategy.report(trials[6], 0, 10.5) is Decision.CONTINUE  # the second of seven


def test_a_value_that_is_not_finite_is_not_among_the_best():
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS | {"resume": False})
    trials = strategy.ask(6)
    values = [1.0, -math.inf, math.nan, 0.0, 2.0, 3.0]
    decisions = [strategy.report(proposal, 0, value) for proposal, value in zip(trials, values, strict=True)]
    assert [decision is Decision.STOP for decision in decisions] == [False, False, True, False, True, True]


def test_no_more_than_one_in_three_is_promoted_however_the_best_change():
    """Each configuration is better than all before: without a limit every one would be promoted at once."""
    strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS | {"max_budget": 3})
    first, n_promoted = 0, 0
    for number in range(40):
        (proposal,) = strategy.ask(1)
        first, n_promoted = first + (proposal.budget == 1), n_promoted + (proposal.budget == 3)
        strategy.tell(proposal, -float(number))
        assert n_promoted <= first / 3
    assert n_promoted == 10


def searched(strategy, n_trials, value):
    """Runs trials one by one; returns the epochs of new configurations, those of promotions, and the proposals."""
    new, promoted, proposals = 0.0, 0.0, {}
    for _ in range(n_trials):
        (proposal,) = strategy.ask(1)
        proposals[proposal.number] = proposal
        if proposal.resume_from is None:
            new += proposal.budget
        else:
            promoted += proposal.budget - proposals[proposal.resume_from].budget
        strategy.tell(proposal, value(proposal))
    return new, promoted, proposals


@pytest.mark.parametrize("brackets", [1, 3])
def test_new_configurations_get_their_part_of_the_epochs(brackets):
    for part in (0.5, 0.8):
        options = OPTIONS | {"exploration": part, "brackets": brackets, "proposer": "random"}
        strategy = make_strategy("halving", SPACE, seed=1, options=options)
        new, promoted, _ = searched(strategy, 400, lambda one: one.parameters["x"])
        of_all = new / (new + promoted)
        assert of_all >= part - 8 / (new + promoted)  # the first of each rung, 8 epochs, wait for nothing
        assert of_all < part + 0.1 or brackets > 1  # brackets leave fewer to promote


def test_first_promotion_of_a_rung_does_not_wait_for_new_configurations():
    runs = [
        searched(
            make_strategy("halving", SPACE, seed=1, options=OPTIONS | {"exploration": part}), 13, lambda one: one.number
        )
        for part in (0, 0.8)
    ]
    first_full = [min(one.number for one in run[2].values() if one.budget == 3) for run in runs]
    assert first_full == [3, 3]


def test_epochs_of_the_first_promotion_do_not_delay_the_second():
    """The second one takes 2 epochs, a fifth of all when 8 new configurations have taken one each."""
    options = OPTIONS | {"max_budget": 3, "exploration": 0.8, "proposer": "random"}
    _, _, proposals = searched(make_strategy("halving", SPACE, seed=1, options=options), 10, lambda one: one.number)
    assert [number for number, proposal in proposals.items() if proposal.budget == 3] == [3, 9]


@pytest.mark.parametrize(
    ("space", "constraints"),
    [
        ({"n": Integer(1, 12)}, []),
        ({"n": Integer(1, 100)}, ["n <= 12"]),
        ({"n": Integer(0, 9), "m": Integer(1, 3, when={"n": [0]})}, []),
    ],
    ids=["plain", "constraint", "conditional"],
)
def test_promotions_wait_for_nothing_when_the_space_is_used_up(space, constraints):
    options = OPTIONS | {"exploration": 0.9, "constraints": constraints}
    strategy = make_strategy("halving", space, seed=1, options=options)
    _, _, proposals = searched(strategy, 17, lambda one: one.parameters["n"] + one.parameters.get("m", 0))
    assert sorted(one.budget for one in proposals.values()) == [1] * 12 + [3] * 4 + [9]


def test_exploration_is_remembered_by_a_search_that_was_broken_off():
    options = {"max_budget": 9, "proposer": "random"}
    whole, told = make_strategy("halving", SPACE, seed=3, options=options), []
    for _ in range(60):
        (proposal,) = whole.ask(1)
        told.append((proposal, proposal.parameters["x"]))
        whole.tell(*told[-1])
    parts = make_strategy("halving", SPACE, seed=3, options=options)
    parts.resume(told)
    for _ in range(30):
        (mine,), (theirs,) = parts.ask(1), whole.ask(1)
        assert mine == theirs
        parts.tell(mine, mine.parameters["x"])
        whole.tell(theirs, theirs.parameters["x"])


def test_configurations_come_from_the_highest_rung_that_says_enough():
    """The best value after one epoch, x = 0, is the worst after nine. The model learns this."""
    points = [{"x": (number + 0.5) / 30} for number in range(30)]
    low = {number: point["x"] for number, point in enumerate(points)}
    high = {number: (points[number]["x"] - 0.8) ** 2 for number in range(0, 30, 2)}
    model = RungModel(SPACE, 0, {})
    assert model.point(points, [low, dict(list(high.items())[:7]), {}], 0) is None
    assert abs(model.point(points, [low, high, {0: 1.0}], 0)["x"] - 0.8) < 0.1
    failed = high | dict.fromkeys(range(20, 30))
    assert model.point(points, [low, failed, {}], 0)["x"] < 0.75


@pytest.mark.parametrize("is_resumed", [False, True])
def test_model_of_a_rung_weights_costs_by_their_uncertainties(is_resumed):
    """One cost at the second rung is excellent. Whether it is certain matters there alone."""

    def proposed(uncertainty):
        strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS)
        told = []
        while sum(one.budget == 3 for one, _ in told) < 8:
            (one,) = strategy.ask(1)
            x = one.parameters["x"]
            is_outlier = one.budget == 3 and sum(other.budget == 3 for other, _ in told) == 4
            told.append((one, Measured(-5.0 if is_outlier else x**2, uncertainty if is_outlier else 1e-3)))
            strategy.tell(*told[-1])
        if is_resumed:
            strategy = make_strategy("halving", SPACE, seed=0, options=OPTIONS)
            strategy.resume(told)
        return [one for one in strategy.ask(6) if one.resume_from is None]

    assert proposed(1e-6) != proposed(100.0)


def test_with_many_pending_configurations_are_prepared_by_that_model():
    points = [{"x": (number + 0.5) / 30} for number in range(30)]
    values = {number: (point["x"] - 0.8) ** 2 for number, point in enumerate(points)}
    model, found = RungModel(SPACE, 0, {}), []
    for _ in range(15):
        point = model.point(points, [values, values], n_pending=255)
        model._prepared.wait()  # as if trials took so long
        if point is not None:
            found.append(point)
            points.append(point)
    assert len(found) > 12  # none is there the first time
    assert len({point["x"] for point in points}) == len(points)
    assert abs(found[0]["x"] - 0.8) < 0.1


def test_model_has_a_limited_number_of_pending_points(monkeypatch):
    """Configurations without a cost on the rung of the model count as pending; the model's cost is cubic in them."""
    n_rows, of_gaussian_process = [], GaussianProcess.add_pending

    def add_pending(self, z):
        n_rows.append(len(z))
        of_gaussian_process(self, z)

    monkeypatch.setattr(GaussianProcess, "add_pending", add_pending)
    points = [{"x": float(x)} for x in np.random.default_rng(0).random(1000)]
    costs = {number: point["x"] for number, point in enumerate(points)}
    second = {number: cost for number, cost in costs.items() if number % 50 == 0}
    point = RungModel(SPACE, 0, {}).point(points, [costs, second], 1)
    assert point not in points
    assert max(n_rows) == MAX_PENDING_ROWS


def test_ask_is_quick_with_255_pending_and_many_rungs_reached():
    rng, space = np.random.default_rng(0), Space({name: Real(0, 1) for name in "abcdef"})
    strategy, told = make_strategy("halving", space, seed=1, options={"await_refit_up_to": 0}), []
    for number in range(600):
        told.append((Proposal(number, space.sample(rng), 1.0), float(rng.random())))
    told += [(Proposal(600 + number, told[number][0].parameters, 5.0, number), float(number)) for number in range(60)]
    strategy.resume(told)
    pending, waited = strategy.ask(255), []
    for _ in range(60):
        strategy.tell(pending.pop(0), float(rng.random()))
        began = time.perf_counter()
        pending += strategy.ask(1)
        waited.append(time.perf_counter() - began)
        time.sleep(0.005)
    assert np.median(waited) < 0.020
    assert strategy._model._prepared._preparation is not None  # the model is in use, beside


@pytest.mark.parametrize("name", ["random", "bayesian"])
def test_a_search_that_was_broken_off_proposes_the_same(name):
    options = OPTIONS | {"proposer": name}

    def value(proposal):
        return (proposal.parameters["x"] - 0.6) ** 2 + 1 / proposal.budget

    whole, told = make_strategy("halving", SPACE, seed=3, options=options), []
    for _ in range(45):
        (proposal,) = whole.ask(1)
        told.append((proposal, value(proposal)))
        whole.tell(*told[-1])
    parts = make_strategy("halving", SPACE, seed=3, options=options)
    parts.resume(told)
    for _ in range(4):
        (mine,), (theirs,) = parts.ask(1), whole.ask(1)
        assert mine == theirs
        parts.tell(mine, value(mine))
        whole.tell(theirs, value(theirs))


def test_min_budget_above_max_budget_is_an_error():
    with pytest.raises(ConfigurationError, match="min_budget"):
        make_strategy("halving", SPACE, options={"min_budget": 10, "max_budget": 3})


def test_reaches_the_regret_of_full_trainings_with_a_fifth_of_the_epochs():
    """Curves that cross little: value = quality + distance that shrinks with the epochs at a rate of its own."""
    rng = np.random.default_rng(0)
    quality, rate = rng.random(1500), rng.uniform(0.1, 0.2, 1500)

    def value(row, epoch):
        return quality[row] + 0.5 * math.exp(-rate[row] * epoch)

    space, ours, theirs = {"row": Integer(0, 1499)}, [], []  # a row says nothing about its neighbours
    options = {"min_budget": 2, "max_budget": 52, "proposer": "random"}
    for seed in range(11):
        strategy = make_strategy("halving", space, seed=seed, options=options)
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
