"""Evolutionary search on DEAP: asynchronous, elitist, with children chosen by an interpolation of all costs.

Children come from simulated binary crossover (Deb and Agrawal, Complex Systems 9, 1995) and polynomial mutation (Deb
and Goyal, Computer Science and Informatics 26, 1996) in the unit cube, in the bounded forms of DEAP. With several
figures of merit parents are selected as in NSGA-II (Deb et al., IEEE Trans. Evol. Comput. 6, 2002, section III).

It differs from these papers as follows:

- There are no generations (steady state): the parents are the best of all trials so far, so that each outcome counts at
  once and no block waits. The option `generational` restores generations.
- The distribution index of the mutation is the inverse of the spread of the parents, so that steps shrink as the search
  converges. A category that mutates is drawn at random with probability 1/2.
- One of `children` candidates is tried: the one with the best weighted score of predicted cost and distance from
  earlier trials (Regis and Shoemaker, INFORMS J. Comput. 19, 2007). The prediction is a cubic radial basis function of
  the logarithm of the costs. The weights are used in turn, so that some trials explore.
- With several figures of merit, half of the children are a parent moved by a part of the difference between two random
  parents (Storn and Price, J. Global Optim. 11, 1997). Otherwise a search often finds only one end of a front that is
  not convex: once all parents are close to that end, crossover and mutation make short steps.

The contribution of each is measured in ``experiments/search_quality``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any, NamedTuple, final

import numpy as np
from deap import tools
from pydantic import Field

from mpi_opt.core.arrays import Bools, Floats
from mpi_opt.core.pareto import order
from mpi_opt.core.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, proposals_up_to
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.points.options import Options, read_options
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.strategies.points.sobol import SobolDesign
from mpi_opt.strategies.strategy import Cost, Strategy
from mpi_opt.strategies.surrogates.interpolation import CubicInterpolation, distances
from mpi_opt.strategies.surrogates.observations import ObservationHistory, Observations
from mpi_opt.strategies.surrogates.scalarization import drawn_weights
from mpi_opt.strategies.surrogates.warp import warped

N_ATTEMPTS = 4
"""How often all children of a trial are drawn, until one of them is a new point that satisfies the constraints."""
CROSSOVER_ETA = 5.0
"""Distribution index of the crossover: the larger, the nearer are children to their parents."""
DIFFERENTIAL = 0.5
"""Probability that a child is made from the difference of two parents, with several figures of merit."""
DIFFERENTIAL_STEPS = (0.3, 1.0)
"""Smallest and largest part of the difference."""
MAX_INTERPOLATED_TRIALS = 150
"""Largest number of trials in the interpolation of the costs."""
PREDICTION_WEIGHTS = (0.5, 0.8, 0.95, 1.0)
"""Weights of the predicted cost, in turn; the remainder weighs the distance from earlier trials."""


class EvolutionaryOptions(Options):
    """The options of `Evolutionary`.

    Attributes:
        population: Number of parents.
        initial_points: Number of trials before the first child: known points, then space-filling ones; by default as
            many as parents, but at least 10.
        crossover: Probability that a child has two parents.
        mutation: Probability that a gene of a child mutates.
        children: Number of candidates for each trial, of which the most promising one is tried.
        generational: Wait for all trials of a generation, which has `population` trials, before the next one begins. In
            a search the default `population` is then at least the number of blocks, unless the search is
            ``reproducible``.
    """

    population: int = Field(default=10, ge=2)
    initial_points: int | None = Field(default=None, ge=2)
    crossover: float = Field(default=0.9, ge=0, le=1)
    mutation: float = Field(default=0.6, ge=0, le=1)
    children: int = Field(default=50, ge=1)
    generational: bool = False


class Individual(NamedTuple):
    """A trial that may be a parent.

    Attributes:
        cost: One cost, or a tuple of several.
        genes: Shape (n_dimensions,): the point in the unit cube.
    """

    cost: Cost
    genes: Floats


@final
class Evolutionary(Strategy):
    """Child k is a function of the seed, of k and of the outcomes so far."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(EvolutionaryOptions, options)
        self._n_initial = self._options.initial_points or max(self._options.population, 10)
        self._space, self._seed = space, seed
        self._bookkeeping = Bookkeeping(space, self._options, remembers_points=True)
        self._sampler, self._design = Sampler(space, seed), SobolDesign(space, seed)
        self._encoding = Encoding(space)
        self._history = ObservationHistory(self._encoding)
        self._parents: list[Individual] = []
        self._offspring: list[Individual] = []
        self._prediction: CubicInterpolation | None = None
        self._random = random.Random()
        self._cross = with_random(tools.cxSimulatedBinaryBounded, self._random)
        self._mutate_number = with_random(tools.mutPolynomialBounded, self._random)

    def expect(self, n_figures: int) -> None:
        self._bookkeeping.n_figures, self._history = n_figures, ObservationHistory(self._encoding, n_figures)

    def ask(self, count: int) -> list[Proposal]:
        """`count` children, or space-filling points until there are enough parents."""
        return proposals_up_to(count, self._proposal)

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Makes the trial a parent if its cost is among the best. A failed trial never becomes a parent."""
        cost = self._bookkeeping.observe(proposal, outcome)
        self._history.add(proposal, cost)
        self._prediction = None
        if cost is not None:
            self._offspring.append(Individual(cost, self._space.encode(proposal.parameters)))
        if not self._options.generational or len(self._bookkeeping.observed) % self._options.population == 0:
            self._parents = selected(self._parents + self._offspring, self._options.population)
            self._offspring = []

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._bookkeeping.resume(self.tell, observed, pending)

    @property
    def waits(self) -> bool:
        """Whether there are generations, whose last trials `ask` waits for."""
        return self._options.generational

    def _proposal(self) -> Proposal | None:
        is_generation_complete = self._bookkeeping.n_asked % self._options.population == 0
        if self._options.generational and is_generation_complete and self._bookkeeping.pending:
            return None
        return self._bookkeeping.propose(self._bookkeeping.next_known_point() or self._point())

    def _point(self) -> Parameters:
        number = self._bookkeeping.n_asked
        if number < self._n_initial or len(self._parents) < 2:
            return self._design.new_point(self._bookkeeping)
        self._random.seed(f"{self._seed} {number}")
        for _ in range(N_ATTEMPTS):
            points = [self._space.decode(self._child()) for _ in range(self._options.children)]
            points = [point for point in points if self._bookkeeping.accepts(point)]
            if points:
                return self._most_promising(points)
        return self._sampler.new_point(self._bookkeeping)

    def _most_promising(self, points: list[Parameters]) -> Parameters:
        """The point with the best weighted score of predicted cost and distance from earlier trials."""
        if len(points) == 1:
            return points[0]
        rows, is_category = self._encoding.rows(points), self._encoding.is_category
        observed = self._history.observations()
        n_figures, number = self._bookkeeping.n_figures, self._bookkeeping.n_asked
        if n_figures > 1:
            observed = observed.weighted(drawn_weights(n_figures, self._seed, number))
        if self._prediction is None or n_figures > 1:
            self._prediction = interpolated(observed, is_category)
        pending = self._encoding.rows(proposal.parameters for proposal in self._bookkeeping.pending.values())
        closeness = -distances(rows, np.vstack([observed.rows, pending]), is_category).min(axis=1)
        weight = PREDICTION_WEIGHTS[number % len(PREDICTION_WEIGHTS)]
        scores = weight * _to_unit_range(self._prediction(rows)) + (1.0 - weight) * _to_unit_range(closeness)
        return points[int(np.argmin(scores))]

    def _child(self) -> Floats:
        if self._bookkeeping.n_figures > 1 and self._random.random() < DIFFERENTIAL:
            return self._mutated(self._moved(self._parent()))
        first, second = self._parent().tolist(), self._parent().tolist()
        if self._random.random() < self._options.crossover:
            self._cross(first, second, eta=CROSSOVER_ETA, low=0.0, up=1.0)
        return self._mutated(np.clip(first if self._random.random() < 0.5 else second, 0.0, 1.0))

    def _moved(self, genes: Floats) -> Floats:
        """`genes` plus a part of the difference between two parents; the categories stay."""
        start, end = self._random.choice(self._parents).genes, self._random.choice(self._parents).genes
        moved = genes + self._random.uniform(*DIFFERENTIAL_STEPS) * (end - start)
        return np.where(self._encoding.is_category, genes, np.clip(moved, 0.0, 1.0))

    def _parent(self) -> Floats:
        """The genes of the better of two parents drawn at random (a binary tournament)."""
        n = len(self._parents)
        return self._parents[min(self._random.randrange(n), self._random.randrange(n))].genes

    def _mutated(self, genes: Floats) -> Floats:
        spread = np.std([parent.genes for parent in self._parents], axis=0)
        etas = np.clip(1.0 / np.maximum(spread, 1e-9), 1.0, 1e6)
        for index, is_category in enumerate(self._encoding.is_category):
            if self._random.random() >= self._options.mutation:
                continue
            if not is_category:
                ((genes[index],),) = self._mutate_number([genes[index]], etas[index], 0.0, 1.0, indpb=1.0)
            elif self._random.random() < 0.5:
                genes[index] = self._random.random()
        return genes


def with_random(operator: Callable[..., Any], source: random.Random) -> Callable[..., Any]:
    """A copy of a DEAP operator that draws from `source` instead of Python's global random numbers."""
    assert isinstance(operator, FunctionType)
    names = operator.__globals__ | {"random": source}
    return FunctionType(operator.__code__, names, operator.__name__, operator.__defaults__, operator.__closure__)


def selected(individuals: list[Individual], size: int) -> list[Individual]:
    """The best `size` individuals, best first: by cost, or by Pareto front and crowding distance (NSGA-II)."""
    return [individuals[index] for index in order([individual.cost for individual in individuals])[:size]]


def interpolated(observed: Observations, is_category: Bools) -> CubicInterpolation:
    """An interpolation of the logarithm of the costs; a failed trial counts as the largest cost."""
    costs = np.where(np.isfinite(observed.values), observed.values, np.nanmax(observed.values))
    kept = Observations(observed.rows, costs, observed.variances).thinned(MAX_INTERPOLATED_TRIALS)
    return CubicInterpolation(kept.rows, warped(kept.values, 1.0)[0], is_category)


def _to_unit_range(values: Floats) -> Floats:
    """Shifts and scales to [0, 1]: shape (m,)."""
    scaled: Floats = (values - values.min()) / max(float(np.ptp(values)), 1e-300)
    return scaled
