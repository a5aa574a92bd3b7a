"""Hides the packages that the environment variable `VARIABLE` names: Python finds them no more.

Python imports this module when it starts, if ``PYTHONPATH`` has its folder. See `tests.optional_packages`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

VARIABLE = "HIDDEN_PACKAGES"
"""Names of packages, separated by commas. It is read at each import, so that a change has effect at once."""


class VisiblePackages(PathFinder):
    """Finds modules as Python does, and installed distributions, except for those of hidden packages."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in _hidden() else PathFinder.find_spec(fullname, path, target)

    @classmethod
    def find_distributions(cls, *context: Any, **named: Any) -> Iterator[Any]:
        hidden = {name.lower() for name in _hidden()}
        found = PathFinder.find_distributions(*context, **named)
        if not hidden:
            return iter(found)
        return (one for one in found if re.sub(r"[-_.]+", "_", one.name).lower() not in hidden)


def _hidden() -> list[str]:
    return list(filter(None, os.environ.get(VARIABLE, "").split(",")))


sys.meta_path[:] = [VisiblePackages if finder is PathFinder else finder for finder in sys.meta_path]
