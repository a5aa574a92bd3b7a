"""The options of every strategy, and their validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from mpi_learn.settings.suggestions import suggestion
from mpi_learn.settings.validation import validated
from mpi_opt.errors import ConfigurationError


class Options(BaseModel):
    """The options of every strategy. Strategies derive from this class to add their own.

    Attributes:
        initial: Points to try first, each with all of its active hyperparameters.
        constraints: Expressions over the hyperparameters that every proposal must satisfy, such as
            ``units * layers < 4096``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    initial: tuple[dict[str, Any], ...] = ()
    constraints: tuple[str, ...] = ()


def n_initial_points(n_hyperparameters: int, given: int | None) -> int:
    """The number of trials of `bayesian` before its first model; `given` is the option ``initial_points``."""
    return given or min(max(8, 2 * n_hyperparameters + 4), 20)


OPTIONS_OF_ALL = ("reproducible", "lag")
"""Options of every strategy that `make_strategy` reads."""

Read = TypeVar("Read", bound=Options)


def read_options(kind: type[Read], given: Mapping[str, Any] | None) -> Read:
    """Validates `given` as an instance of `kind`.

    Raises:
        ConfigurationError: An option is unknown (the message suggests the closest one) or has an invalid value.
    """
    given = dict(given or {})
    for name in given:
        if name not in kind.model_fields:
            cure = suggestion(name, [*kind.model_fields, *OPTIONS_OF_ALL], "known keys")
            raise ConfigurationError("unknown key", where=f"search.options.{name}", cure=cure)
    try:
        return validated(kind, given, "")
    except ConfigurationError as error:
        where = f"search.options.{error.where}" if error.where else "search.options"
        raise ConfigurationError(error.problem, where=where, cure=error.cure) from None
