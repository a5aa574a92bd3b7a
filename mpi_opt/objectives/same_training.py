"""Whether two sections ``training:`` mean the same, for example because one has a default written out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mpi_learn.errors import MPILearnError
from mpi_learn.training.configuration import read_configuration
from mpi_opt.configuration.placeholders import filled
from mpi_opt.core.search_space.space import Parameters


def is_same_training(one: Any, other: Any, points: Iterable[tuple[Parameters, Parameters]]) -> bool:
    """Whether two sections give the same training, each at its own of two points. False if one of them is invalid."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return bool(one == other)
    try:
        return all(_read(filled(one, point)) == _read(filled(other, same)) for point, same in points)
    except (MPILearnError, KeyError):  # KeyError: a placeholder of a hyperparameter that the space does not have
        return False


def _read(content: dict[str, Any]) -> Any:
    return _short(read_configuration(content, directory=Path("/"), is_fold=True).model_dump())


def _short(value: Any) -> Any:
    """`value` with ``mse`` in place of its long form ``{name: mse}``."""
    if isinstance(value, Mapping):
        return value["name"] if list(value) == ["name"] else {key: _short(one) for key, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list | tuple) else value
