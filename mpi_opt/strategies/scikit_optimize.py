"""Bayesian search with scikit-optimize: its `Optimizer`, unchanged, behind the interface of a strategy.

The surrogate, the acquisition functions and their optimization are those of `skopt.Optimizer`, and the options have the
names that `skopt.gp_minimize` gives them. The portfolio ``gp_hedge`` is that of Hoffman, Brochu and de Freitas (UAI
2011, algorithm 1). What `Optimizer` does not define is handled as follows:

- Pending trials: each proposal comes from an `Optimizer` that received all outcomes, and the same cost for each
  pending trial (the constant liar of Ginsbourger, Le Riche and Carraro, in Computational Intelligence in Expensive
  Optimization Problems, 2010), as in ``Optimizer.ask(n_points)``.
- Failed trials, and outliers (see `extremes`), count as the largest cost so far; the model has no other means to avoid
  them.
- Conditional hyperparameters are part of every point. An inactive one always has the middle of its range (the first of
  its categories), so that it does not distinguish two points. The model does not know that it is inactive.
- Constraints and repetitions: if the proposal was tried before or violates a constraint, the point with the best value
  of the acquisition function among `N_CANDIDATES` random new points that satisfy the constraints takes its place.
  (``space_constraint`` would draw until 10,000 points satisfy them, which takes minutes where few points do.)
- Numbers with a step are rounded to the nearest step.
- Resuming replays the outcomes in order. ``gp_hedge`` depends on the model after each outcome, so that a replay fits as
  many models as there are outcomes; with any other `acq_func` it fits none.

Not available: ``EIps`` and ``PIps``, which need the duration of each trial; ``MES``, which draws from NumPy's global
random numbers, so that a search could not be repeated; and ``PVRS``, which factorizes a matrix for each of the 10,000
candidates. Several figures of merit are not supported.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, final

import numpy as np
import sklearn
import skopt
from pydantic import Field, model_validator
from skopt.acquisition import gaussian_ei, gaussian_lcb, gaussian_pi
from skopt.utils import cook_initial_point_generator
from threadpoolctl import threadpool_limits

from mpi_opt.core.arrays import Floats
from mpi_opt.core.search_space.space import Categorical, Dimension, Integer, Parameters, Real, Space, Value
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, read_options
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.strategies.strategy import Cost, Strategy
from mpi_opt.strategies.surrogates.extremes import is_outlier

N_CANDIDATES = 1000
"""Number of random points among which a repetition is replaced."""
MIN_COSTS = 2
"""Fewest costs for a model."""
MAX_COST = 1e100
"""scikit-optimize squares costs; if one is larger than this, all are divided by a power of two."""

LIES: dict[str, Callable[[Floats], float]] = {"cl_min": np.min, "cl_mean": np.mean, "cl_max": np.max}


class ScikitOptimizeOptions(Options):
    """The options of `ScikitOptimize`. Names and defaults are those of scikit-optimize.

    Attributes:
        base_estimator: The surrogate: ``GP``, a Gaussian process; ``RF``, a random forest; ``ET``, extremely randomized
            trees; ``GBRT``, gradient-boosted trees.
        acq_func: The acquisition function: ``EI``, expected improvement; ``LCB``, lower confidence bound; ``PI``,
            probability of improvement; ``gp_hedge`` chooses among these three at each proposal.
        acq_optimizer: How the acquisition function is optimized: ``sampling`` evaluates it at `n_points` random points;
            ``lbfgs`` starts from the best of these (``GP`` only); ``auto`` takes ``lbfgs`` where it is possible.
        n_initial_points: Number of points before the first one that a model proposes.
        initial_point_generator: How the initial points are generated.
        constant_liar: The cost that is assumed for a pending trial: the smallest, mean or largest cost so far.
        xi: With ``EI`` and ``PI``: the least improvement of the cost that counts.
        kappa: With ``LCB``: number of standard deviations below the mean.
        n_points: Number of random points at which the acquisition function is evaluated.
        n_restarts_optimizer: Number of these from which ``lbfgs`` starts.
    """

    base_estimator: Literal["GP", "RF", "ET", "GBRT"] = "GP"
    acq_func: Literal["gp_hedge", "EI", "LCB", "PI"] = "gp_hedge"
    acq_optimizer: Literal["auto", "sampling", "lbfgs"] = "auto"
    n_initial_points: int = Field(default=10, ge=1)
    initial_point_generator: Literal["random", "sobol", "halton", "hammersly", "lhs", "grid"] = "random"
    constant_liar: Literal["cl_min", "cl_mean", "cl_max"] = "cl_min"
    xi: float = Field(default=0.01, ge=0)
    kappa: float = Field(default=1.96, ge=0)
    n_points: int = Field(default=10000, ge=1)
    n_restarts_optimizer: int = Field(default=5, ge=1)

    @model_validator(mode="after")
    def _check_combination(self) -> ScikitOptimizeOptions:
        if self.acq_optimizer == "lbfgs" and self.base_estimator != "GP":
            raise ConfigurationError(
                f"{self.base_estimator} has no gradients, which lbfgs needs",
                where="acq_optimizer",
                cure="write acq_optimizer: sampling, or base_estimator: GP",
            )
        unused = {"EI": "kappa", "PI": "kappa", "LCB": "xi"}.get(self.acq_func)
        if unused in self.model_fields_set:
            raise ConfigurationError(f"acq_func: {self.acq_func} has no {unused}", where=unused, cure="remove it")
        return self


@final
class ScikitOptimize(Strategy):
    """Proposals of `skopt.Optimizer`. Each proposal waits for a fit, which takes tenths of a second or more."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(ScikitOptimizeOptions, options)
        self._space, self._seed = space, seed
        self._bookkeeping = Bookkeeping(space, self._options, remembers_points=True)
        self._sampler = Sampler(space, seed)
        self._searched = {name: dimension for name, dimension in space.items() if dimension.size > 1}
        self._rows: list[list[Any]] = []
        self._costs: list[float | None] = []
        optimizer = self._new_optimizer(0) if self._searched else None
        self._hedge = optimizer if self._options.acq_func == "gp_hedge" else None
        self._initial = self._initial_points()

    def ask(self, count: int) -> list[Proposal]:
        return self._bookkeeping.ask(count, self._point)

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        cost = self._bookkeeping.observe(proposal, outcome)
        assert not isinstance(cost, tuple)
        self._rows.append(self._row(proposal.parameters))
        self._costs.append(cost)
        if self._hedge is not None and self._n_costs:
            with _quiet():
                n_known = len(self._hedge.yi)
                costs = self._observed_costs().tolist()[n_known:]
                self._hedge.tell(self._rows[n_known:], costs)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._bookkeeping.resume(self.tell, observed, pending)

    @property
    def _n_costs(self) -> int:
        return sum(cost is not None for cost in self._costs)

    def _point(self) -> Parameters:
        number = self._bookkeeping.n_asked
        if number < len(self._initial):
            point = self._parameters(self._initial[number])
            return point if self._bookkeeping.accepts(point) else self._sampler.new_point(self._bookkeeping)
        n_known = len(self._rows) + len(self._bookkeeping.pending)
        if self._n_costs < MIN_COSTS or n_known < self._options.n_initial_points or not self._searched:
            return self._sampler.new_point(self._bookkeeping)
        return self._modelled_point(number)

    def _modelled_point(self, number: int) -> Parameters:
        """The proposal of an `Optimizer` that knows all outcomes, with lies for pending trials."""
        costs = self._observed_costs()
        real = costs[[cost is not None for cost in self._costs]]
        pending = [self._row(proposal.parameters) for _, proposal in sorted(self._bookkeeping.pending.items())]
        optimizer = self._new_optimizer(number + 1)
        if self._hedge is not None:
            optimizer.gains_ = self._hedge.gains_.copy()
        with _quiet():
            lies = [LIES[self._options.constant_liar](real)] * len(pending)
            optimizer.tell(self._rows + pending, [*costs.tolist(), *lies])
            point = self._parameters(optimizer.ask())
            return point if self._bookkeeping.accepts(point) else self._best_candidate(optimizer, number)

    def _best_candidate(self, optimizer: skopt.Optimizer, number: int) -> Parameters:
        """The new point with the best value of the acquisition function among random ones."""
        rng = np.random.default_rng([self._seed, number, 5])
        drawn = (self._space.sample(rng) for _ in range(N_CANDIDATES))
        points = [point for point in drawn if self._bookkeeping.accepts(point)]
        if not points:
            return self._sampler.new_point(self._bookkeeping)
        rows = optimizer.space.transform([self._row(point) for point in points])
        return points[int(np.argmax(self._acquisition(rows, optimizer)))]

    def _acquisition(self, rows: Floats, optimizer: skopt.Optimizer) -> Floats:
        """The acquisition function at transformed points, to be maximized; EI for ``gp_hedge``."""
        model, options = optimizer.models[-1], self._options
        if options.acq_func == "LCB":
            return -np.asarray(gaussian_lcb(rows, model, options.kappa))
        function = gaussian_pi if options.acq_func == "PI" else gaussian_ei
        return np.asarray(function(rows, model, min(optimizer.yi), options.xi))

    def _observed_costs(self) -> Floats:
        """The costs of all trials; for failed ones and outliers the largest cost so far, or the first cost."""
        costs = np.array([np.nan if cost is None else cost for cost in self._costs])
        with np.errstate(over="ignore"):
            costs[is_outlier(costs)] = np.nan
        first = costs[np.isfinite(costs)][0]
        largest = np.fmax.accumulate(np.concatenate([[first], costs]))[1:]
        costs = np.where(np.isnan(costs), largest, costs)
        magnitude = float(np.abs(costs).max())
        return np.ldexp(costs, -int(np.frexp(magnitude)[1])) if magnitude > MAX_COST else costs

    def _new_optimizer(self, number: int) -> skopt.Optimizer:
        """An `Optimizer` without any outcome, with random numbers that depend on `number`.

        Raises:
            ConfigurationError: The installed scikit-optimize and scikit-learn do not support the options.
        """
        options = self._options
        search = {"n_points": options.n_points, "n_restarts_optimizer": options.n_restarts_optimizer}
        try:
            return skopt.Optimizer(
                [_skopt_dimension(dimension) for dimension in self._searched.values()],
                base_estimator=options.base_estimator,
                n_initial_points=options.n_initial_points,
                acq_func=options.acq_func,
                acq_optimizer=options.acq_optimizer,
                acq_func_kwargs={"xi": options.xi, "kappa": options.kappa},
                acq_optimizer_kwargs=search,
                avoid_duplicates=False,  # repetitions are replaced here, by better points than random ones
                random_state=self._random_state(number),
            )
        except ValueError as error:
            raise ConfigurationError(
                f"scikit-optimize {skopt.__version__} with scikit-learn {sklearn.__version__} does not support "
                f"base_estimator: {options.base_estimator}: {' '.join(str(error).split())}",
                where="search.options.base_estimator",
                cure="use another estimator (GP, RF, ET), or other versions of the two packages",
            ) from None

    def _initial_points(self) -> list[list[Any]]:
        """The points of the generator; none for ``random``, where the sampler takes over."""
        generator = cook_initial_point_generator(self._options.initial_point_generator)
        if generator is None or not self._searched:
            return []
        dimensions = [_skopt_dimension(dimension) for dimension in self._searched.values()]
        with _quiet():
            points: list[list[Any]] = generator.generate(
                dimensions, self._options.n_initial_points, random_state=self._random_state(0)
            )
        return points

    def _random_state(self, number: int) -> int:
        return int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])

    def _row(self, parameters: Parameters) -> list[Any]:
        """A point as a row of scikit-optimize: one entry for each hyperparameter with more than one value."""
        return [_entry(dimension, parameters, name) for name, dimension in self._searched.items()]

    def _parameters(self, row: Iterable[Any]) -> Parameters:
        """The nearest point of the search space."""
        values = {name: dimension.decode(0.5) for name, dimension in self._space.items()}
        for (name, dimension), entry in zip(self._searched.items(), row, strict=True):
            values[name] = _value(dimension, entry)
        return self._space.active(values)


