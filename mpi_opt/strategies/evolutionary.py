"""An asynchronous, elitist evolutionary search on DEAP.

The population is the best of what was told, so an outcome counts as soon as it comes: there is no barrier between
generations. Children come from simulated binary crossover (Deb and Agrawal, Complex Systems 9, 1995) and polynomial
mutation (Deb and Goyal 1996) in the unit cube, in their bounded forms; categories are drawn from the parents or at
random. The mutation's step is that of the population's own spread, so it shrinks as the search closes in.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import numpy as np
from deap import tools
from pydantic import Field

from mpi_opt.space import Categorical, Parameters, Space
from mpi_opt.strategies.draws import Draws
from mpi_opt.strategies.ledger import Ledger
from mpi_opt.strategies.options import Options, read_options
from mpi_opt.strategies.sobol import SobolPoints
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.trial import Failed, Proposal

N_ATTEMPTS = 20


class EvolutionaryOptions(Options):
    """What `Evolutionary` takes.

    Attributes:
        population: How many of the best may have children.
        crossover: Probability that a child has two parents.
        mutation: Probability that a gene mutates; default: one gene of a child on average, or a fifth of them.
    """

    population: int = Field(default=10, ge=2)
    crossover: float = Field(default=0.9, ge=0, le=1)
    mutation: float | None = Field(default=None, ge=0, le=1)


@final
class Evolutionary(Strategy):
    """Steady-state evolution; child k is a function of the seed, of k and of what was told."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(EvolutionaryOptions, options)
        self._space, self._seed = space, abs(seed)
        self._ledger = Ledger(space, self._options, keeps_points=True)
        self._draws = Draws(space, seed)
        self._sequence = SobolPoints(len(space), seed)
        self._is_category = np.array([isinstance(dimension, Categorical) for dimension in space.values()])
        self._population: list[tuple[float, np.ndarray]] = []

    def ask(self, count: int) -> list[Proposal]:
        """`count` children; points of a space-filling sequence as long as the population is small."""
        return [self._ledger.propose(self._ledger.initial() or self._child()) for _ in range(count)]

    def tell(self, proposal: Proposal, outcome: float | Failed) -> None:
        """Takes the point into the population if it is good enough; a failed one dies."""
        self._take(proposal, self._ledger.settle(proposal, outcome))

    def resume(self, told: Iterable[tuple[Proposal, float | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Goes on with the population that the told points make."""
        for proposal, value in self._ledger.resume(told, pending):
            self._take(proposal, value)

    def state(self) -> dict[str, Any]:
        """The books in short, and the population, best first."""
        population = [{"value": value, "parameters": self._space.decode(genes)} for value, genes in self._population]
        return self._ledger.state() | {"population": population}

    def _take(self, proposal: Proposal, value: float | None) -> None:
        if value is None:
            return
        self._population.append((value, self._space.encode(proposal.parameters)))
        self._population.sort(key=lambda member: member[0])
        del self._population[self._options.population :]

    def _child(self) -> Parameters:
        ledger = self._ledger
        number = ledger.n_asked
        if number < self._options.population or len(self._population) < 2:
            point = self._space.decode(self._sequence.point(number))
            return point if ledger.allows(point) and ledger.is_new(point) else self._draws.new_point(ledger)
        with _seeded(f"{self._seed} {number}"):
            for _ in range(N_ATTEMPTS):
                point = self._space.decode(self._offspring())
                if ledger.allows(point) and ledger.is_new(point):
                    return point
        return self._draws.new_point(ledger)

    def _offspring(self) -> np.ndarray:
        first, second = (list(self._parent()) for _ in range(2))
        if random.random() < self._options.crossover:
            tools.cxSimulatedBinaryBounded(first, second, eta=5.0, low=0.0, up=1.0)
        genes = np.clip(first if random.random() < 0.5 else second, 0.0, 1.0)
        return self._mutated(np.real(genes))

    def _parent(self) -> np.ndarray:
        """One of two members drawn at random, the better."""
        n = len(self._population)
        return self._population[min(random.randrange(n), random.randrange(n))][1]

    def _mutated(self, genes: np.ndarray) -> np.ndarray:
        spread = np.std([member for _, member in self._population], axis=0)
        probability = self._options.mutation or max(1 / len(genes), 0.2)
        for index, is_category in enumerate(self._is_category):
            if random.random() >= probability:
                continue
            if is_category:
                genes[index] = random.random()
            else:
                eta = min(max(1.0 / max(spread[index], 1e-9), 1.0), 1e6)
                genes[index] = tools.mutPolynomialBounded([genes[index]], eta=eta, low=0.0, up=1.0, indpb=1.0)[0][0]
        return genes


@contextmanager
def _seeded(seed: str) -> Iterator[None]:
    """DEAP draws from the module `random`: seeds it for a while, and leaves it as it was."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
