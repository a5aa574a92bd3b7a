"""The optional packages, and the tests that need them.

A test says with `needs` which optional packages it uses. It is skipped without them. It does not see the others, even
if they are installed: neither in its process nor in those that it starts. Therefore a test that uses a package without
a mark fails everywhere, and not only where the package is missing.

``pytest --without pyarrow`` hides a package from all tests, and skips those that need it. ``--without all`` hides each.
Tests that need Keras have the mark ``needs("keras")``, because ``make quick`` hides it. It is always installed, and
otherwise shown to all tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import pytest

from tests.hiding.hide import hide_only

_NAMES = """
aiohttp awkward cmaes fsspec matplotlib mlflow optuna pandas prometheus_client psycopg pyarrow pythia8mc tensorboardX
torch torchmetrics uproot
"""
OPTIONAL = frozenset(_NAMES.split())
"""Packages of the extras in ``setup.cfg`` that tests may lack; TensorFlow and what it requires are always there."""

TOGETHER = {"keras": ["tensorflow"]}
"""Package that is always installed, but hidden by ``--without keras`` -> those hidden with it."""

USES = {"pyarrow": ["pandas"], "pandas": ["pyarrow"], "torchmetrics": ["matplotlib"]}
"""Package -> packages that it uses from then on if it has once found them; they are visible with it."""

_without: set[str] = set()
"""What no test sees."""


def needs(*packages: str) -> pytest.MarkDecorator:
    """The mark of a test, a parameter, or a file (``pytestmark``) that uses these optional packages."""
    if unknown := set(packages) - OPTIONAL - set(TOGETHER):
        raise ValueError(f"not in OPTIONAL: {', '.join(sorted(unknown))}")
    return pytest.mark.needs(*packages)


def with_marks(cases: Iterable[Any], packages: Mapping[str, str]) -> list[Any]:
    """Parameters of a test, of which some need a package.

    Args:
        cases: The values; tuples for several parameters.
        packages: Word -> the package of the cases in whose text it occurs.
    """

    def with_mark(case: Any) -> Any:
        marks = [needs(package) for word, package in packages.items() if word in repr(case)]
        return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks) if marks else case

    return [with_mark(case) for case in cases]


def by_framework(cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test; those that name PyTorch, or a file or function of it, have its mark."""
    return with_marks(cases, {"torch": "torch"})


def is_installed(package: str) -> bool:
    """Whether `package` is found; for imports at the top of a file whose tests have marks."""
    return find_spec(package) is not None


def needed(item: pytest.Item) -> set[str]:
    """The packages that the marks of a test name."""
    return {package for mark in item.iter_markers("needs") for package in mark.args}


@cache
def requirements() -> dict[str, frozenset[str]]:
    """Optional package -> itself, and the optional packages that it cannot be installed without.

    They are read at the first call, before any package is hidden.
    """
    return {package: frozenset(one for one in OPTIONAL if _distribution(one) in _tree(package)) for package in OPTIONAL}


def _tree(package: str) -> set[str]:
    """The distribution of a package, and all that it requires."""
    found: set[str] = set()
    waiting = [_distribution(package)]
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += _required_by(name)
    return found


@cache
def _required_by(name: str) -> list[str]:
    """The distributions that one requires. Their metadata are read once: that takes milliseconds for each."""
    try:
        lines = [line for line in metadata.requires(name) or [] if "extra ==" not in line]
    except metadata.PackageNotFoundError:
        return []
    return [_distribution(re.split(r"[^\w.-]", line)[0]) for line in lines]


def _distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hide_always(packages: str) -> None:
    """Hides packages, and those that require them, from all tests; for the option ``--without``.

    Args:
        packages: Their names, separated by commas, or ``all``.
    """
    names = OPTIONAL if packages == "all" else set(packages.split(","))
    known = {*OPTIONAL, *TOGETHER}
    if unknown := names - known:
        raise pytest.UsageError(f"--without: expected some of {', '.join(sorted(known))}, found {sorted(unknown)}")
    _without.update(one for one, required in requirements().items() if required & names)
    _without.update(one for name in names & set(TOGETHER) for one in (name, *TOGETHER[name]))
    hide_only(_without)


def show_only(packages: set[str]) -> None:
    """Hides the optional packages from now on, except `packages` and what they require."""
    visible = {one for package in packages for one in (*requirements().get(package, ()), *USES.get(package, ()))}
    hide_only(OPTIONAL - visible | _without)


def show_all() -> None:
    """Hides only what ``--without`` names."""
    hide_only(_without)
