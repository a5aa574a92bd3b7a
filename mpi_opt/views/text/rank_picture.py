"""A picture of who does what: one letter a rank, one pair of brackets a block."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from mpi_learn.algorithms.rank_layout import Layout as TrainingLayout
from mpi_opt.core.block_layout import Layout, fold_groups

MOST_RANKS = 1000
"""Of a larger job only the first ranks are drawn."""

ROLES = {
    "C": ("coordinates the search", "bold magenta"),
    "M": ("master: holds the weights that workers share", "bold yellow"),
    "w": ("worker: trains on its share of the samples", "green"),
    "s": ("spare: takes the place of a lost rank", "cyan"),
    "·": ("idle: there are fewer trials than blocks", "dim red"),
}
MARKS = {"|": "between the folds that train side by side", ":": "between workers that compute together"}

Training = Callable[[int], TrainingLayout]


def picture(layout: Layout, trials: int, training: Training, width: int = 100) -> Text:
    """Every rank as a letter, in the order of ranks, and what the letters mean.

    Args:
        layout: Who does what in the search.
        trials: How many there are; blocks beyond idle.
        training: What the ranks of a fold do among themselves, by their number.
        width: Columns of the terminal.
    """
    cells = ["C", *(_block(block, layout.folds, training, index < trials) for index, block in enumerate(layout.blocks))]
    cells += ["s" * layout.spares] * bool(layout.spares)
    drawn, n_ranks = [], 0
    for cell in cells:
        if n_ranks > MOST_RANKS:
            drawn.append("…")
            break
        drawn.append(cell)
        n_ranks += sum(letter in ROLES for letter in cell)
    lines = [*_wrapped(drawn, width - 2), ""]
    used = set("".join(lines))
    legend = [f"{letter} {meaning}" for letter, (meaning, _) in ROLES.items() if letter in used]
    legend += [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in used]
    text = Text("\n".join(f"  {line}".rstrip() for line in lines))
    for letter, (_, style) in ROLES.items():
        text.highlight_regex(rf"{letter}", style)
    return text.append("\n").append("\n".join(f"  {line}" for line in legend))


def _block(block: range, folds: int, training: Training, is_busy: bool) -> str:
    """The ranks of a block, e.g. ``[Mww|Mww]``."""
    if not is_busy:
        return f"[{'·' * len(block)}]"
    return "[" + "|".join(_group(training(len(group))) for group in fold_groups(len(block), folds)) + "]"


def _group(layout: TrainingLayout) -> str:
    """The ranks that train one model, e.g. ``Mww`` or ``ww:ww``."""
    is_grouped = any(len(group) > 1 for group in layout.groups) and len(layout.groups) > 1
    return "M" * len(layout.masters) + (":" if is_grouped else "").join("w" * len(group) for group in layout.groups)


def _wrapped(cells: list[str], width: int) -> list[str]:
    """The cells in lines of at most `width` columns; a cell that is longer is cut."""
    lines = [""]
    for cell in cells:
        if lines[-1] and len(lines[-1]) + 1 + len(cell) > width:
            lines.append("")
        lines[-1] += " " * bool(lines[-1]) + cell
        while len(lines[-1]) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return lines
