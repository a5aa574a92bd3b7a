"""Options that every strategy knows, and how options are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from mpi_learn.settings.yaml_file import validated
from mpi_opt.errors import ConfigurationError


class Options(BaseModel):
    """What every strategy takes; each adds its own.

    Attributes:
        initial: Points to try first, each with all the active hyperparameters.
        constraints: Expressions over the hyperparameters that every proposal must meet, e.g. ``units * layers < 4096``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    initial: tuple[dict[str, Any], ...] = ()
    constraints: tuple[str, ...] = ()


Read = TypeVar("Read", bound=Options)


def read_options(kind: type[Read], given: Mapping[str, Any] | None) -> Read:
    """`given` as an instance of `kind`.

    Raises:
        ConfigurationError: An option is unknown (the nearest known one is named) or has a value that cannot be.
    """
    try:
        return validated(kind, dict(given or {}), "")
    except ConfigurationError as error:
        where = f"search.options.{error.where}" if error.where else "search.options"
        raise ConfigurationError(error.problem, where=where, cure=error.cure) from None
