"""The tests that Optuna publishes for samplers, with our strategies behind an adapter.

Left out: the tests for several objectives, which want a sampler without a history. In Optuna, each trial may have a
space of its own; the adapter therefore makes a new strategy for each trial and tells it the trials of the same space.
"""

from __future__ import annotations

import pytest

from mpi_opt.core.search_space.space import Categorical, Dimension, Integer, Real, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies import make_strategy
from tests.optional_packages import is_installed, needs

pytestmark = [pytest.mark.thorough, needs("optuna")]
STRATEGIES = {
    "auto": {},
    "bayesian": {"initial_points": 3},
    "evolutionary": {"initial_points": 4, "population": 4},
    "random": {},
    "sobol": {},
}

if is_installed("optuna"):
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
    from optuna.samplers import BaseSampler
    from optuna.search_space import intersection_search_space
    from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase
else:  # the file is collected without Optuna
    BaseSampler = BasicSamplerTestCase = RelativeSamplerTestCase = object


class StrategySampler(BaseSampler):
    """A strategy as a sampler of Optuna."""

    def __init__(self, name: str) -> None:
        self.name, self.n_made = name, 0

    def infer_relative_search_space(self, study, trial):
        found = intersection_search_space(study.get_trials(deepcopy=False))
        return {name: one for name, one in found.items() if not one.single()}

    def sample_relative(self, study, trial, search_space):
        if not search_space:
            return {}
        past = [one for one in study.get_trials(deepcopy=False) if one.state.is_finished()]
        known = [one for one in past if all(_holds(search_space, one, name) for name in search_space)]
        return self._proposed(search_space, [({name: one.params[name] for name in search_space}, one) for one in known])

    def sample_independent(self, study, trial, param_name, param_distribution):
        return self._proposed({param_name: param_distribution}, [])[param_name]

    def _proposed(self, distributions, known):
        self.n_made += 1
        space = Space({name: _dimension(one) for name, one in distributions.items()})
        strategy = make_strategy(self.name, space, seed=self.n_made, options=STRATEGIES[self.name])
        strategy.resume(
            (Proposal(number, parameters), Failed("not a number") if one.value is None else one.value)
            for number, (parameters, one) in enumerate(known)
        )
        (proposal,) = strategy.ask(1)
        return dict(proposal.parameters)


def _holds(search_space: dict[str, BaseDistribution], trial: optuna.trial.FrozenTrial, name: str) -> bool:
    return name in trial.params and search_space[name]._contains(
        search_space[name].to_internal_repr(trial.params[name])
    )


def _dimension(distribution: BaseDistribution) -> Dimension:
    if isinstance(distribution, CategoricalDistribution):
        return Categorical(list(distribution.choices))
    prior = "log-uniform" if distribution.log else "uniform"
    if isinstance(distribution, IntDistribution):
        return Integer(distribution.low, distribution.high, prior=prior, step=distribution.step)
    return Real(distribution.low, distribution.high, prior=prior, step=distribution.step)


@pytest.fixture(params=list(STRATEGIES))
def sampler(request):
    return lambda: StrategySampler(request.param)


class TestAlone(BasicSamplerTestCase):
    @pytest.fixture
    def sampler(self, sampler):
        return sampler


class TestTogether(RelativeSamplerTestCase):
    @pytest.fixture
    def sampler(self, sampler):
        return sampler
