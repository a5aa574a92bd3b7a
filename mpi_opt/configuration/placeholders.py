"""Placeholders ``$name`` in a ``training:`` section, which stand for hyperparameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mpi_opt.core.space import Parameters

REFERENCE = re.compile(r"\$([A-Za-z_]\w*)")


def references(value: Any) -> Iterator[str]:
    """Yields the hyperparameters that `value`, a part of ``training:``, refers to by ``$name``."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)
    elif isinstance(value, str) and (match := REFERENCE.fullmatch(value)):
        yield match[1]


def filled(value: Any, parameters: Parameters) -> Any:
    """Replaces each ``$name`` in `value`, a part of ``training:``. Keys and items of inactive ones are removed."""
    if isinstance(value, Mapping):
        return {key: filled(item, parameters) for key, item in value.items() if not _is_inactive(item, parameters)}
    if isinstance(value, list | tuple):
        return [filled(item, parameters) for item in value if not _is_inactive(item, parameters)]
    if isinstance(value, str) and (match := REFERENCE.fullmatch(value)):
        return parameters[match[1]]
    return value


def read_epochs(training: Mapping[str, Any]) -> int:
    """The number of epochs of a full training."""
    epochs = training.get("epochs", 1)
    return epochs if isinstance(epochs, int) else 1


def _is_inactive(item: Any, parameters: Parameters) -> bool:
    match = REFERENCE.fullmatch(item) if isinstance(item, str) else None
    return match is not None and match[1] not in parameters
