"""MPI Opt: decides what to train next, and on which block of MPI ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi_learn import __version__

if TYPE_CHECKING:
    from mpi_opt.api import search
    from mpi_opt.core.search_space.space import Categorical, Integer, Real
    from mpi_opt.core.trial import Trial
    from mpi_opt.study.study import Study

__all__ = ["Categorical", "Integer", "Real", "Study", "Trial", "__version__", "search"]

_HOMES = {
    "Categorical": "core.search_space.space",
    "Integer": "core.search_space.space",
    "Real": "core.search_space.space",
    "Study": "study.study",
    "Trial": "core.trial",
    "search": "api",
}


def __getattr__(name: str) -> Any:
    """Imports `name` on its first use, so that reading results needs no MPI."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    from mpi_learn.job.script_errors import report_errors

    report_errors()  # before the first mistake that a script can make, such as Real(1, 0)
    return getattr(import_module(f"mpi_opt.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
