"""A picture of the roles of all ranks: one letter per rank, one pair of brackets per block."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from rich.text import Text

from mpi_learn.algorithms.rank_layout import RankLayout
from mpi_opt.core.block_layout import BlockLayout, fold_groups

MAX_DRAWN_RANKS = 1000
"""The largest number of ranks that are drawn."""

ROLES = {
    "C": ("coordinates the search", "bold magenta"),
    "M": ("master: holds the weights that workers share", "bold yellow"),
    "w": ("worker: trains on its share of the samples", "green"),
    "1": ("a stage: the ranks 1, 2, … hold some layers of one model each", "green"),
    "s": ("spare: replaces a lost rank", "cyan"),
    "·": ("idle: there are fewer trials than blocks", "dim red"),
}
MARKS = {"|": "between the folds that train side by side", ":": "between workers that compute together"}

STAGES = "123456789abcdefghijklmnop"
"""The letters of the stages of a model; the last one stands for all others."""
Training = Callable[[int], RankLayout]


def picture(layout: BlockLayout, trials: int, training: Training, width: int = 100) -> Text:
    """Every rank as a letter, in the order of ranks, and a legend of the letters.

    Args:
        layout: The blocks of the search.
        trials: The number of trials; blocks beyond this number are idle.
        training: The roles of the ranks that train one fold, by the number of these ranks.
        width: The number of columns of the terminal.
    """
    blocks = [_block(block, layout.n_folds, training, index < trials) for index, block in enumerate(layout.blocks)]
    cells = ["C", *blocks]
    cells += ["s" * layout.spares] * bool(layout.spares)
    lines = [*textwrap.wrap(" ".join(_first_ranks(cells)), width - 2, break_on_hyphens=False), ""]
    text = Text("\n".join(f"  {line}".rstrip() for line in lines))
    for letter, (_, style) in ROLES.items():
        text.highlight_regex(rf"{letter}", style)
    return text.append("\n").append("\n".join(f"  {line}" for line in _legend(set("".join(lines)))))


def _first_ranks(cells: list[str]) -> list[str]:
    """The cells up to about `MAX_DRAWN_RANKS` ranks."""
    drawn: list[str] = []
    n_ranks = 0
    for cell in cells:
        if n_ranks > MAX_DRAWN_RANKS:
            return [*drawn, "…"]
        drawn.append(cell)
        n_ranks += sum(letter in ROLES or letter in STAGES for letter in cell)
    return drawn


def _legend(used: set[str]) -> list[str]:
    """The meanings of the letters and marks in `used`."""
    letters = [f"{letter} {meaning}" for letter, (meaning, _) in ROLES.items() if letter in used]
    return letters + [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in used]


def _block(block: range, folds: int, training: Training, is_busy: bool) -> str:
    """The ranks of a block, e.g. ``[Mww|Mww]``."""
    if not is_busy:
        return f"[{'·' * len(block)}]"
    return "[" + "|".join(_group(training(len(group))) for group in fold_groups(len(block), folds)) + "]"


def _group(layout: RankLayout) -> str:
    """The ranks that train one model, e.g. ``Mww`` or ``ww:ww``."""
    if layout.stages > 1:
        stages = "".join(STAGES[min(stage, len(STAGES) - 1)] for stage in range(layout.stages))
        return ":".join([stages] * layout.n_replicas)
    is_grouped = any(len(group) > 1 for group in layout.groups) and len(layout.groups) > 1
    return "M" * len(layout.masters) + (":" if is_grouped else "").join("w" * len(group) for group in layout.groups)
