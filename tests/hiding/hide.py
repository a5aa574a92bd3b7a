"""Hides packages from this process, where they may be loaded already, and from those that it starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Set
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.hiding.sitecustomize import VARIABLE

PROJECT = ("mpi_learn", "mpi_opt", "tests")

_hidden: set[str] = set()
_hidden_modules: dict[str, ModuleType] = {}
_hidden_attributes: dict[str, object] = {}
"""What `hide_only` has taken away, until it gives it back: packages, modules, and the attributes with their names."""


def hide_only(packages: Set[str]) -> None:
    """Hides `packages`, and no others, from this process and those that it starts.

    Their modules are taken away, and the modules of this project that have imported something from them.
    """
    os.environ[VARIABLE] = ",".join(sorted(packages))
    folder = str(Path(__file__).parent)
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if folder not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *path])
    if packages == _hidden:
        return
    _hidden.clear()
    _hidden.update(packages)
    sys.modules.update(_hidden_modules)
    for name, value in _hidden_attributes.items():  # not always the module: a package may have a value of this name
        parent, _, attribute = name.rpartition(".")
        setattr(sys.modules[parent], attribute, value)
    foreign = {name for name in sys.modules if name.partition(".")[0] in packages}
    _hidden_modules.clear()
    _hidden_modules.update({name: sys.modules.pop(name) for name in foreign | _importers(packages)})
    _hidden_attributes.clear()
    for name in _hidden_modules:
        parent, _, attribute = name.rpartition(".")
        if parent in sys.modules and attribute in vars(sys.modules[parent]):
            # "from parent import attribute" would find it there
            _hidden_attributes[name] = vars(sys.modules[parent]).pop(attribute)


def _importers(packages: Set[str]) -> set[str]:
    """The loaded modules of this project that have, at their top, imported from `packages` or from such a module.

    Files of tests stay: the test that runs is in one, and ``--without all`` checks what they import.
    """
    loaded = [name for name in sys.modules if name.partition(".")[0] in PROJECT and not _is_of_tests(name)]
    found: set[str] = set()
    while True:
        more = {
            name
            for name in loaded
            if name not in found
            and any(origin in found or origin.partition(".")[0] in packages for origin in _origins(name))
        }
        if not more:
            return found
        found |= more


def _is_of_tests(module: str) -> bool:
    last = module.rpartition(".")[2]
    return last.startswith("test_") or last == "conftest"


@cache
def _origins(module: str) -> frozenset[str]:
    """The modules that the global names of a loaded module come from.

    The submodules of a package are attributes of it, although the package has not imported them.
    """
    names = []
    for value in list(vars(sys.modules[module]).values()):
        if not isinstance(value, ModuleType):
            names.append(getattr(value, "__module__", None))
        elif not value.__name__.startswith(f"{module}."):
            names.append(value.__name__)
    return frozenset(name for name in names if isinstance(name, str) and name != module)
