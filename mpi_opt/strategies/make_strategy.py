"""The search strategies by name. Each strategy's module, and the library that it needs, is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from mpi_learn.settings.suggestions import suggestion
from mpi_opt.core.search_space.space import Dimension, Space
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.checks import whole_number
from mpi_opt.strategies.points.warm_start import Transfer
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.strategies.wrappers import Guarded, Reproducible

STRATEGIES = {
    "auto": "auto:Auto",
    "bayesian": "bayesian:Bayesian",
    "scikit-optimize": "scikit_optimize:ScikitOptimize",
    "evolutionary": "evolutionary:Evolutionary",
    "random": "designs.random_search:RandomSearch",
    "sobol": "designs.sobol_search:SobolSearch",
    "grid": "designs.grid_search:GridSearch",
    "halving": "halving:Halving",
    "population": "population:Population",
    "constructive": "constructive:Constructive",
}
"""Name -> module and class."""

CONFIRMATION = "confirmation"
"""The strategy of the study in which a search runs its best points again (``search.confirm``). Not for users."""

NOT_LEARNING = ("random", "sobol", "grid")
"""Strategies whose proposals do not depend on results."""

BELIEVING = ("auto", "bayesian", "evolutionary")
"""Strategies that use the beliefs of a space (``expect``)."""

QUASI_RANDOM = ("auto", "bayesian", "evolutionary", "sobol", "halving", "population")
"""Strategies whose first proposals are from a Sobol sequence of SciPy."""

REFITTING = ("bayesian", "halving")
"""Strategies with the option `await_refit_up_to`: with more trials pending, proposals do not wait for a refit."""


def strategy_class(name: str) -> type[Strategy]:
    """The class of one of `STRATEGIES`."""
    module, _, cls = (STRATEGIES | {CONFIRMATION: "designs.repeated_points:RepeatedPoints"})[name].partition(":")
    found: type[Strategy] = getattr(import_module(f"mpi_opt.strategies.{module}"), cls)
    return found


def load_library(name: str) -> None:
    """Loads the library of a strategy's first proposals, which takes half a second; otherwise, `ask` loads it."""
    if name in QUASI_RANDOM:
        import_module("scipy.stats")


def make_strategy(
    name: str,
    space: Space | Mapping[str, Dimension],
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    n_figures: int = 1,
    transfer: Transfer | None = None,
    *,
    guarded: bool = False,
) -> Strategy:
    """Constructs a strategy.

    Args:
        name: One of `STRATEGIES`, or ``file.py:Class`` or ``package.module:Class`` for a `Strategy` of the user.
        space: The search space.
        seed: 0 or more. Proposals are a function of the seed and of the calls to the strategy.
        options: The strategy's own options. Every strategy accepts ``reproducible: true``, which makes the list of
            trials independent of timing (see `mpi_opt.strategies.wrappers`), with ``lag`` (default 16), which must
            be at least the number of blocks.
        n_figures: Number of figures of merit. If there are several, outcomes are tuples of costs.
        transfer: Results of an earlier study.
        guarded: Whether the strategy survives exceptions inside of it, with random proposals (see `Guarded`).

    Raises:
        ConfigurationError: The strategy is unknown, supports one figure of merit only, or does not use the beliefs of
            the space, or an option is unknown or invalid.
        SpaceError: `space` is inconsistent.

    Example:
        >>> from mpi_opt import Real
        >>> strategy = make_strategy("bayesian", {"x": Real(-5, 10)}, seed=7)
        >>> for proposal in strategy.ask(2):
        ...     strategy.tell(proposal, proposal.parameters["x"] ** 2)
        >>> [proposal.number for proposal in strategy.ask(1)]
        [2]
    """
    space = space if isinstance(space, Space) else Space(space)
    seed = whole_number(seed, "search.seed")
    options = dict(options or {})
    is_reproducible, lag = _reproducible(options)
    if "lag" in options and name in STRATEGIES:
        problem, cure = "it has an effect only in a reproducible search", "add reproducible: true, or remove it"
        raise ConfigurationError(problem, where="search.options.lag", cure=cure)
    if is_reproducible and name in REFITTING and _is_less(options.setdefault("await_refit_up_to", lag), lag):
        raise ConfigurationError(
            "a reproducible search waits for every refit",
            where="search.options.await_refit_up_to",
            cure="remove it, or `reproducible: true`",
        )
    if name in STRATEGIES and name not in BELIEVING:
        _refuse_beliefs(name, space)
    if transfer is not None:
        options = transfer.options(space, seed, options)
    # a function and not a strategy: `Reproducible` makes several, and `Guarded` another one after an exception
    make: Callable[[], Strategy] = partial(_construct, name, space, seed, options, n_figures)
    if guarded:
        is_own = name not in STRATEGIES
        constraints = () if is_own else options.get("constraints", ())
        make = partial(Guarded, name, make, space, seed, constraints, n_figures=n_figures, fails_at_start=is_own)
    return Reproducible(make, lag, n_figures) if is_reproducible else make()


def _construct(name: str, space: Space, seed: int, options: Mapping[str, Any], n_figures: int) -> Strategy:
    made = _class_of(name)(space, seed=seed, options=dict(options))
    if not isinstance(made, Strategy):
        raise ConfigurationError(
            f"{name} constructs a {type(made).__name__}, which is not a strategy",
            where="search.strategy",
            cure="derive the class from mpi_opt.strategies.Strategy",
        )
    if n_figures > 1:
        made.expect(n_figures)
    if name in STRATEGIES:
        return made
    from mpi_opt.strategies.points.checked_strategy import CheckedStrategy

    return CheckedStrategy(made, space)


def _refuse_beliefs(name: str, space: Space) -> None:
    for each, dimension in space.items():
        if dimension.expect is not None:
            cure = f"use one of {', '.join(BELIEVING)}, or remove it"
            raise ConfigurationError(f"{name} does not use beliefs", where=f"space.{each}.expect", cure=cure)


def _is_less(value: object, limit: int) -> bool:
    return isinstance(value, int) and value < limit


def _reproducible(options: dict[str, Any]) -> tuple[bool, int]:
    """Removes ``reproducible`` and ``lag`` from `options` and returns them."""
    is_reproducible = options.pop("reproducible", False)
    if not isinstance(is_reproducible, bool):
        raise ConfigurationError(
            f"expected true or false, found {is_reproducible!r}",
            where="search.options.reproducible",
            cure="write `reproducible: true`, or remove it",
        )
    lag = options.pop("lag", 16) if is_reproducible else 16
    if isinstance(lag, bool) or not isinstance(lag, int) or lag < 1:
        raise ConfigurationError(
            f"expected a whole number of 1 or more, found {lag!r}",
            where="search.options.lag",
            cure="write a number that is at least the number of blocks",
        )
    return is_reproducible, lag


def _class_of(name: str) -> Any:
    if name in STRATEGIES or name == CONFIRMATION:
        return strategy_class(name)
    if ":" in name:
        from mpi_learn.settings.user_code import load_function

        return load_function(name)
    cure = f"{suggestion(name, STRATEGIES)}, or file.py:Class"
    raise ConfigurationError(f"there is no strategy {name!r}", where="search.strategy", cure=cure)
