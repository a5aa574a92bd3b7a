"""Optimizers of Keras and PyTorch, by name or created by a function of the user."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from mpi_learn.errors import ConfigurationError
from mpi_learn.settings.component import Component, shown_arguments
from mpi_learn.settings.suggestions import suggestion
from mpi_learn.settings.user_code import errors_of_user_code, load_function


def make_framework_optimizer(wanted: Component, package: ModuleType, *positional: Any) -> Any:
    """The optimizer that the configuration names.

    Args:
        wanted: Its name, or a function, and the arguments.
        package: The framework's module with all optimizers and their class ``Optimizer``.
        positional: Arguments before those of the configuration.

    Raises:
        ConfigurationError: There is no such optimizer, or it does not take the arguments.
    """
    framework = package.__name__.split(".")[0]
    make = load_function(wanted.name) if wanted.is_custom else _class_named(wanted.name, package)
    arguments = wanted.arguments if wanted.is_custom else _without_decay(make) | wanted.arguments
    where = f"optimizer: {wanted.name}"
    with errors_of_user_code(f"calling it with ({shown_arguments(wanted.arguments)})", where):
        made = make(*positional, **arguments)
    if not isinstance(made, package.Optimizer):
        raise ConfigurationError(
            f"expected a {framework} optimizer for a {framework} model, found {type(made).__name__}",
            where=where,
            cure=f"return an instance of {package.__name__}.Optimizer",
        )
    return made


def _class_named(name: str, package: ModuleType) -> Any:
    known = [value for value in vars(package).values() if isinstance(value, type)]
    by_name = {kind.__name__.lower(): kind for kind in known if issubclass(kind, package.Optimizer)}
    if name not in by_name:
        cure = suggestion(name, sorted(by_name), "it has")
        raise ConfigurationError(f"{package.__name__} has no {name}", where="optimizer.name", cure=cure)
    return by_name[name]


def _without_decay(kind: Any) -> dict[str, float]:
    """The arguments that turn off the weight decay which an optimizer has by default, as Muon does.

    `RuleOptimizer` applies the weight decay of the configuration, which is 0 by default.
    """
    parameters = inspect.signature(kind).parameters.values()
    return {one.name: 0.0 for one in parameters if one.name.endswith("weight_decay") and isinstance(one.default, float)}
