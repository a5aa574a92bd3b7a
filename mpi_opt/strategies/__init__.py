"""The search strategies by name. What a strategy needs (scikit-optimize, DEAP, scipy) is imported when it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from mpi_learn.settings.yaml_file import nearest
from mpi_opt.core.space import Dimension, Space
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.warm_start import Transfer
from mpi_opt.strategies.strategy import Decision, Strategy

__all__ = ["REFITTING", "STRATEGIES", "Decision", "Strategy", "Transfer", "make_strategy"]

_HOMES = {
    "bayesian": ("bayesian", "Bayesian"),
    "evolutionary": ("evolutionary", "Evolutionary"),
    "random": ("random_search", "RandomSearch"),
    "grid": ("grid_search", "GridSearch"),
    "sobol": ("sobol_search", "SobolSearch"),
    "halving": ("halving", "Halving"),
    "population": ("population", "Population"),
    "constructive": ("constructive", "Constructive"),
}


class _Strategies(Mapping[str, type[Strategy]]):
    """Name -> class; a class's file is imported when it is looked up."""

    def __getitem__(self, name: str) -> type[Strategy]:
        module, cls = _HOMES[name]
        return getattr(import_module(f"mpi_opt.strategies.{module}"), cls)

    def __contains__(self, name: object) -> bool:
        return name in _HOMES

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


REFITTING = ("bayesian", "halving")
"""Those with the option `await_refit_up_to`: with more trials pending a proposal does not wait for a refit."""

STRATEGIES: Mapping[str, type[Strategy]] = _Strategies()


def make_strategy(
    name: str,
    space: Space | Mapping[str, Dimension],
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    n_merits: int = 1,
    transfer: Transfer | None = None,
) -> Strategy:
    """A strategy, ready to be asked or resumed.

    Args:
        name: One of `STRATEGIES`, or ``file.py:Class`` or ``package.module:Class`` of the user's own `Strategy`.
        space: The search space.
        seed: What is proposed is a function of it and of the calls made.
        options: The strategy's own, and for every strategy ``reproducible: true``: the same trials whatever the timing
            (see `mpi_opt.strategies.reproducible`), with ``lag`` (default 16) at least the number of blocks.
        n_merits: Figures of merit; with more than one, outcomes are tuples of values to minimise.
        transfer: What an earlier study found.

    Raises:
        ConfigurationError: There is no such strategy, it knows one figure of merit only, or an option is unknown or
            cannot be.
        SpaceError: `space` contradicts itself.
    """
    space = space if isinstance(space, Space) else Space(space)
    options = dict(options or {})
    is_reproducible, lag = _reproducible(options)
    if is_reproducible and name in REFITTING:
        options.setdefault("await_refit_up_to", lag)
    if transfer is not None:
        options = transfer.options(space, seed, options)
    make = partial(_made, name, space, seed, options, n_merits, transfer)
    if not is_reproducible:
        return make()
    from mpi_opt.strategies.reproducible import Reproducible

    return Reproducible(make, lag)


def _made(
    name: str,
    space: Space,
    seed: int,
    options: Mapping[str, Any],
    n_merits: int,
    transfer: Transfer | None,
) -> Strategy:
    made = _named(name)(space, seed=seed, options=dict(options))
    if not isinstance(made, Strategy):
        raise ConfigurationError(
            f"{name} makes a {type(made).__name__}, not a strategy",
            where="search.strategy",
            cure="derive the class from mpi_opt.strategies.Strategy",
        )
    if n_merits > 1:
        made.expect(n_merits)
    elif transfer is not None and transfer.learn:
        made.learn(*transfer.points(space, seed))
    return made


def _reproducible(options: dict[str, Any]) -> tuple[bool, int]:
    """Whether the search is to be reproducible, and with which lag; both taken out of `options`."""
    is_reproducible = options.pop("reproducible", False)
    if not isinstance(is_reproducible, bool):
        raise ConfigurationError(
            f"expected true or false, found {is_reproducible!r}", where="search.options.reproducible"
        )
    lag = options.pop("lag", 16) if is_reproducible else 16
    if isinstance(lag, bool) or not isinstance(lag, int) or lag < 1:
        raise ConfigurationError(f"expected a whole number of 1 or more, found {lag!r}", where="search.options.lag")
    return is_reproducible, lag


def _named(name: str) -> type[Strategy]:
    if name in STRATEGIES:
        return STRATEGIES[name]
    if ":" in name:
        from mpi_learn.settings.user_code import load_function

        return load_function(name)
    near = nearest(name, STRATEGIES)
    raise ConfigurationError(
        f"there is no strategy {name!r}",
        where="search.strategy",
        cure=f"{f'did you mean {near}? ' if near else ''}known: {', '.join(STRATEGIES)}, or file.py:Class",
    )
