"""The rules that every strategy follows, over every kind of space, as a class of tests.

One search per strategy and space serves several tests: eighteen trials, some in flight, reported in a shuffled order,
every fifth one failed and every fifth one NaN.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest

from mpi_opt.core.figures import Measured
from mpi_opt.core.search_space.space import Categorical, Integer, Parameters, Real, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.make_strategy import make_strategy
from mpi_opt.strategies.points.checked_strategy import CheckedStrategy
from mpi_opt.strategies.strategy import Cost, Strategy

SPACES = {
    "real": Space({"x": Real(-5, 10), "y": Real(0, 1)}),
    "log": Space({"rate": Real(1e-5, 1e-1, prior="log-uniform"), "width": Integer(1, 4096, prior="log-uniform")}),
    "integer": Space({"n": Integer(-3, 60), "m": Integer(0, 2)}),
    "step": Space({"units": Integer(16, 256, step=16), "dropout": Real(0, 0.8, step=0.1)}),
    "categorical": Space({"kind": Categorical(("a", "b", None, True, 1)), "size": Categorical((32, 64, 128, 256))}),
    "conditional": Space(
        {
            "optimizer": Categorical(("sgd", "adam")),
            "momentum": Real(0, 0.99, when={"optimizer": "sgd"}),
            "nesterov": Categorical((True, False), when={"optimizer": "sgd"}),
            "beta": Real(0.8, 0.999, when={"optimizer": ["adam"]}),
            "schedule": Categorical(("none", "cosine"), when={"nesterov": True}),
        }
    ),
    "tiny": Space({"a": Integer(0, 1), "b": Categorical(("x", "y")), "c": Integer(1, 3, when={"b": "x"})}),
    "branching": Space(
        {
            "penalty": Real(0, 1, when={"kind": "machine"}),
            "kind": Categorical(("linear", "tree", "machine")),
            "depth": Integer(1, 6, when={"kind": "tree"}),
        }
    ),
    "single": Space({"only": Categorical(("one",))}),
    "mixed": Space(
        {
            "rate": Real(1e-4, 1, prior="log-uniform"),
            "x": Real(-1, 1),
            "units": Integer(8, 128, step=8),
            "depth": Integer(1, 5),
            "activation": Categorical(("relu", "tanh", "elu")),
            "optimizer": Categorical(("sgd", "adam")),
            "momentum": Real(0, 0.99, when={"optimizer": "sgd"}),
        }
    ),
}
N_POINTS = {"tiny": 8, "single": 1, "categorical": 20, "step": 144, "integer": 192}
"""How many different points the finite ones have."""


def cost(space: Space, parameters: Parameters) -> float:
    """Smallest, 0, at the middle of every dimension."""
    return float(np.sum((space.encode(parameters) - 0.5) ** 2))


def run(
    strategy: Strategy,
    space: Space,
    n_trials: int,
    in_flight: int = 4,
    outcome: Callable[[Proposal], Cost | Failed] | None = None,
    order: int = 0,
) -> tuple[list[Proposal], list[tuple[Proposal, Cost | Failed]]]:
    """Runs trials, some at the same time, whose outcomes arrive in a shuffled order.

    Args:
        strategy: A new strategy, or one that has been resumed.
        space: Its search space.
        n_trials: The search ends after this number of trials, or when the strategy makes no more proposals.
        in_flight: The largest number of trials without an outcome.
        outcome: The outcome of a proposal; by default its `cost`.
        order: The seed of the order.

    Returns:
        The proposals in the order of asking, and the reported outcomes in theirs.
    """
    outcome = outcome or (lambda proposal: cost(space, proposal.parameters))
    rng = random.Random(order)
    pending: list[Proposal] = []
    asked: list[Proposal] = []
    observed: list[tuple[Proposal, Cost | Failed]] = []
    while len(observed) < n_trials:
        if len(pending) < in_flight and len(asked) < n_trials:
            new = strategy.ask(min(in_flight - len(pending), n_trials - len(asked)))
            asked, pending = asked + new, pending + new
            if not new and not pending:
                break
        if pending:
            proposal = pending.pop(rng.randrange(len(pending)))
            observed.append((proposal, outcome(proposal)))
            strategy.tell(*observed[-1])
    return asked, observed


N_TRIALS = 18
EXTREMES = [(0.0, 1.0), (1e300, 5e299), (-1e300, 1e300), (1.7e308, -1.7e308), (1e-300, 1.0), (0, 5e-324)]

every_space = pytest.mark.parametrize("kind", list(SPACES))
some_spaces = pytest.mark.parametrize("kind", ["tiny", "conditional", "mixed"])


class StrategyTests:
    """The tests of a strategy. Derive a class whose name begins with ``Test``, and set `strategy`.

    Attributes:
        strategy: The class, or the name that ``search.strategy`` would have.
        options: The options with which it is constructed, for example for a model that is fitted after few trials.
        repeats_points: Whether it may propose a point again before a finite space is used up.
        depends_on_seed: Whether another seed gives other proposals.
        n_trials_to_improve: Number of trials after which it has found a point near the optimum of a parabola in two
            dimensions, which is harder than for random points; None if it does not learn from outcomes.
    """

    strategy: ClassVar[type[Strategy] | str]
    options: ClassVar[Mapping[str, Any]] = {}
    repeats_points: ClassVar[bool] = False
    depends_on_seed: ClassVar[bool] = True
    n_trials_to_improve: ClassVar[int | None] = 40

    @classmethod
    def make(cls, space: Space, seed: int = 3) -> Strategy:
        """A new strategy, whose proposals are checked as in a search."""
        if isinstance(cls.strategy, str):
            return make_strategy(cls.strategy, space, seed=seed, options=cls.options)
        constructor: Callable[..., Strategy] = cls.strategy
        return CheckedStrategy(constructor(space, seed=seed, options=dict(cls.options)), space)

    @classmethod
    @cache
    def searched(cls, kind: str) -> tuple[list[Proposal], list[tuple[Proposal, Cost | Failed]]]:
        """The search in the space `kind` that several tests share; see `run`."""
        return run(cls.make(SPACES[kind]), SPACES[kind], N_TRIALS, outcome=_often_failing(SPACES[kind]))

    @every_space
    def test_every_proposal_is_a_point_of_the_space_and_numbers_are_dense(self, kind: str) -> None:
        asked, observed = self.searched(kind)
        assert len(observed) == len(asked) >= min(N_POINTS.get(kind, 17), 17)  # a grid of `branching` has 17
        assert [proposal.number for proposal in asked] == list(range(len(asked)))
        for proposal in asked:
            SPACES[kind].check(proposal.parameters)
            assert json.loads(json.dumps(proposal.parameters)) == proposal.parameters

    @every_space
    def test_no_point_comes_twice_before_the_space_is_used_up(self, kind: str) -> None:
        if self.repeats_points:
            pytest.skip("the strategy repeats points")
        started = [proposal for proposal in self.searched(kind)[0] if proposal.resume_from is None]
        n_points = int(min(N_POINTS.get(kind, math.inf), len(started)))
        assert len({_key(proposal) for proposal in started[:n_points]}) == n_points

    @every_space
    def test_resumed_strategy_proposes_the_same_points(self, kind: str) -> None:
        """The search is interrupted with trials in flight; the second half is the same."""
        asked, observed = self.searched(kind)
        n_observed = 2 * len(observed) // 3
        n_asked = n_observed + 3
        resumed = self.make(SPACES[kind])
        pending = [
            proposal for proposal in asked[:n_asked] if proposal not in [one for one, _ in observed[:n_observed]]
        ]
        resumed.resume(observed[:n_observed], pending)
        for proposal, outcome in observed[n_observed:]:
            new = resumed.ask(min(1, N_TRIALS - n_asked))
            assert new == asked[n_asked : n_asked + 1]
            n_asked += len(new)
            resumed.tell(proposal, outcome)

    @some_spaces
    def test_same_seed_and_same_calls_give_the_same_proposals(self, kind: str) -> None:
        asked, _ = run(self.make(SPACES[kind]), SPACES[kind], N_TRIALS, outcome=_often_failing(SPACES[kind]))
        assert asked == self.searched(kind)[0]

    def test_another_seed_gives_other_proposals(self) -> None:
        if not self.depends_on_seed:
            pytest.skip("the strategy ignores the seed")
        first, second = (self.make(SPACES["mixed"], seed).ask(3) for seed in (0, 1))
        assert first != second

    @pytest.mark.parametrize("kind", ["tiny", "single"])
    def test_asking_for_more_than_the_space_holds_does_not_hang(self, kind: str) -> None:
        space = SPACES[kind]
        strategy = self.make(space, 1)
        asked, observed = run(strategy, space, 16, in_flight=12)
        assert len(asked) == len(observed)
        if not self.repeats_points and all(proposal.resume_from is None for proposal in asked):
            assert len({_key(proposal) for proposal in asked}) == N_POINTS[kind]
        if len(asked) < 16:
            assert strategy.ask(3) == []
            assert strategy.finished

    @some_spaces
    def test_all_failed_is_survived(self, kind: str) -> None:
        asked, _ = run(self.make(SPACES[kind]), SPACES[kind], 12, outcome=lambda proposal: Failed("always"))
        assert len(asked) >= min(12, N_POINTS.get(kind, 12))

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("values", EXTREMES)
    def test_constant_and_extreme_values_are_survived_without_a_warning(self, values: tuple[float, float]) -> None:
        space = SPACES["mixed"]
        asked, _ = run(self.make(space), space, 14, outcome=lambda proposal: values[proposal.number % 4 == 0])
        assert len(asked) == 14

    @pytest.mark.parametrize("uncertainty", [0.0, 1e200, math.inf, math.nan])
    def test_any_uncertainty_is_survived(self, uncertainty: float) -> None:
        space = SPACES["mixed"]

        def outcome(proposal: Proposal) -> Measured:
            return Measured(cost(space, proposal.parameters), uncertainty if proposal.number % 3 else 1e-3)

        asked, observed = run(self.make(space), space, 14, outcome=outcome)
        assert len(asked) == len(observed) == 14

    def test_numbers_of_numpy_are_numbers(self) -> None:
        strategy, twin = self.make(SPACES["real"]), self.make(SPACES["real"])
        for kind, value in ((np.float32, 0.5), (np.int64, -2), (np.float16, math.nan)):
            strategy.tell(strategy.ask(1)[0], kind(value))  # type: ignore[arg-type]
            twin.tell(twin.ask(1)[0], value)
        assert strategy.ask(9) == twin.ask(9)

    def test_trials_that_the_strategy_did_not_propose_may_be_reported(self) -> None:
        space = SPACES["mixed"]
        strategy, rng = self.make(space), np.random.default_rng(0)
        for number in range(12):
            proposal = Proposal(number, space.sample(rng))
            strategy.tell(proposal, cost(space, proposal.parameters))
        (proposal,) = strategy.ask(1)
        assert proposal.number == 12
        space.check(proposal.parameters)

    def test_finds_better_points_than_the_first(self) -> None:
        if self.n_trials_to_improve is None:
            pytest.skip("the strategy does not learn from outcomes")
        space = SPACES["real"]
        _, observed = run(self.make(space, 0), space, self.n_trials_to_improve)
        assert min(cost(space, proposal.parameters) for proposal, _ in observed) < 0.02


def _key(proposal: Proposal) -> tuple[str, float | None, int | None]:
    return repr(sorted(proposal.parameters.items())), proposal.budget, proposal.resume_from


def _often_failing(space: Space) -> Callable[[Proposal], Cost | Failed]:
    def outcome(proposal: Proposal) -> Cost | Failed:
        if proposal.number % 5 == 3:
            return Failed("out of memory")
        return math.nan if proposal.number % 5 == 4 else cost(space, proposal.parameters)

    return outcome
