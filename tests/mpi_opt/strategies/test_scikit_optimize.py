"""`strategy: scikit-optimize` against `skopt.Optimizer` driven by hand."""

import math

import numpy as np
import pytest
import skopt

from mpi_opt.core.search_space.space import Integer, Real, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import make_strategy
from mpi_opt.testing.strategy_tests import SPACES, run

SPACE = Space({"x": Real(-1, 2), "rate": Real(1e-4, 1, prior="log-uniform"), "n": Integer(0, 50)})
DIMENSIONS = [(-1.0, 2.0), (1e-4, 1.0, "log-uniform"), (0, 50)]
QUICK = {"n_initial_points": 6, "n_points": 300}
EXTRA = QUICK | {"acq_func": "EI", "base_estimator": "ET"}


def cost(point):
    return (point["x"] - 0.5) ** 2 + (math.log10(point["rate"]) + 2) ** 2 / 4 + abs(point["n"] - 20) / 20


def observed(n, space=SPACE, seed=0):
    rng = np.random.default_rng(seed)
    return [(Proposal(number, point), cost(point)) for number, point in enumerate(space.sample(rng) for _ in range(n))]


def by_hand(told, lies=(), seed=5, **options):
    """The next point of an `Optimizer` with these observations; `lies` are rows and costs of pending trials."""
    number = len(told) + len(lies)
    options = {"n_initial_points": 6, "acq_func": "EI", "acq_optimizer_kwargs": {"n_points": 300}} | options
    state = int(np.random.SeedSequence([seed, number + 1]).generate_state(1)[0])
    optimizer = skopt.Optimizer(DIMENSIONS, random_state=state, **options)
    rows = [list(proposal.parameters.values()) for proposal, _ in told] + [row for row, _ in lies]
    optimizer.tell(rows, [cost for _, cost in told] + [cost for _, cost in lies])
    return optimizer.ask()


def values(proposal):
    return pytest.approx(list(proposal.parameters.values()), rel=1e-12)


@pytest.mark.parametrize("options", [{"base_estimator": "GP"}, {"base_estimator": "ET"}, {"acq_func": "LCB"}])
def test_proposal_is_that_of_the_optimizer(options):
    strategy, told = (
        make_strategy("scikit-optimize", SPACE, seed=5, options={"acq_func": "EI"} | QUICK | options),
        observed(8),
    )
    strategy.resume(told)
    assert by_hand(told, **options) == values(strategy.ask(1)[0])


@pytest.mark.parametrize(("liar", "lie"), [("cl_min", min), ("cl_max", max), ("cl_mean", np.mean)])
def test_pending_trials_are_reported_with_a_constant_liar(liar, lie):
    strategy = make_strategy("scikit-optimize", SPACE, seed=5, options=EXTRA | {"constant_liar": liar})
    told = observed(7)
    strategy.resume(told)
    first, second = strategy.ask(2)
    assert by_hand(told, base_estimator="ET") == values(first)
    lies = [(list(first.parameters.values()), lie([cost for _, cost in told]))]
    assert by_hand(told, lies, base_estimator="ET") == values(second)


def test_failed_trials_count_as_the_largest_cost_so_far(monkeypatch):
    seen = []
    monkeypatch.setattr(skopt.Optimizer, "tell", spied(skopt.Optimizer.tell, seen))
    strategy, told = make_strategy("scikit-optimize", SPACE, seed=5, options=EXTRA), observed(8)
    outcomes = [Failed("memory"), 3.0, 1.0, math.nan, 5.0, 2.0, Failed("memory"), 4.0]
    strategy.resume([(proposal, outcome) for (proposal, _), outcome in zip(told, outcomes, strict=True)])
    strategy.ask(1)
    assert seen[-1][1] == [3.0, 3.0, 1.0, 3.0, 5.0, 2.0, 5.0, 4.0]


def spied(tell, seen):
    def spying(self, x, y, fit=True):
        seen.append((x, y))
        return tell(self, x, y, fit)

    return spying


