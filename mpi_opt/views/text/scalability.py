"""The scalability report as text."""

from __future__ import annotations

from mpi_opt.core.scalability import Scalability
from mpi_opt.views.series.scalability import MEANINGS, heading, rows, sentences


def scalability_text(name: str, found: Scalability, *, depends_on_ranks: bool) -> str:
    """A table with one line per size of the blocks, and the recommended size; see `sentences`."""
    table = [[*MEANINGS, ""], *rows(found)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    notes = sentences(found, depends_on_ranks=depends_on_ranks)
    return "\n".join([heading(name, found), "", *lines, "", *notes])
