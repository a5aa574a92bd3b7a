"""One interface for our strategies and those of other programs (``pip install optuna cmaes torch``)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from protocol import Searcher

from mpi_opt.core.search_space.space import Categorical, Dimension, Integer, Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies import make_strategy


class Ours:
    """A strategy of MPI Opt."""

    def __init__(self, name: str, space: dict[str, Dimension], seed: int, options: dict | None = None) -> None:
        self._strategy = make_strategy(name, space, seed=seed, options=options)

    def ask(self) -> tuple[Any, Parameters]:
        (proposal,) = self._strategy.ask(1)
        return proposal, proposal.parameters

    def tell(self, token: Any, value: float) -> None:
        self._strategy.tell(token, Failed("NaN") if math.isnan(value) else value)


class Optuna:
    """An Optuna sampler."""

    def __init__(self, sampler: str, space: dict[str, Dimension], seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        made = {
            "gp": lambda: optuna.samplers.GPSampler(seed=seed),
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
        }[sampler]()
        self._study, self._space = optuna.create_study(sampler=made), space

    def ask(self) -> tuple[Any, Parameters]:
        trial = self._study.ask()
        values: Parameters = {}
        for name, dimension in self._space.items():
            if all(values.get(parent) == wanted for parent, wanted in (dimension.when or {}).items()):
                values[name] = self._suggest(trial, name, dimension)
        return trial, values

    def tell(self, token: Any, value: float) -> None:
        from optuna.trial import TrialState

        if math.isnan(value):
            self._study.tell(token, state=TrialState.FAIL)
        else:
            self._study.tell(token, value)

    @staticmethod
    def _suggest(trial: Any, name: str, dimension: Dimension) -> Any:
        if isinstance(dimension, Categorical):
            return trial.suggest_categorical(name, list(dimension.categories))
        log = dimension.prior == "log-uniform"
        if isinstance(dimension, Integer):
            return trial.suggest_int(name, dimension.low, dimension.high, step=dimension.step, log=log)
        return trial.suggest_float(name, dimension.low, dimension.high, step=dimension.step, log=log)


class ScikitOptimize:
    """scikit-optimize's Gaussian process; pending trials have the value of the constant liar."""

    def __init__(self, space: dict[str, Dimension], seed: int) -> None:
        from skopt import Optimizer

        self._optimizer = Optimizer([_skopt_dimension(d) for d in space.values()], "GP", random_state=seed)
        self._space, self._pending = Space(space), {}
        self._n, self._random = 0, np.random.RandomState(seed)

    def ask(self) -> tuple[Any, Parameters]:
        liar = self._optimizer.copy(random_state=self._random.randint(2**31))
        if self._pending and liar.yi:
            liar.tell(list(self._pending.values()), [min(liar.yi)] * len(self._pending))
        point = liar.ask()
        self._n += 1
        self._pending[self._n] = point
        parameters = {n: v.item() if isinstance(v, np.generic) else v for n, v in zip(self._space, point, strict=True)}
        return self._n, self._space.active(parameters)

    def tell(self, token: Any, value: float) -> None:
        point = self._pending.pop(token)
        if not math.isnan(value):
            self._optimizer.tell(point, value)


def _skopt_dimension(dimension: Dimension) -> Any:
    from skopt import space

    if isinstance(dimension, Categorical):
        return space.Categorical(list(dimension.categories))
    kind = space.Integer if isinstance(dimension, Integer) else space.Real
    return kind(dimension.low, dimension.high, prior=dimension.prior)


class Genetic:
    """A plain genetic algorithm: generations of 10, tournaments of 2, uniform crossover, Gaussian mutation, elitism."""

    def __init__(self, space: dict[str, Dimension], seed: int) -> None:
        self._space, self._rng = Space(space), np.random.default_rng(seed)
        self._parents: list[tuple[float, np.ndarray]] = []
        self._reported: list[tuple[float, np.ndarray]] = []

    def ask(self) -> tuple[Any, Parameters]:
        genes = self._rng.random(len(self._space)) if not self._parents else self._child()
        return genes, self._space.decode(genes)

    def tell(self, token: Any, value: float) -> None:
        self._reported.append((math.inf if math.isnan(value) else value, token))
        if len(self._reported) == 10:
            best = min(self._parents + self._reported, key=lambda member: member[0])
            self._parents, self._reported = [*self._reported, best], []

    def _child(self) -> np.ndarray:
        mother, father = (self._tournament() for _ in range(2))
        genes = np.where(self._rng.random(len(mother)) < 0.5, mother, father)
        is_mutated = self._rng.random(len(genes)) < 0.2
        is_category = np.array([isinstance(dimension, Categorical) for dimension in self._space.values()])
        fresh, moved = self._rng.random(len(genes)), genes + 0.1 * self._rng.standard_normal(len(genes))
        return np.clip(np.where(is_mutated, np.where(is_category, fresh, moved), genes), 0, 1)

    def _tournament(self) -> np.ndarray:
        first, second = self._rng.integers(len(self._parents), size=2)
        return min(self._parents[first], self._parents[second], key=lambda member: member[0])[1]


class CovarianceMatrix:
    """CMA-ES (the package cmaes) in the unit cube, without margins: discrete values are rounded."""

    def __init__(self, space: dict[str, Dimension], seed: int) -> None:
        from cmaes import CMA

        n = len(space)
        self._space, self._reported = Space(space), []
        self._cma = CMA(np.full(n, 0.5), 0.25, bounds=np.tile([0.0, 1.0], (n, 1)), seed=seed)

    def ask(self) -> tuple[Any, Parameters]:
        genes = self._cma.ask()
        return genes, self._space.decode(genes)

    def tell(self, token: Any, value: float) -> None:
        self._reported.append((token, 1e30 if math.isnan(value) else value))
        if len(self._reported) == self._cma.population_size:
            self._cma.tell(self._reported)
            self._reported = []


SEARCHERS: dict[str, Callable[[dict, int], Searcher]] = {
    "bayesian": lambda space, seed: Ours("bayesian", space, seed),
    "evolutionary": lambda space, seed: Ours("evolutionary", space, seed),
    "sobol": lambda space, seed: Ours("sobol", space, seed),
    "random": lambda space, seed: Ours("random", space, seed),
    "Optuna GPSampler": lambda space, seed: Optuna("gp", space, seed),
    "Optuna TPE": lambda space, seed: Optuna("tpe", space, seed),
    "scikit-optimize": ScikitOptimize,
    "CMA-ES": CovarianceMatrix,
    "plain GA": Genetic,
}


class Peer:
    """Another program with the interface of a strategy."""

    choice = ""

    def __init__(self, name: str, space: dict[str, Dimension], seed: int) -> None:
        self._searcher, self._tokens = SEARCHERS[name](space, seed), dict[int, Any]()
        self._n_asked = 0

    def afford(self, n_models: float) -> None:
        """Other programs do not choose between methods."""

    def ask(self, count: int) -> list[Proposal]:
        return [self._proposal() for _ in range(count)]

    def tell(self, proposal: Proposal, cost: float) -> None:
        self._searcher.tell(self._tokens.pop(proposal.number), cost)

    def _proposal(self) -> Proposal:
        self._tokens[self._n_asked], parameters = self._searcher.ask()
        self._n_asked += 1
        return Proposal(self._n_asked - 1, parameters)
