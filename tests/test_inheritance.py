"""Classes are abstract or final, with one level of inheritance, as `docs/architecture.md` says."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]


def bases() -> dict[str, list[str]]:
    """Class -> the names of its base classes, over both packages."""
    found: dict[str, list[str]] = {}
    for package in ("mpi_learn", "mpi_opt"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    names = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
                    found.setdefault(node.name, []).extend(name for name in names if name != node.name)
    return found


def ancestors(name: str, classes: dict[str, list[str]]) -> list[str]:
    """The longest chain of base classes of the packages, the nearest first."""
    chains = [[base, *ancestors(base, classes)] for base in classes[name] if base in classes]
    return max(chains, key=len, default=[])


FIELDS = {"Strict", "MPILearnError"}
"""Sections of a configuration and options inherit fields of others, and errors those of `MPILearnError`; no methods."""

ARGUED = {"LivePanel", "KerasTorchModel"}
"""One shows the counts of `PlainProgress` in another way, the other has loss and metrics of Keras in a `TorchModel`."""


def test_classes_have_one_level_of_inheritance_except_errors_and_options():
    classes = bases()
    assert len(classes) > 200
    chains = {name: ancestors(name, classes) for name in classes}
    deep = {name for name, chain in chains.items() if len(chain) > 1 and not FIELDS & set(chain)}
    assert deep == ARGUED
