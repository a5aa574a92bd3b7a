"""The section ``training:`` of a ``space.yaml``: placeholders ``$name`` and arguments of the model's function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mpi_learn.settings.user_code import FunctionSignature, is_function, signature_of
from mpi_opt.core.search_space.space import Parameters
from mpi_opt.errors import ConfigurationError

REFERENCE = re.compile(r"\$([^\W\d]\w*)")


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
    """Replaces each ``$name`` in `value`, a part of ``training:``. Removes entries with inactive hyperparameters."""
    if isinstance(value, Mapping):
        return {key: filled(item, parameters) for key, item in value.items() if not _is_inactive(item, parameters)}
    if isinstance(value, list | tuple):
        return [filled(item, parameters) for item in value if not _is_inactive(item, parameters)]
    if isinstance(value, str) and (match := REFERENCE.fullmatch(value)):
        return parameters[match[1]]
    return value


def filled_training(
    training: Mapping[str, Any], parameters: Parameters, directory: Path | None, *, guess: bool = False
) -> dict[str, Any]:
    """The section ``training:`` with the hyperparameters of a trial, including the arguments of the model's function.

    Args:
        training: The section, with ``$name`` as the placeholder of a hyperparameter.
        parameters: The active hyperparameters.
        directory: Relative paths are relative to this directory.
        guess: Whether to guess the arguments if the function no longer exists or rejects them: all hyperparameters that
            are not used elsewhere.

    Raises:
        ConfigurationError: The model's function does not exist, or does not accept its arguments.
    """
    content: dict[str, Any] = filled(training, parameters)
    model, own = str(content.get("model", "")), content.get("parameters") or {}
    if not is_function(model) or not _is_arguments(own):  # invalid ones are reported when the section is read
        return content
    referred = set(references(training))
    free = {name: value for name, value in parameters.items() if name not in referred}
    try:
        signature = signature_of(model, directory)
        arguments = _accepted(signature, parameters, free) | own
        signature.check(arguments, model)
    except ConfigurationError:
        if not guess:
            raise
        arguments = free | own
    return content | {"parameters": arguments} if arguments else content


def _accepted(signature: FunctionSignature, parameters: Parameters, free: Parameters) -> Parameters:
    """The hyperparameters that a function receives: those that it names; with ``**kwargs`` also all of `free`."""
    named = {name: value for name, value in parameters.items() if name in signature.names}
    return free | named if signature.accepts_any else named


def _is_arguments(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _is_inactive(item: Any, parameters: Parameters) -> bool:
    match = REFERENCE.fullmatch(item) if isinstance(item, str) else None
    return match is not None and match[1] not in parameters
