"""Greedy construction of an architecture, layer by layer (Lupo Pasini et al., Parallel Comput. 104, 2021, algorithm 2).

Networks of the smallest depth are drawn at random first. Then the best of them keeps its layers and gets one more, of
which only the new hyperparameters are drawn at random; and so on, up to the largest depth. After that, single layers of
the best network are redrawn, which the paper does not do. With several figures of merit any network of the Pareto front
counts as the best one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np
from pydantic import Field

from mpi_learn.settings.suggestions import nearest
from mpi_opt.core.figures_of_merit import dominates
from mpi_opt.core.search_space.space import Integer, Parameters, Space, Value
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, read_options
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.strategies.strategy import Cost, Strategy

N_ATTEMPTS = 50
"""Number of networks that are drawn, until one is a new point that satisfies the constraints."""


class ConstructiveOptions(Options):
    """The options of `Constructive`.

    Attributes:
        depth: The integer hyperparameter that is the number of layers; by default ``depth``, ``layers`` or
            ``n_layers``, the first that exists. The names of the hyperparameters of layer n end in n: ``units_1``,
            ``units_2``, … Every other name that ends in a number counts as that of a layer, too.
        trials_per_depth: Number of networks of each depth before the next layer is added.
    """

    depth: str | None = None
    trials_per_depth: int = Field(default=10, ge=1)


@final
class Constructive(Strategy):
    """A space without a depth is searched at random first, and then around the best point."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(ConstructiveOptions, options)
        self._space, self._seed = space, seed
        self._bookkeeping = Bookkeeping(space, self._options, remembers_points=True)
        self._sampler = Sampler(space, seed)
        self._depth = self._depth_name()
        self._best: dict[Any, list[tuple[Cost, Parameters]]] = {}

    def expect(self, n_figures: int) -> None:
        self._bookkeeping.expect(n_figures)

    def ask(self, count: int) -> list[Proposal]:
        return self._bookkeeping.ask(count, self._point)

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Keeps the best networks of each depth."""
        cost = self._bookkeeping.observe(proposal, outcome)
        depth = proposal.parameters.get(self._depth, 0) if self._depth else 0
        front = self._best.get(depth, [])
        if cost is None or any(other == cost or dominates(other, cost) for other, _ in front):
            return
        self._best[depth] = [(c, p) for c, p in front if not dominates(cost, c)] + [(cost, proposal.parameters)]

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._bookkeeping.resume(self.tell, observed, pending)

    def _point(self) -> Parameters:
        rng = np.random.default_rng([self._seed, self._bookkeeping.n_asked])
        for _ in range(N_ATTEMPTS):
            point = self._network(rng)
            if self._bookkeeping.accepts(point):
                return point
        return self._sampler.new_point(self._bookkeeping)

    def _network(self, rng: np.random.Generator) -> Parameters:
        stage = self._bookkeeping.n_asked // self._options.trials_per_depth
        drawn = self._space.decode(rng.random(len(self._space)))
        if self._depth is None:
            return drawn if stage == 0 or not self._best else self._varied(drawn, rng)
        dimension = self._space[self._depth]
        assert isinstance(dimension, Integer)
        depth = dimension.low + stage * dimension.step
        if depth > dimension.high and self._best:
            return self._varied(drawn, rng)
        depth = min(depth, dimension.all_values()[-1])
        return self._completed(self._shallower(depth, rng) | {self._depth: depth}, rng)

    def _shallower(self, depth: int, rng: np.random.Generator) -> Parameters:
        """One of the best networks of less than `depth` layers; empty if there is none."""
        networks = [network for other, front in self._best.items() if other < depth for network in front]
        return self._existing(_one_of_the_best(networks, rng)) if networks else {}

    def _varied(self, drawn: Parameters, rng: np.random.Generator) -> Parameters:
        """The best network with one layer, or one hyperparameter that belongs to no layer, redrawn."""
        best = self._existing(_one_of_the_best([network for front in self._best.values() for network in front], rng))
        groups = sorted({_layer(name) or name for name in best if name != self._depth})
        if not groups:
            return drawn
        group = groups[int(rng.integers(len(groups)))]
        return self._completed({name: v for name, v in best.items() if group not in (name, _layer(name))}, rng)

    def _existing(self, network: Parameters) -> Parameters:
        """`network` without the hyperparameters of deeper layers, which it has if they have no ``when``."""
        if self._depth is None:
            return network
        depth = network[self._depth]
        assert isinstance(depth, int)
        return {name: v for name, v in network.items() if int(_layer(name) or 0) <= depth}

    def _completed(self, known: Mapping[str, Value], rng: np.random.Generator) -> Parameters:
        """`known` with all other active hyperparameters drawn at random."""
        point: Parameters = {}
        for name in self._space.order:
            if self._space.is_active(name, point):
                point[name] = known[name] if name in known else self._space[name].sample(rng)
        return self._space.active(point)

    def _depth_name(self) -> str | None:
        name = self._options.depth
        if name is None:
            return next((name for name in ("depth", "layers", "n_layers") if _is_integer(self._space, name)), None)
        if not _is_integer(self._space, name):
            near = nearest(name, self._space)
            raise ConfigurationError(
                f"expected an unconditional integer hyperparameter, found {name!r}",
                where="search.options.depth",
                cure=f"did you mean {near}?" if near and near != name else "name one, or leave depth out",
            )
        return name


def _one_of_the_best(networks: list[tuple[Cost, Parameters]], rng: np.random.Generator) -> Parameters:
    """The network with the smallest cost; with several figures of merit a random one of the Pareto front."""
    front = [network for cost, network in networks if not any(dominates(other, cost) for other, _ in networks)]
    has_one_figure = not isinstance(networks[0][0], tuple)
    return front[0] if has_one_figure or len(front) == 1 else front[int(rng.integers(len(front)))]


def _is_integer(space: Space, name: str) -> bool:
    return name in space and isinstance(space[name], Integer) and not space[name].when


def _layer(name: str) -> str | None:
    """The number at the end of the name of a layer's hyperparameter."""
    found = re.search(r"(\d+)$", name)
    return found[1] if found else None