def _skopt_dimension(dimension: Dimension) -> skopt.space.Dimension:
    if isinstance(dimension, Categorical):
        return skopt.space.Categorical([str(index) for index in range(len(dimension.categories))])
    assert isinstance(dimension, Real | Integer)
    if _is_large(dimension):
        return skopt.space.Real(0.0, 1.0)
    kind = skopt.space.Integer if isinstance(dimension, Integer) else skopt.space.Real
    return kind(dimension.low, dimension.high, prior=dimension.prior)


def _is_large(dimension: Dimension) -> bool:
    """Whether a dimension has integers that scikit-optimize cannot represent. It gets their unit interval instead."""
    return isinstance(dimension, Integer) and max(abs(dimension.low), abs(dimension.high)) > 2**53


def _entry(dimension: Dimension, parameters: Parameters, name: str) -> Any:
    """A value in a row of scikit-optimize: categories by their index, as text; the first or the middle if inactive."""
    if isinstance(dimension, Categorical):
        return str(dimension.index(parameters[name]) if name in parameters else 0)
    value = parameters[name] if name in parameters else dimension.decode(0.5)
    return dimension.encode(value) if _is_large(dimension) else value


def _value(dimension: Dimension, entry: Any) -> Value:
    """The value of the dimension that is nearest to scikit-optimize's."""
    if isinstance(dimension, Categorical):
        return dimension.categories[int(entry)]
    return dimension.decode(entry if _is_large(dimension) else dimension.encode(entry))


@contextmanager
def _quiet() -> Iterator[None]:
    """Limits BLAS to one thread, because ranks share the host, and hides warnings (convergence, extreme values)."""
    with threadpool_limits(limits=1), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
