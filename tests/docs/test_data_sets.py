"""The page of the data sets agrees with the code and with the numbers that the code computes."""

from __future__ import annotations

import re

import pytest

from mpi_learn.known_data import DATA_SETS
from tests.docs.pages import DOCS

CLASS_NAMES = ("gluon", "quark", "W", "Z", "top")
"""Names of the classes of simulated jets, by class number."""

PAGE = (DOCS / "data-sets.md").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    """The cells of all tables of a section."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_page_has_every_array_with_its_shape_and_type(name):
    one = DATA_SETS[name]
    arrays = one.arrays + (one.simulation.arrays if one.simulation else ())
    cells = [re.split(r"\s*\|\s*", line.strip("| ")) for line in PAGE.splitlines() if line.startswith("|")]
    for array in arrays:
        wanted = [f"`{array.name}`", array.shape, array.dtype]
        assert any(row[i : i + 3] == wanted for row in cells for i in (0, 1)), f"{name}: {wanted}"
        for column in array.columns:
            assert column in PAGE or column.startswith(("DER_", "PRI_", "EFP")), column
    assert f"| `{name}` |" in PAGE
    assert one.licence.split()[0].strip(";:,") in PAGE
