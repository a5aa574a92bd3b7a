"""The rows of a scalability report, and the sentences with its result; for text, page and figure."""

from __future__ import annotations

from collections.abc import Callable

from mpi_learn.cli.terminal import duration
from mpi_opt.core.counted import counted, listed, plural
from mpi_opt.core.scalability import BlockSize, Scalability

EXTRAPOLATED = "*"
"""The mark of rows that are extrapolated."""

BEST = "best"

MEANINGS = {
    "ranks": "per block; * extrapolated",
    "blocks": "blocks at once",
    "trial": "mean time of a trial, with all its folds",
    "speed-up": "of a trial, compared with the narrowest block",
    "efficiency": "speed-up per rank",
    "communication": "share of an epoch: sums over ranks, on the rank that waits least",
    "waiting": "share of an epoch: for slower ranks",
    "trials/h": "of all blocks",
    "core-h/trial": "ranks of a block times the hours of a trial",
    "search": "time until the last trial has ended",
    "core-h": "all ranks times the hours of the search",
}
"""The columns and what they mean."""

CELLS: dict[str, Callable[[BlockSize], str]] = {
    "ranks": lambda size: f"{size.n_ranks}{EXTRAPOLATED if size.is_extrapolated else ''}",
    "blocks": lambda size: str(len(size.layout.blocks)),
    "trial": lambda size: duration(size.trial_s),
    "speed-up": lambda size: f"{size.speed_up:.2f}",
    "efficiency": lambda size: f"{size.efficiency:.0%}",
    "communication": lambda size: f"{size.communication:.0%}",
    "waiting": lambda size: f"{size.waiting:.0%}",
    "trials/h": lambda size: f"{size.trials_per_hour:.3g}",
    "core-h/trial": lambda size: f"{size.core_hours_of_trial:.2g}",
    "search": lambda size: duration(size.search_s),
    "core-h": lambda size: f"{size.core_hours_of_search:.2g}",
}


def rows(found: Scalability) -> list[list[str]]:
    """The cells of each size, in the order of `MEANINGS`, and a last one: `BEST` for the recommended size."""
    return [[*(cell(size) for cell in CELLS.values()), BEST if size is found.best else ""] for size in found.sizes]


def heading(name: str, found: Scalability) -> str:
    """What was measured, and for which search."""
    layout = found.sizes[0].layout
    points = counted(found.n_configurations, "configuration")
    folds = f" with {layout.n_folds} folds each" if layout.n_folds > 1 else ""
    trials = counted(found.n_trials, "trial")
    measured = f"{points} measured on {listed(found.measured)} {plural('rank', found.measured[-1])}"
    return f"{name}: {trials}{folds} on {counted(layout.n_ranks, 'rank')}; {measured}"


def sentences(found: Scalability, *, depends_on_ranks: bool) -> list[str]:
    """The recommended size with its reason, and what a reader should know.

    Args:
        found: The result.
        depends_on_ranks: Whether the result of a trial depends on the size of its block.
    """
    best = found.best
    lines = [f"recommended: --block-size {best.n_ranks}: {found.reason}"]
    lines += [f"note: {found.note}"] if found.note else []
    if depends_on_ranks and len(found.sizes) > 1:
        lines.append(
            "note: wider blocks make fewer and larger steps, with other results; "
            "with batch_size: {total: …} results do not depend on the size"
        )
    return lines
