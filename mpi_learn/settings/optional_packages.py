"""Third-party packages, imported on first use."""

from __future__ import annotations

import importlib
from types import ModuleType

from mpi_learn.errors import UserError


def imported(module: str, extra: str) -> ModuleType:
    """Imports a module that ``pip install mpi-opt[extra]`` provides.

    Raises:
        UserError: The module cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{module} is needed and cannot be imported: {error}", cure=f"pip install mpi-opt[{extra}]"
        ) from error
