"""Third-party readers, imported when a file needs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from mpi_learn.errors import UserError


def imported(module: str, extra: str) -> ModuleType:
    """The module; it comes with ``pip install mpi-opt[extra]``.

    Raises:
        UserError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{module} is needed and cannot be imported: {error}", cure=f"pip install mpi-opt[{extra}]"
        ) from error
