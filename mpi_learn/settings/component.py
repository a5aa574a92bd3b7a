"""Losses, metrics, callbacks and optimizers that a YAML file names, with or without arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mpi_learn.errors import ConfigurationError
from mpi_learn.settings.user_code import absolute_specification, errors_of_user_code, is_function, load_function


class Component(BaseModel):
    """A named object with arguments: ``{name: huber, delta: 2.0}``; every key except `name` is an argument."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(description="A name of the framework, file.py:function or package.module:Class.")

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments."""
        return dict(self.model_extra or {})

    @property
    def key(self) -> str:
        """The name in the history: the name of a function, or a name of the framework as written."""
        return self.name.rpartition(":")[2]

    @property
    def is_custom(self) -> bool:
        """Whether the name refers to a Python object rather than to a name of the framework."""
        return is_function(self.name)


Named = str | Component
"""``mse`` is short for ``{name: mse}``."""


def component(value: Named) -> Component:
    """`value` in its long form."""
    return Component(name=value) if isinstance(value, str) else value


def with_absolute_paths(value: Any, directory: Path) -> Any:
    """`value` with relative paths of Python files resolved against `directory`.

    Args:
        value: A name, a section with a `name`, or a list or mapping of them.
    """
    if isinstance(value, BaseModel) and hasattr(value, "name"):
        return value.model_copy(update={"name": absolute_specification(value.name, directory)})
    if isinstance(value, dict):
        return {key: with_absolute_paths(entry, directory) for key, entry in value.items()}
    if isinstance(value, list):
        return [with_absolute_paths(entry, directory) for entry in value]
    return absolute_specification(value, directory) if isinstance(value, str) else value


def make_component(wanted: Component, n_positional: int) -> Any:
    """The Python object that `wanted` names, ready to be called with `n_positional` arguments.

    A class is instantiated with the arguments. A function is a factory, and is called with the arguments, if it
    requires no others, or if it cannot take `n_positional` others. Any other function is returned with the arguments
    bound to it.

    Raises:
        ConfigurationError: The object does not exist or does not take the arguments.
    """
    found, arguments = load_function(wanted.name), wanted.arguments
    if isinstance(found, type) or (inspect.isroutine(found) and _is_factory(found, arguments, n_positional)):
        with errors_of_user_code(f"calling it with ({shown_arguments(arguments)})", wanted.name):
            return found(**arguments)
    if not arguments:
        return found
    if not inspect.isroutine(found):
        raise ConfigurationError(
            f"it is an object of class {type(found).__name__}, which takes no arguments here",
            where=wanted.name,
            cure="name its class, or leave the arguments out",
        )
    return partial(found, **arguments)


def shown_arguments(arguments: dict[str, Any]) -> str:
    """The arguments in Python syntax, for messages."""
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _is_factory(function: Callable[..., Any], arguments: dict[str, Any], n_positional: int) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):  # built in C, without a signature
        return False
    positional = [
        parameter
        for parameter in parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.name not in arguments
    ]
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters.values()):
        return False
    is_complete = all(parameter.default is not parameter.empty for parameter in positional)
    return is_complete or len(positional) < n_positional
