"""Evolutionary search: asynchronous, elitist, with children chosen by an interpolation of the costs.

Children come from simulated binary crossover (Deb and Agrawal, Complex Systems 9, 1995) and polynomial mutation (Deb
and Goyal, Computer Science and Informatics 26, 1996) in the unit cube. With several figures of merit parents are
selected as in NSGA-II (Deb et al., IEEE Trans. Evol. Comput. 6, 2002, section III).

It differs from these papers as follows:

- There are no generations (steady state): the parents are the best of all trials so far, so that each outcome counts at
  once and no block waits. The option `generational` restores generations.
- The distribution index of the mutation is the inverse of the spread of the parents, so that steps shrink as the search
  converges. A category that mutates is drawn at random with probability 1/2.
- One of `children` candidates is tried: the one with the best weighted score of predicted cost and distance from
  earlier trials (Regis and Shoemaker, INFORMS J. Comput. 19, 2007). The prediction is a cubic radial basis function of
  the logarithm of the costs. The weights are used in turn, so that some trials explore.
- One in five children has another category than the best trial, and parents with this category (see `Niches`).
- With several figures of merit, half of the children are a parent moved by a part of the difference between two random
  parents (Storn and Price, J. Global Optim. 11, 1997). Otherwise a search often finds only one end of a front that is
  not convex: once all parents are close to that end, crossover and mutation make short steps.

The contribution of each is measured in ``experiments/search_quality``. The time of a proposal does not
grow with the number of trials (see `Breeder` and ``experiments/search_cost``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

from pydantic import Field

from mpi_opt.core.search_space.space import Limits, Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.evolution.breeder import Breeder
from mpi_opt.strategies.points.beliefs import Beliefs, SobolDesign
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, read_options
from mpi_opt.strategies.points.checks import whole_number
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.strategies.strategy import Cost, Strategy


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


@final
class Evolutionary(Strategy):
    """Child k is a function of the seed, of k and of the trials and outcomes so far."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(EvolutionaryOptions, options)
        self._n_initial = self._options.initial_points or max(self._options.population, 10)
        self._space, self._seed = space, seed
        self._bookkeeping = Bookkeeping(space, self._options, remembers_points=True)
        self._sampler, self._design = Sampler(space, seed), SobolDesign(space, seed, Beliefs(space))
        self._breeder = self._new_breeder(1)

    def expect(self, n_figures: int) -> None:
        self._bookkeeping.expect(n_figures)
        self._breeder = self._new_breeder(n_figures)

    def ask(self, count: int) -> list[Proposal]:
        """`count` children, or space-filling points until there are enough parents."""
        wanted, proposals = whole_number(count, "ask"), list[Proposal]()
        while len(proposals) < wanted and (proposal := self._proposal(wanted - len(proposals))) is not None:
            proposals.append(proposal)
        return proposals

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Makes the trial a parent if its cost is among the best. A failed trial never becomes a parent."""
        is_new = proposal.number not in self._bookkeeping.pending
        cost = self._bookkeeping.observe(proposal, outcome)
        if is_new:
            self._breeder.start(proposal)
        self._breeder.tell(proposal, cost)

    def steer(self, points: Sequence[Parameters], limits: Limits) -> None:
        self._bookkeeping.steer(points, limits)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._bookkeeping.resume(self.tell, observed, pending)
        for proposal in self._bookkeeping.pending.values():
            self._breeder.start(proposal)

    @property
    def waits(self) -> bool:
        """Whether there are generations, whose last trials `ask` waits for."""
        return self._options.generational

    def _new_breeder(self, n_figures: int) -> Breeder:
        options = self._options
        return Breeder(
            self._space,
            self._seed,
            population=options.population,
            crossover=options.crossover,
            mutation=options.mutation,
            n_children=options.children,
            generation=options.population if options.generational else 1,
            n_figures=n_figures,
        )

    def _proposal(self, n_wanted: int) -> Proposal | None:
        """The next of `n_wanted` proposals; None before the next generation."""
        is_generation_complete = self._bookkeeping.n_asked % self._options.population == 0
        if self._options.generational and is_generation_complete and self._bookkeeping.pending:
            return None
        proposal = self._bookkeeping.propose(self._bookkeeping.next_known_point() or self._point(n_wanted))
        self._breeder.start(proposal)
        return proposal

    def _point(self, n_wanted: int) -> Parameters:
        number = self._bookkeeping.n_asked
        if number < self._n_initial or self._breeder.n_parents < 2:
            return self._design.new_point(self._bookkeeping)
        child = self._breeder.child(number, self._bookkeeping.accepts, n_wanted)
        return self._sampler.new_point(self._bookkeeping) if child is None else child
