"""Children of the best trials: the most promising of many, by an interpolation of the costs.

The time of a child does not grow with the number of trials: all candidates are made and scored at once, the
interpolation uses a limited number of trials and is made again only after some outcomes, and distances are those from
a limited number of trials. The candidates of several children that are wanted at once are made together, because most
of the time of a child is that of the interpreter. The children are the same as if each had been made alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np

from mpi_opt.core.arrays import Bools, Floats
from mpi_opt.core.figures_of_merit import as_tuple, order
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.trial import Proposal
from mpi_opt.strategies.evolution.niches import Member, Niches
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.strategy import Cost
from mpi_opt.strategies.surrogates.extremes import warped
from mpi_opt.strategies.surrogates.fitting import ObservationHistory, Observations
from mpi_opt.strategies.surrogates.interpolation import CubicInterpolation, DistanceFactors, nearest_distances
from mpi_opt.strategies.surrogates.proposing.scalarization import drawn_weights

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
N_RECENT, N_TOGETHER = 256, 32
"""Children keep a distance from the `N_RECENT` trials that started before them, and from up to `N_TOGETHER` more, so
that these are the same for all children whose candidates are made together: at most `N_TOGETHER`."""
REFITS_PER_DOUBLING, MAX_REFIT_GAP, LONG_REFIT_GAP = 40, 100, 100
"""The interpolation of n outcomes is made again after n / `REFITS_PER_DOUBLING` more, but at most `MAX_REFIT_GAP`; of
many outcomes after n / `LONG_REFIT_GAP`, rounded down to a power of two, because all are sorted each time."""
PREDICTION_WEIGHTS = (0.5, 0.8, 0.95, 1.0)
"""Weights of the predicted cost, in turn; the remainder weighs the distance from earlier trials."""
NICHE_EVERY = 5
"""One in `NICHE_EVERY` children has another category than the best trial. It has no divisor in common with the number
of weights, so that these children have each of the weights."""


class Candidates(NamedTuple):
    """The candidates of a child.

    Attributes:
        first: The number of the first child whose candidates were made at the same time.
        units: Shape (n_children, n_dimensions): points in the unit cube.
        left: Shape (n_children, n_factors): the factors of their distances from trials.
        predicted: Shape (n_children,): predicted costs.
        distances: Shape (n_children,): distances from the nearest recent trial, of those that started before `first`.
    """

    first: int
    units: Floats
    left: Floats
    predicted: Floats
    distances: Floats


@final
class Breeder:
    """Makes children. Child k is a function of the seed, of k, of the trials started before it, and of the outcomes.

    Args:
        space: The search space.
        seed: The seed.
        population: Number of parents.
        crossover: Probability that a child has two parents.
        mutation: Probability that a number of a child mutates.
        n_children: Number of candidates, of which one is tried.
        generation: Number of outcomes after which the parents are selected again.
        n_figures: Number of figures of merit.
        encoding: The encoding of the space, if the caller has one.

    Attributes:
        history: The outcomes of all trials.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        population: int = 10,
        crossover: float = 0.9,
        mutation: float = 0.6,
        n_children: int = 50,
        generation: int = 1,
        n_figures: int = 1,
        encoding: Encoding | None = None,
    ) -> None:
        self._space, self._seed, self._encoding = space, seed, encoding or Encoding(space)
        self._population, self._crossover, self._mutation = population, crossover, mutation
        self._n_children, self._generation, self._n_figures = n_children, generation, n_figures
        self.history = ObservationHistory(self._encoding.n_dimensions, n_figures)
        levels = [0 if known is None else len(known) for known in self._encoding.levels]
        is_category = self._encoding.is_category
        self._n_categories = {i: n for i, n in enumerate(levels) if is_category[i] and n > 1}
        self._factors = DistanceFactors(is_category, np.array(levels))
        self._all_active = np.ones(len(space), dtype=bool)
        self._niches = Niches(self._n_categories, population)
        self._parents: list[tuple[Cost, Floats]] = []
        self._offspring: list[tuple[Cost, Floats]] = []
        self._genes = np.empty((0, len(space)))  # of the parents, best first
        # row k holds the trial with the largest number that is k modulo the number of rows, in whatever order trials
        # are entered, so that a resumed search has the same rows
        self._recent = np.full((N_RECENT + N_TOGETHER, len(space)), np.inf)
        self._recent_numbers = np.full(len(self._recent), -1)
        # number -> point in the unit cube, its row, and which hyperparameters are active there, of trials that run
        self._running: dict[int, tuple[Floats, Floats, Bools]] = {}
        self._prediction: tuple[int, CubicInterpolation] | None = None
        # number -> the candidates of a child that will be wanted, and the generator that draws more of them
        self._prepared: dict[int, tuple[Candidates, np.random.Generator]] = {}
        self._best_row = np.empty(0)  # of the best parent
        self._choices: list[int] = []  # the dimensions of categories that are active there
        self._is_bad: Bools = np.zeros(0, dtype=bool)  # of the trials in the interpolation: failed, or with a penalty

    @property
    def n_parents(self) -> int:
        """Number of parents; a child needs two."""
        return len(self._genes)

    def running_rows(self, numbers: Sequence[int]) -> Floats:
        """The rows of trials that run: shape (n, n_dimensions)."""
        return np.array([self._running[number][1] for number in numbers]).reshape(-1, self._encoding.n_dimensions)

    def start(self, proposal: Proposal) -> None:
        """Enters a trial that starts."""
        (genes, row), is_active = (
            self._encoding.units_and_row(proposal.parameters),
            self._is_active(proposal.parameters),
        )
        self._running[proposal.number] = genes, row, is_active
        slot = proposal.number % len(self._recent)
        if proposal.number > self._recent_numbers[slot]:
            self._recent[slot], self._recent_numbers[slot] = row, proposal.number
        self._niches.start(row, is_active)

    def tell(self, proposal: Proposal, cost: Cost | None) -> None:
        """Makes a started trial that has ended a parent if its cost is among the best. A failed one (None) never is."""
        index = self.history.n
        self._prepared.clear()  # made without this outcome
        genes, row, is_active = self._running.pop(proposal.number)
        self.history.add(row, cost)
        if cost is not None:
            self._offspring.append((cost, genes))
            if not isinstance(cost, tuple):
                self._niches.add(Member(float(cost), index, genes), row, is_active)
        if self.history.n % self._generation == 0:
            self._select()

    def child(self, number: int, accepts: Callable[[Parameters], bool], n_wanted: int = 1) -> Parameters | None:
        """The most promising child for trial `number`; None if none of many is accepted.

        Args:
            number: The number of the trial.
            accepts: Whether a point may be tried.
            n_wanted: How many children, with consecutive numbers from this one, are wanted before the next outcome. The
                candidates of several of them are made together.
        """
        genes, fixed = self._genes, None
        if self._has_niche(number):
            dimension, category, members = self._niche(number)
            fixed = dimension, (category + 0.5) / self._n_categories[dimension]
            genes = np.array([member.genes for member in members]) if len(members) > 1 else genes
            rng = self._rng(number)
            (candidates,) = self._candidates([rng], genes, number, fixed)
        else:
            candidates, rng = self._prepared_candidates(number, n_wanted)
        for attempt in range(N_ATTEMPTS):
            if attempt:
                (candidates,) = self._candidates([rng], genes, number, fixed)
            for index in self._ranked(candidates, number):
                point = self._space.decode(candidates.units[index])
                if accepts(point):
                    return point
        return None

    def _select(self) -> None:
        """Selects the best of the parents and their offspring: by cost, or by front and crowding distance (NSGA-II)."""
        if self._n_figures == 1 and len(self._parents) == self._population:
            # nearly all trials of a long search are worse than all parents
            worst = as_tuple(self._parents[-1][0])
            self._offspring = [one for one in self._offspring if as_tuple(one[0]) < worst]
            if not self._offspring:
                return
        both = self._parents + self._offspring
        self._parents = [both[index] for index in order([cost for cost, _ in both])[: self._population]]
        self._genes = np.array([genes for _, genes in self._parents]).reshape(-1, len(self._space))
        self._offspring = []
        if self._parents:
            best = self._space.decode(self._genes[0])
            self._best_row, is_active = self._encoding.row(best), self._is_active(best)
            self._choices = [index for index in self._n_categories if is_active[index]]

    def _has_niche(self, number: int) -> bool:
        """Whether child `number` has another category than the best trial."""
        return number % NICHE_EVERY == NICHE_EVERY - 1 and self._n_figures == 1 and bool(self._choices)

    def _niche(self, number: int) -> tuple[int, int, list[Member]]:
        """A dimension, and the category that the child must have there, with its best trials.

        The dimensions take turns. Only those count that are active at the best trial.
        """
        self._fitted(number)  # decides which costs are penalties
        dimension = self._choices[number // NICHE_EVERY % len(self._choices)]
        return dimension, *self._niches.choose(dimension, int(self._best_row[dimension]), self._is_bad)

    def _rng(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, number, 5])

    def _prepared_candidates(self, number: int, n_wanted: int) -> tuple[Candidates, np.random.Generator]:
        """The candidates of a child without a niche, made together with those of the next ones."""
        if number not in self._prepared:
            last = min(number + n_wanted, number - number % N_TOGETHER + N_TOGETHER) - 1
            if self._n_figures > 1:  # each has an interpolation of its own
                last = number
            numbers = [one for one in range(number, last + 1) if not self._has_niche(one)]
            rngs = list(map(self._rng, numbers))
            pairs = zip(self._candidates(rngs, self._genes, number), rngs, strict=True)
            self._prepared = dict(zip(numbers, pairs, strict=True))
        return self._prepared.pop(number)

    def _candidates(
        self, rngs: Sequence[np.random.Generator], parents: Floats, number: int, fixed: tuple[int, float] | None = None
    ) -> list[Candidates]:
        """The candidates of child `number`, and of later ones: one element for each of `rngs`.

        With `fixed`, a dimension and a value in [0, 1], all have this value.
        """
        units = self._children(rngs, parents)
        if fixed is not None:
            units[..., fixed[0]] = fixed[1]
        left = self._factors.left(self._encoding.rows_of_units(units))
        oldest = max(number - number % N_TOGETHER - N_RECENT, 0)
        recent = self._recent[self._recent_numbers >= oldest]
        distances = nearest_distances(left, self._factors.right(recent))
        return [
            Candidates(number, *each) for each in zip(units, left, self._fitted(number)(left), distances, strict=True)
        ]

    def _children(self, rngs: Sequence[np.random.Generator], parents: Floats) -> Floats:
        """Shape (n, n_children, n_dimensions), in the unit cube: points for each of n `rngs`.

        `parents` are sorted, best first.
        """
        n = self._n_children
        drawn = np.stack([rng.random((9, n)) for rng in rngs], axis=1)
        uniforms = np.stack([rng.random((5, n, len(self._space))) for rng in rngs], axis=1)
        # the better of two parents drawn at random (a binary tournament)
        places = (drawn[:6] * len(parents)).astype(int)
        first, second = parents[places[0:2].min(axis=0)], parents[places[2:4].min(axis=0)]
        is_category, is_crossed = self._encoding.is_category, drawn[6, ..., None] < self._crossover
        made = np.where(is_crossed, crossed(uniforms[:3], first, second, CROSSOVER_ETA, is_category), first)
        if self._n_figures > 1:
            low, high = DIFFERENTIAL_STEPS
            steps = (low + (high - low) * drawn[7, ..., None]) * (parents[places[4]] - parents[places[5]])
            moved = np.where(is_category, first, np.clip(first + steps, 0.0, 1.0))
            made = np.where(drawn[8, ..., None] < DIFFERENTIAL, moved, made)
        # steps about as long as the parents are apart: they become shorter while the population converges
        etas = np.clip(1.0 / np.maximum(parents.std(axis=0), 1e-9), 1.0, 1e6)
        return mutated(uniforms[3:], made, etas, self._mutation, is_category)

    def _ranked(self, candidates: Candidates, number: int) -> list[int]:
        """The indices of candidates, the most promising first: by weighted predicted cost and distance from trials."""
        distances = candidates.distances
        if number > candidates.first:  # children have been made since
            since = self._recent[(self._recent_numbers >= candidates.first) & (self._recent_numbers < number)]
            distances = np.minimum(distances, nearest_distances(candidates.left, self._factors.right(since)))
        weight = PREDICTION_WEIGHTS[number % len(PREDICTION_WEIGHTS)]
        scores = weight * _to_unit_range(candidates.predicted) + (1.0 - weight) * _to_unit_range(-distances)
        ranked: list[int] = np.argsort(scores, kind="stable").tolist()
        return ranked

    def _fitted(self, number: int) -> CubicInterpolation:
        """The interpolation for trial `number`, which is the same in a resumed search: outcomes alone decide on it."""
        n = self.history.n
        rare = 1 << (n // LONG_REFIT_GAP).bit_length() >> 1  # a gap that changes often has few multiples in common
        n -= n % min(max(n // REFITS_PER_DOUBLING, 1), max(rare, MAX_REFIT_GAP))
        if self._prediction is not None and self._prediction[0] == n and self._n_figures == 1:
            return self._prediction[1]
        observed = self.history.observations(n)
        if self._n_figures == 1:
            self._is_bad = np.isnan(observed.values)
        else:
            observed = observed.weighted(drawn_weights(self._n_figures, self._seed, number))
        self._prediction = n, interpolated(observed, self._factors)
        return self._prediction[1]

    def _is_active(self, parameters: Parameters) -> Bools:
        if len(parameters) == len(self._all_active):
            return self._all_active
        return np.array([name in parameters for name in self._space])


def interpolated(observed: Observations, factors: DistanceFactors) -> CubicInterpolation:
    """An interpolation of the logarithm of the costs; a failed trial counts as the largest cost."""
    is_known = np.isfinite(observed.values)
    costs = np.where(is_known, observed.values, observed.values.max(initial=-1.0, where=is_known))  # all above -1
    kept = Observations(observed.rows, costs, observed.variances).thinned(MAX_INTERPOLATED_TRIALS)
    return CubicInterpolation(kept.rows, warped(kept.values, 1.0)[0], factors)


def _to_unit_range(values: Floats) -> Floats:
    """Shifts and scales to [0, 1]: shape (m,)."""
    low = values.min()
    scaled: Floats = (values - low) / max(float(values.max() - low), 1e-300)  # equal values become 0
    return scaled


MIN_DIFFERENCE = 1e-14
"""Genes of two parents that differ by less are equal, because the crossover divides by their difference."""


def crossed(uniforms: Floats, first: Floats, second: Floats, eta: float, is_category: Bools) -> Floats:
    """Simulated binary crossover (Deb and Agrawal, Complex Systems 9, 1995): one child of each pair of parents.

    Each gene is recombined with probability 1/2, otherwise it is that of the first parent. A category is that of either
    parent, because a category between two others means nothing.

    Args:
        uniforms: Shape (3, …, n_dimensions), random numbers in [0, 1).
        first: Shape (…, n_dimensions), in [0, 1].
        second: The same shape.
        eta: Distribution index: the larger, the nearer are children to their parents.
        is_category: Shape (n_dimensions,), bool.

    Returns:
        Shape (…, n_dimensions).
    """
    is_recombined, is_upper = uniforms[:2] < 0.5
    u = uniforms[2]
    low, high = np.minimum(first, second), np.maximum(first, second)
    distance = np.maximum(high - low, MIN_DIFFERENCE)
    # the nearer a parent is to its bound, the less a child may be beyond it
    beta = 1.0 + 2.0 * np.where(is_upper, 1.0 - high, low) / distance
    alpha = 2.0 - beta ** -(eta + 1.0)
    # both are evaluated everywhere: where u exceeds 1 / alpha, the first is not used, and 2 - u alpha is positive
    spread = np.where(u <= 1.0 / alpha, u * alpha, 1.0 / (2.0 - u * alpha)) ** (1.0 / (eta + 1.0))
    middle, half = 0.5 * (low + high), 0.5 * spread * (high - low)
    numbers = np.clip(np.where(is_upper, middle + half, middle - half), 0.0, 1.0)
    either = np.where(is_upper, second, first)
    return np.where(is_recombined, np.where(is_category, either, numbers), first)


def mutated(uniforms: Floats, genes: Floats, etas: Floats, probability: float, is_category: Bools) -> Floats:
    """Polynomial mutation (Deb and Goyal, Computer Science and Informatics 26, 1996); a category is drawn at random.

    Args:
        uniforms: Shape (2, …, n_dimensions), random numbers in [0, 1).
        genes: Shape (…, n_dimensions), in [0, 1].
        etas: Shape (n_dimensions,): distribution indices, the larger, the shorter are the steps.
        probability: Probability that a number mutates. A category mutates half as often.
        is_category: Shape (n_dimensions,), bool.

    Returns:
        Shape (…, n_dimensions).
    """
    is_mutated, u = uniforms[0] < np.where(is_category, 0.5 * probability, probability), uniforms[1]
    # a step up is a step down of the mirrored gene: powers take most of the time
    is_down = u < 0.5
    v, to_other_end = np.where(is_down, u, 1.0 - u), np.where(is_down, 1.0 - genes, genes)
    step = 1.0 - (2.0 * v + (1.0 - 2.0 * v) * to_other_end ** (etas + 1.0)) ** (1.0 / (etas + 1.0))
    moved = np.clip(np.where(is_down, genes - step, genes + step), 0.0, 1.0)
    return np.where(is_mutated, np.where(is_category, u, moved), genes)
