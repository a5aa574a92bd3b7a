"""An asynchronous, elitist evolutionary search on DEAP.

The population is the best of what was told, so an outcome counts as soon as it comes: there is no barrier between
generations. Children come from simulated binary crossover (Deb and Agrawal, Complex Systems 9, 1995) and polynomial
mutation (Deb and Goyal 1996) in the unit cube, in their bounded forms, or from the difference of two other parents
(Storn and Price, J. Global Optim. 11, 1997), which follows a valley across the axes; categories are drawn from the
parents or at random. The mutation's step is that of the population's own spread, so it shrinks as the search closes in;
that of every third child stays wide, so that it does not close in for good. Of several children one is tried that an
interpolation of all that was told thinks good and that is far from everything tried, the two weighted in turns (Regis
and Shoemaker, INFORMS J. Comput. 19, 2007): where a trial takes minutes, a thousandth of a second of thought is well
spent.

Of several figures of merit the parents are chosen as NSGA-II does (Deb et al., IEEE TEVC 6, 2002): by Pareto front, and
on one front the lonely ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import numpy as np
from deap import base, tools
from pydantic import Field

from mpi_opt.core.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, proposals_up_to
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.points.options import Options, read_options
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.strategies.points.sobol import SobolDesign
from mpi_opt.strategies.strategy import Cost, Strategy
from mpi_opt.strategies.surrogates.interpolation import CubicInterpolation, distances
from mpi_opt.strategies.surrogates.observations import History, Told
from mpi_opt.strategies.surrogates.scalarization import drawn_weights
from mpi_opt.strategies.surrogates.warp import warped

N_ATTEMPTS = 4
CROSSOVER_ETA = 5.0
LARGEST_INTERPOLATION = 150
GUESS_WEIGHTS = (0.5, 0.8, 0.95, 1.0)
"""What the interpolation's guess counts, in turns; the rest is for the distance from what was tried."""
OFFSETS = (1.0, math.inf, 0.1, 0.01, 0.001)
"""Between how many of `warp`'s transformations the interpolation chooses."""
DIFFERENTIAL = 0.3
"""Probability that a child comes from the difference of two parents, not from crossover."""
DIFFERENTIAL_STEPS = (0.3, 1.0)
WIDE, WIDE_ETA = 0.3, 10.0
"""Probability that all mutations of a child are wide, whatever the population's spread, and how wide (about 0.1)."""


class EvolutionaryOptions(Options):
    """What `Evolutionary` takes.

    Attributes:
        population: How many of the best may have children.
        initial_points: How many space-filling points come first; default: as many as the population, at least 10.
        crossover: Probability that a child has two parents.
        mutation: Probability that a gene of a child mutates.
        children: Of how many children the most promising is tried; 1: every child is.
        generational: Wait until all of a generation, as many as the population, have ended before the next is born. By
            default it is then at least as many as there are blocks, unless the search is to be ``reproducible``.
    """

    population: int = Field(default=10, ge=2)
    initial_points: int | None = Field(default=None, ge=2)
    crossover: float = Field(default=0.9, ge=0, le=1)
    mutation: float = Field(default=0.6, ge=0, le=1)
    children: int = Field(default=50, ge=1)
    generational: bool = False


