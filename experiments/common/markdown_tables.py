"""Tables for the README files. Scripts find this file through ``sys.path``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

MARK = "<!-- table -->"
"""The line of a README after which everything is written by a script."""


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown, without a newline at its end."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def with_deviation(values: Sequence[float], digits: int) -> str:
    """The mean and, of two or more values, the sample standard deviation."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def with_quartiles(values: Sequence[float], digits: int = 3) -> str:
    """The median, and the quartiles in parentheses, with `digits` significant digits."""
    lower, middle, upper = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.{digits}g} ({lower:.{digits}g} to {upper:.{digits}g})"


def write_end(readme: Path, text: str) -> None:
    """Replaces everything after `MARK` in a README by `text`."""
    before, mark, _ = readme.read_text().partition(MARK)
    assert mark, f"{readme} has no {MARK}"
    readme.write_text(f"{before}{MARK}\n\n{text}\n")
