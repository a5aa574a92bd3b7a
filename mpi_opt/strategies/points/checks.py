"""Checks of the arguments and options that callers pass to a strategy."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy as np

from mpi_learn.settings.suggestions import suggestion
from mpi_opt.core.figures import Measured
from mpi_opt.core.search_space.space import Space
from mpi_opt.core.trial import Failed, Proposal, is_usable
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.strategy import Cost

USUAL = (float, Measured)
"""The types of costs that need no conversion; not the floats of NumPy."""


def whole_number(value: Any, where: str) -> int:
    """`value` as an int of 0 or more.

    Raises:
        ConfigurationError: It is something else; the message names `where`.
    """
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        problem = f"expected a whole number of 0 or more, found {value!r}"
        raise ConfigurationError(problem, where=where, cure="give an int, such as 7")
    return number


def unknown_hyperparameter(name: str, space: Space, where: str) -> ConfigurationError:
    """The error for an option that names a hyperparameter which `space` does not have."""
    return ConfigurationError(f"{name} is not a hyperparameter", where=where, cure=suggestion(name, space))


def observed_cost(proposal: Proposal, outcome: object, n_figures: int) -> Cost | None:
    """The cost that was passed to `Strategy.tell`.

    Returns:
        A float, or a tuple of `n_figures` floats if there are several; a `Measured` keeps its uncertainty. None for a
        failed trial, which includes costs that are not finite.

    Raises:
        ConfigurationError: `outcome` is neither `Failed` nor `n_figures` real numbers.
    """
    # the usual case first: this runs for every trial of every strategy
    if isinstance(outcome, float) and type(outcome) in USUAL and n_figures == 1 and math.isfinite(outcome):
        return outcome
    if isinstance(outcome, Failed):
        return None
    if isinstance(outcome, np.ndarray):
        values = outcome.ravel().tolist()
    else:
        values = list(outcome) if isinstance(outcome, tuple | list) else [outcome]
    if len(values) != n_figures or not all(map(_is_number, values)):
        expected = "a number" if n_figures == 1 else f"{n_figures} numbers, one per figure of merit"
        raise ConfigurationError(
            f"trial {proposal.number}: expected {expected}, found {outcome!r}",
            where="tell",
            cure="pass a float to be minimised, or Failed(reason) for a trial without a result",
        )
    if not all(map(is_usable, values)):
        return None
    costs = tuple(value if isinstance(value, Measured) else float(value) for value in values)
    return costs if n_figures > 1 else costs[0]


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