@final
class Evolutionary(Strategy):
    """Steady-state evolution; child k is a function of the seed, of k and of what was told."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(EvolutionaryOptions, options)
        self._n_initial = self._options.initial_points or max(self._options.population, 10)
        self._space, self._seed = space, seed
        self._bookkeeping = Bookkeeping(space, self._options, remembers_points=True)
        self._sampler, self._design = Sampler(space, seed), SobolDesign(space, seed)
        self._encoding = Encoding(space)
        self._history = History(self._encoding)
        self._population: list[tuple[Cost, np.ndarray]] = []
        self._grown_up: list[tuple[Cost, np.ndarray]] = []
        self._guess: CubicInterpolation | None = None

    def expect(self, n_figures: int) -> None:
        """Searches the Pareto front of several figures of merit."""
        self._bookkeeping.n_figures, self._history = n_figures, History(self._encoding, n_figures)

    def ask(self, count: int) -> list[Proposal]:
        """`count` children; points of a space-filling sequence as long as the population is small."""
        return proposals_up_to(count, self._proposal)

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Takes the point into the population if it is good enough; a failed one dies."""
        value = self._bookkeeping.observe(proposal, outcome)
        self._history.add(proposal, value, outcome)
        self._guess = None
        if value is not None:
            self._grown_up.append((value, self._space.encode(proposal.parameters)))
        if not self._options.generational or self._bookkeeping.n_observed % self._options.population == 0:
            self._select()

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Rebuilds the population from the observed trials."""
        self._bookkeeping.resume(self.tell, observed, pending)

    @property
    def waits(self) -> bool:
        """With generations: for the last of one."""
        return self._options.generational

    def state(self) -> dict[str, Any]:
        """The books in short, and the population, best first."""
        population = [{"value": value, "parameters": self._space.decode(genes)} for value, genes in self._population]
        return self._bookkeeping.state() | {"population": population}

    def _proposal(self) -> Proposal | None:
        if self._is_waiting():
            return None
        return self._bookkeeping.propose(self._bookkeeping.initial() or self._next())

    def _select(self) -> None:
        """The best of parents and grown-up children are the parents from now on."""
        members, size = self._population + self._grown_up, self._options.population
        if self._bookkeeping.n_figures > 1:
            self._population = _selected(members, size)
        else:
            self._population = sorted(members, key=lambda member: member[0])[:size]
        self._grown_up = []

    def _is_waiting(self) -> bool:
        """Whether a new generation is due while some of the old one are still being tried."""
        is_due = self._bookkeeping.n_asked % self._options.population == 0
        return self._options.generational and is_due and bool(self._bookkeeping.pending)

    def _next(self) -> Parameters:
        bookkeeping, number = self._bookkeeping, self._bookkeeping.n_asked
        if number < self._n_initial or len(self._population) < 2:
            return self._design.new_point(bookkeeping)
        with _seeded(f"{self._seed} {number}"):
            for _ in range(N_ATTEMPTS):
                points = [self._space.decode(self._child()) for _ in range(self._options.children)]
                points = [point for point in points if bookkeeping.accepts(point)]
                if points:
                    return self._most_promising(points)
        return self._sampler.new_point(bookkeeping)

    def _most_promising(self, points: list[Parameters]) -> Parameters:
        if len(points) == 1:
            return points[0]
        rows, is_category = np.array([self._encoding.row(point) for point in points]), self._encoding.is_category
        told = self._history.told()
        if self._bookkeeping.n_figures > 1:
            told = told.weighted(drawn_weights(self._bookkeeping.n_figures, self._seed, self._bookkeeping.n_asked))
        if self._guess is None or self._bookkeeping.n_figures > 1:
            self._guess = _interpolated(told, is_category)
        tried = np.vstack(
            [told.rows, *(self._history.row(proposal) for proposal in self._bookkeeping.pending.values())]
        )
        weight = GUESS_WEIGHTS[self._bookkeeping.n_asked % len(GUESS_WEIGHTS)]
        closeness = -distances(rows, tried, is_category).min(axis=1)
        return points[int(np.argmin(weight * _ranged(self._guess(rows)) + (1.0 - weight) * _ranged(closeness)))]

    def _child(self) -> np.ndarray:
        first, second = (list(self._parent()) for _ in range(2))
        if random.random() < DIFFERENTIAL:
            return self._mutated(self._moved(np.array(first)))
        if random.random() < self._options.crossover:
            tools.cxSimulatedBinaryBounded(first, second, eta=CROSSOVER_ETA, low=0.0, up=1.0)
        genes = np.clip(np.real(first if random.random() < 0.5 else second), 0.0, 1.0)
        return self._mutated(genes)

    def _moved(self, genes: np.ndarray) -> np.ndarray:
        """`genes` moved by a part of the difference between two members; categories stay."""
        here, there = (random.choice(self._population)[1] for _ in range(2))
        step = random.uniform(*DIFFERENTIAL_STEPS) * (there - here)
        return np.where(self._encoding.is_category, genes, np.clip(genes + step, 0.0, 1.0))

    def _parent(self) -> np.ndarray:
        """One of two members drawn at random, the better."""
        n = len(self._population)
        return self._population[min(random.randrange(n), random.randrange(n))][1]

    def _mutated(self, genes: np.ndarray) -> np.ndarray:
        spread = np.std([member for _, member in self._population], axis=0)
        etas = np.clip(1.0 / np.maximum(spread, 1e-9), 1.0, 1e6)
        if random.random() < WIDE:
            etas[:] = WIDE_ETA
        for index, is_category in enumerate(self._encoding.is_category):
            if random.random() >= self._options.mutation:
                continue
            if is_category:
                genes[index] = random.random() if random.random() < 0.5 else genes[index]
            else:
                ((genes[index],),) = tools.mutPolynomialBounded([genes[index]], etas[index], 0.0, 1.0, indpb=1.0)
        return genes


def _ranged(values: np.ndarray) -> np.ndarray:
    """Moved and scaled to [0, 1]: shape (m,)."""
    return (values - values.min()) / max(float(np.ptp(values)), 1e-300)


class _Member:
    """A member of the population as DEAP wants it: with a fitness, less of which is better."""

    def __init__(self, values: tuple[float, ...], genes: np.ndarray) -> None:
        class Fitness(base.Fitness):
            weights = (-1.0,) * len(values)

        self.fitness, self.genes = Fitness(values), genes


def _selected(members: list[tuple[Cost, np.ndarray]], size: int) -> list[tuple[Cost, np.ndarray]]:
    """The best `size`, best first, as NSGA-II selects and ranks them."""
    individuals = [_Member(values, genes) for values, genes in members]
    fronts = tools.sortNondominated(individuals, size)
    for front in fronts:
        tools.emo.assignCrowdingDist(front)
    chosen = [one for front in fronts for one in sorted(front, key=lambda one: -one.fitness.crowding_dist)]
    return [(one.fitness.values, one.genes) for one in chosen[:size]]


def _interpolated(told: Told, is_category: np.ndarray) -> CubicInterpolation:
    """Through the values told, with the heavy tail pulled in; a failed trial counts like the worst."""
    told = told.without_penalties()
    values = np.where(np.isfinite(told.values), told.values, np.nanmax(told.values))
    told = Told(told.rows, values, told.variances).thinned(LARGEST_INTERPOLATION)
    return CubicInterpolation(told.rows, [warped(told.values, offset)[0] for offset in OFFSETS], is_category)


@contextmanager
def _seeded(seed: str) -> Iterator[None]:
    """DEAP draws from the module `random`: seeds it for a while, and leaves it as it was."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
