import numpy as np
import pytest

from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.core.trial import Failed
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.constructive import _one_of_the_best

SPACE = Space(
    {
        "depth": Integer(1, 3),
        "units_1": Integer(4, 64),
        "units_2": Integer(4, 64, when={"depth": [2, 3]}),
        "units_3": Integer(4, 64, when={"depth": [3]}),
        "activation": Categorical(("relu", "tanh")),
        "rate": Real(1e-4, 1e-1, prior="log-uniform"),
    }
)
STEPPED = Space({"depth": Integer(1, 4, step=2), "units": Integer(4, 64)})


def cost(parameters):
    layers = [parameters[name] for name in ("units_1", "units_2", "units_3") if name in parameters]
    return abs(layers[0] - 40) / 40 + sum(abs(units - 20) / 20 for units in layers[1:]) + 3 - len(layers)


def test_a_deeper_network_keeps_the_layers_of_the_best_shallower_one():
    strategy = make_strategy("constructive", SPACE, seed=0, options={"trials_per_depth": 8})
    trials = []
    for _ in range(24):
        (proposal,) = strategy.ask(1)
        trials.append(proposal.parameters)
        strategy.tell(proposal, cost(proposal.parameters))
    assert [parameters["depth"] for parameters in trials] == [1] * 8 + [2] * 8 + [3] * 8
    best = min(trials[:8], key=cost)
    kept = ("units_1", "activation", "rate")
    assert all(all(parameters[name] == best[name] for name in kept) for parameters in trials[8:16])
    best = min(trials[:16], key=cost)
    assert all(parameters["units_2"] == best["units_2"] for parameters in trials[16:])


def test_new_layer_is_drawn_at_random_also_without_conditions():
    """The best shallow network then has values for layers that it does not have."""
    space = Space({"layers": Integer(1, 2), "units_1": Integer(4, 64), "units_2": Integer(4, 64)})
    strategy = make_strategy("constructive", space, seed=0, options={"trials_per_depth": 8})
    trials = []
    for _ in range(16):
        (proposal,) = strategy.ask(1)
        trials.append(proposal.parameters)
        strategy.tell(proposal, abs(proposal.parameters["units_1"] - 40))
    assert [parameters["layers"] for parameters in trials] == [1] * 8 + [2] * 8
    best = min(trials[:8], key=lambda parameters: abs(parameters["units_1"] - 40))
    assert {parameters["units_1"] for parameters in trials[8:]} == {best["units_1"]}
    assert len({parameters["units_2"] for parameters in trials[8:]}) > 4


def test_afterwards_single_layers_of_the_best_are_drawn_again():
    strategy = make_strategy("constructive", SPACE, seed=0, options={"trials_per_depth": 4})
    points = []
    for _ in range(12):
        (proposal,) = strategy.ask(1)
        points.append(proposal.parameters)
        strategy.tell(proposal, cost(proposal.parameters))
    best = min(points, key=cost)
    (proposal,) = strategy.ask(1)
    assert sum(proposal.parameters[name] != value for name, value in best.items()) <= 1


def test_ten_networks_of_each_depth_are_tried_by_default():
    depths = [proposal.parameters["depth"] for proposal in make_strategy("constructive", SPACE).ask(21)]
    assert depths == [1] * 10 + [2] * 10 + [3]


def test_depth_stays_a_value_of_its_dimension_if_every_trial_fails():
    strategy, depths = make_strategy("constructive", STEPPED, options={"trials_per_depth": 1}), []
    for _ in range(5):
        (proposal,) = strategy.ask(1)
        depths.append(proposal.parameters["depth"])
        strategy.tell(proposal, Failed("out of memory"))
    assert depths == [1, 3, 3, 3, 3]


def test_depth_that_is_no_integer_is_an_error():
    with pytest.raises(ConfigurationError, match="depth"):
        make_strategy("constructive", SPACE, options={"depth": "activation"})


def test_network_that_grows_is_one_of_the_front_if_there_are_several_figures():
    costs = [(3.0, 3.0), (1.0, 4.0), (2.0, 2.0), (4.0, 1.0), (2.0, 2.5)]
    networks = [(cost, {"units": number}) for number, cost in enumerate(costs)]
    rng = np.random.default_rng(0)
    assert {_one_of_the_best(networks, rng)["units"] for _ in range(60)} == {1, 2, 3}
    single = [(cost, {"units": number}) for number, cost in enumerate([3.0, 1.0, 2.0])]
    assert {_one_of_the_best(single, rng)["units"] for _ in range(9)} == {1}
