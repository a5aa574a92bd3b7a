"""The examples in docstrings give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [path for package in ("mpi_learn", "mpi_opt") for path in (ROOT / package).rglob("*.py")]
MODULES = [path.relative_to(ROOT) for path in sorted(FILES) if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_examples_in_docstrings_give_what_they_show(path):
    ended = doctest.testmod(import_module(".".join(path.with_suffix("").parts)))
    assert ended.attempted
    assert not ended.failed


def test_docstrings_have_examples():
    assert MODULES
