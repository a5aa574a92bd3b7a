"""Optimizers of Keras and PyTorch, by name or created by a function of the user."""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeVar

from mpi_learn.errors import ConfigurationError
from mpi_learn.settings.component import Component, shown_arguments
from mpi_learn.settings.suggestions import suggestion
from mpi_learn.settings.user_code import errors_of_user_code, load_function

OptimizerType = TypeVar("OptimizerType")


def created(wanted: Component, kind: type[OptimizerType], package: ModuleType, *positional: Any) -> OptimizerType:
    """The optimizer that the configuration names.

    Args:
        wanted: Its name, or a function, and the arguments.
        kind: The framework's class of optimizers.
        package: The framework's module with all optimizers.
        positional: Arguments before those of the configuration.

    Raises:
        ConfigurationError: There is no such optimizer, or it does not take the arguments.
    """
    framework = kind.__module__.split(".")[0]
    make = load_function(wanted.name) if wanted.is_own else _class_named(wanted.name, kind, package)
    where = f"optimizer: {wanted.name}"
    with errors_of_user_code(f"calling it with ({shown_arguments(wanted.arguments)})", where):
        made = make(*positional, **wanted.arguments)
    if not isinstance(made, kind):
        raise ConfigurationError(
            f"expected a {framework} optimizer for a {framework} model, found {type(made).__name__}",
            where=where,
            cure=f"return an instance of {package.__name__}.Optimizer",
        )
    return made


def _class_named(name: str, kind: type, package: ModuleType) -> Any:
    classes = [one for one in vars(package).values() if isinstance(one, type) and issubclass(one, kind)]
    by_name = {one.__name__.lower(): one for one in classes}
    if name not in by_name:
        cure = suggestion(name, sorted(by_name), "it has")
        raise ConfigurationError(f"{package.__name__} has no {name}", where="optimizer.name", cure=cure)
    return by_name[name]
