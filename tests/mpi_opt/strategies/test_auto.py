"""The strategy that chooses between a model and children of the best trials."""

import pytest

from mpi_opt.core.search_space.space import Real, Space
from mpi_opt.strategies import make_strategy

SPACE = Space({"x": Real(0, 1), "y": Real(0, 1)})


def ended(n):
    rng_points = make_strategy("random", SPACE, seed=5).ask(n)
    return [(one, (one.parameters["x"] - 0.4) ** 2 + one.parameters["y"]) for one in rng_points]


def strategies(n_ended, *names):
    made = [make_strategy(name, SPACE, seed=2) for name in names]
    for strategy in made:
        strategy.resume(ended(n_ended))
    return made


def test_a_model_makes_every_proposal_if_nobody_waits():
    auto, bayesian = strategies(40, "auto", "bayesian")
    assert auto.ask(5) == bayesian.ask(5)


def test_children_are_proposed_if_no_model_is_affordable():
    auto, children, bayesian = strategies(40, "auto", "bayesian", "bayesian")
    auto.afford(0)
    children.afford(0)
    assert auto.ask(5) == children.ask(5)
    assert auto.ask(1) != bayesian.ask(1)


def test_a_call_has_as_many_proposals_of_a_model_as_are_affordable():
    auto, bayesian = strategies(40, "auto", "bayesian")
    auto.afford(2)
    bayesian.afford(2)
    assert auto.ask(6) == bayesian.ask(6)


def test_the_choice_is_described_and_follows_what_is_affordable():
    assert make_strategy("auto", SPACE).choice.startswith("bayesian: ")
    (auto,) = strategies(40, "auto")
    assert auto.choice == "", "nothing is known of the durations of the trials yet"
    auto.afford(0)
    auto.ask(20)
    assert auto.choice.startswith("evolutionary: ")
    auto.afford(1)
    for _ in range(20):
        auto.ask(2)
    assert auto.choice.startswith("bayesian where ")


def test_initial_points_do_not_count_as_a_choice():
    auto = make_strategy("auto", SPACE, seed=2)
    auto.afford(0)
    for proposal in auto.ask(60):
        auto.tell(proposal, proposal.parameters["x"])
    assert auto.choice == ""


def test_other_strategies_have_no_choice():
    assert {make_strategy(name, SPACE).choice for name in ("bayesian", "random", "evolutionary")} == {""}


def test_an_option_of_bayesian_is_refused():
    with pytest.raises(Exception, match="unknown key"):
        make_strategy("auto", SPACE, options={"kappa": 2.0})


def test_each_trial_is_encoded_once(monkeypatch):
    """The bookkeeping and the children need the same row, and a resumed search may have 100,000 trials."""
    n_encoded, encode = [], Space.encode
    monkeypatch.setattr(Space, "encode", lambda space, point: n_encoded.append(1) or encode(space, point))
    strategies(200, "auto")
    n_parents = 40  # those that were the best when they ended are encoded again
    assert 200 <= len(n_encoded) < 200 + n_parents
