"""Every error that a user can fix has a cure, written in the call that makes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mpi_learn.training.checkpoints.checkpoint_file  # noqa: F401 - defines errors of users
import mpi_opt.store.errors  # noqa: F401 - defines errors of users
from mpi_learn.errors import UserError

ROOT = Path(__file__).parents[1]

OF_PYDANTIC = "InvalidValue"
"""What validators of configurations raise: problem and cure are its two arguments."""


def names_of(kind: type[UserError]) -> Iterator[str]:
    """The names of a class of errors and of all classes that are derived from it."""
    yield kind.__name__
    for derived in kind.__subclasses__():
        yield from names_of(derived)


def without_cure(tree: ast.AST) -> Iterator[int]:
    """The lines that make an error of a user without a cure, or with an empty one."""
    errors = set(names_of(UserError))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in {*errors, OF_PYDANTIC}:
                cures = [one.value for one in node.keywords if one.arg == "cure"]
                cures += node.args[1:] if name == OF_PYDANTIC else []
                if not cures or any(_may_be_empty(cure) for cure in cures):
                    yield node.lineno


def _may_be_empty(cure: ast.expr) -> bool:
    """Whether a cure is an empty text, or a choice of texts of which one is."""
    return any(isinstance(node, ast.Constant) and node.value == "" for node in _results(cure))


def _results(cure: ast.expr) -> Iterator[ast.expr]:
    match cure:
        case ast.IfExp(body=first, orelse=second):
            yield from (*_results(first), *_results(second))
        case ast.BoolOp(values=[*_, last]):
            yield from _results(last)
        case _:
            yield cure


def test_each_error_of_a_user_has_a_cure():
    found = []
    for package in ("mpi_learn", "mpi_opt"):
        for path in sorted((ROOT / package).rglob("*.py")):
            lines = without_cure(ast.parse(path.read_text()))
            found += [f"{path.relative_to(ROOT)}:{line} makes an error without a cure" for line in lines]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        'raise ConfigurationError("no", where="a")',
        'raise errors.DataError("no")',
        'return StudyOwnedError("no", cure="")',
        'raise SpaceError("no", cure="yes" if near else "")',
        'raise ModelError("no", cure=known or "")',
        'raise InvalidValue("no")',
        'raise InvalidValue("no", "")',
    ],
)
def test_each_way_to_leave_the_cure_out_is_found(code):
    assert list(without_cure(ast.parse(code))) == [1]


@pytest.mark.parametrize(
    "code",
    [
        'raise ConfigurationError("no", cure=cure)',
        'raise StoreError("no", cure=known or "see the manual")',
        'raise InvalidValue("no", "yes")',
        'raise SearchFailed("no")',
    ],
)
def test_errors_with_a_cure_and_those_of_a_run_are_allowed(code):
    assert not list(without_cure(ast.parse(code)))