def test_inactive_hyperparameters_tell_no_points_apart(monkeypatch):
    seen, space = [], SPACES["conditional"]
    monkeypatch.setattr(skopt.Optimizer, "tell", spied(skopt.Optimizer.tell, seen))
    strategy = make_strategy("scikit-optimize", space, options=EXTRA)
    sgd = {"optimizer": "sgd", "momentum": 0.25, "nesterov": True, "schedule": "cosine"}
    plain = {"optimizer": "sgd", "momentum": 0.5, "nesterov": False}
    adam = [{"optimizer": "adam", "beta": beta} for beta in (0.81, 0.86, 0.91, 0.96)]
    strategy.resume([(Proposal(number, point), float(number)) for number, point in enumerate([sgd, plain, *adam])])
    strategy.ask(1)
    beta, schedule = pytest.approx(0.8995), "0"
    expected = [["0", 0.25, "0", beta, "1"], ["0", 0.5, "1", beta, schedule]]
    expected += [["1", 0.495, "0", one["beta"], schedule] for one in adam]
    assert seen[-1][0] == expected


@pytest.mark.parametrize("kind", ["categorical", "conditional"])
def test_gaussian_process_copes_with_categories_of_any_kind(kind):
    strategy = make_strategy("scikit-optimize", SPACES[kind], seed=1, options=QUICK | {"acq_func": "EI"})
    asked, _ = run(strategy, SPACES[kind], 11)
    assert len({repr(proposal.parameters) for proposal in asked}) == 11


def test_a_resumed_hedge_proposes_the_same_points():
    living, resumed = (make_strategy("scikit-optimize", SPACE, seed=5, options=QUICK) for _ in range(2))
    told = []
    for _ in range(8):
        (proposal,) = living.ask(1)
        told.append((proposal, cost(proposal.parameters)))
        living.tell(*told[-1])
    resumed.resume(told)
    assert living._hedge.gains_.tolist() == resumed._hedge.gains_.tolist() != [0.0, 0.0, 0.0]
    assert living.ask(2) == resumed.ask(2)


def test_initial_points_are_those_of_the_generator():
    options = {"n_initial_points": 4, "initial_point_generator": "grid"}
    asked = make_strategy("scikit-optimize", {"x": Real(0, 3)}, options=options).ask(4)
    assert sorted(proposal.parameters["x"] for proposal in asked) == pytest.approx([0.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acq_func": "EIps"}, "acq_func"),
        ({"acq_func": "EI", "kappa": 2.0}, "EI has no kappa"),
        ({"acq_func": "LCB", "xi": 2.0}, "LCB has no xi"),
        ({"base_estimator": "ET", "acq_optimizer": "lbfgs"}, "ET has no gradients"),
        ({"n_points": 0}, "n_points"),
        ({"constant_lie": "cl_min"}, "did you mean constant_liar"),
    ],
)
def test_unsupported_options_of_scikit_optimize_are_refused_at_the_start(options, message):
    with pytest.raises(ConfigurationError, match=message):
        make_strategy("scikit-optimize", SPACE, options=options)


def test_estimator_that_the_installed_versions_do_not_support_is_refused_at_the_start(monkeypatch):
    def refuse(*arguments, **options):
        raise ValueError("no such parameter")

    monkeypatch.setattr(skopt, "Optimizer", refuse)
    with pytest.raises(ConfigurationError, match=r"does not support base_estimator: GBRT: no such parameter") as caught:
        make_strategy("scikit-optimize", SPACE, options=QUICK | {"base_estimator": "GBRT"})
    assert f"scikit-optimize {skopt.__version__} with scikit-learn" in caught.value.problem
    assert "GP, RF, ET" in caught.value.cure


def test_several_figures_of_merit_are_refused_at_the_start():
    with pytest.raises(ConfigurationError, match="one figure of merit, but there are 2"):
        make_strategy("scikit-optimize", SPACE, n_figures=2)
