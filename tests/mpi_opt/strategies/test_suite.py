"""The public suite of tests fails for a strategy with a defect, in the test of that rule."""

from dataclasses import replace

import pytest

from mpi_opt.core.trial import Failed
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.designs.random_search import RandomSearch
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.testing import StrategyTests


class Correct(Strategy):
    """Random search; the defective strategies override one of its methods."""

    def __init__(self, space, seed=0, options=None):
        self.search, self.space = RandomSearch(space, seed), space

    def ask(self, count):
        return self.search.ask(count)

    def tell(self, proposal, outcome):
        self.search.tell(proposal, outcome)

    def resume(self, observed, pending=()):
        self.search.resume(observed, pending)


class NumbersWithGaps(Correct):
    def ask(self, count):
        return [replace(one, number=2 * one.number) for one in super().ask(count)]


class SamePoint(Correct):
    def ask(self, count):
        return [replace(one, parameters=self.space.decode([0.5] * len(self.space))) for one in super().ask(count)]


class ForgetsPendingTrials(Correct):
    def resume(self, observed, pending=()):
        super().resume(observed)


class IgnoresTheSeed(Correct):
    def __init__(self, space, seed=0, options=None):
        super().__init__(space, seed=5)


class GivesUp(Correct):
    n_failed = 0

    def tell(self, proposal, outcome):
        super().tell(proposal, outcome)
        self.n_failed += isinstance(outcome, Failed)

    def ask(self, count):
        return super().ask(count) if self.n_failed < 5 else []


class Squares(Correct):
    def tell(self, proposal, outcome):
        super().tell(proposal, outcome)
        assert isinstance(outcome, Failed) or outcome**2 >= 0


class NeedsItsOwnTrials(Correct):
    def tell(self, proposal, outcome):
        if proposal.number not in self.search._bookkeeping.pending:
            raise KeyError(proposal.number)
        super().tell(proposal, outcome)


DEFECTS = {
    NumbersWithGaps: ("every_proposal_is_a_point_of_the_space_and_numbers_are_dense", "real"),
    SamePoint: ("no_point_comes_twice_before_the_space_is_used_up", "mixed"),
    ForgetsPendingTrials: ("resumed_strategy_proposes_the_same_points", "integer"),
    IgnoresTheSeed: ("another_seed_gives_other_proposals",),
    GivesUp: ("all_failed_is_survived", "mixed"),
    Squares: ("constant_and_extreme_values_are_survived_without_a_warning", (1e300, 5e299)),
    NeedsItsOwnTrials: ("trials_that_the_strategy_did_not_propose_may_be_reported",),
}


@pytest.mark.parametrize("strategy", DEFECTS, ids=lambda strategy: strategy.__name__)
def test_defect_of_a_strategy_fails_the_test_of_its_rule(strategy):
    name, *arguments = DEFECTS[strategy]
    for cls in (Correct, strategy):
        suite = type(f"Test{cls.__name__}", (StrategyTests,), {"strategy": cls})()
        test = getattr(suite, f"test_{name}")
        if cls is Correct:
            test(*arguments)
            continue
        with pytest.raises((AssertionError, ConfigurationError, KeyError, OverflowError)):
            test(*arguments)
