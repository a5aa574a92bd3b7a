"""The architecture page and the contributing guide name modules and folders that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT

PAGES = [DOCS / "architecture.md", ROOT / "CONTRIBUTING.md"]
PLACES = [ROOT, ROOT / "mpi_opt", ROOT / "mpi_learn"]
PLACEHOLDER = "NAME"
"""The name of a module that is still to be written."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page):
    named = {name for name in re.findall(r"[\w./]+\.py\b", page.read_text()) if PLACEHOLDER not in name}
    assert named
    assert [name for name in sorted(named) if not _is_somewhere(name)] == []


def test_architecture_describes_every_subpackage():
    page = PAGES[0].read_text()
    folders = [folder for package in PLACES[1:] for folder in package.iterdir() if (folder / "__init__.py").exists()]
    assert len(folders) > 15
    assert [folder.name for folder in folders if f"| `{folder.name}` |" not in page] == []


def _is_somewhere(name: str) -> bool:
    if "/" in name:
        return any((place / name).is_file() for place in PLACES)
    return any(any((ROOT / folder).rglob(name)) for folder in ("mpi_opt", "mpi_learn", "tests"))
