"""The rows of a scalability report, and the sentences with its result; for text, page and figure."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

from mpi_learn.cli.terminal import duration
from mpi_opt.core.counted import counted, listed, plural
from mpi_opt.core.scalability import BlockSize, Scalability
from mpi_opt.views.output_file import written_aside

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


def scalability_text(name: str, found: Scalability, *, depends_on_ranks: bool) -> str:
    """A table with one line per size of the blocks, and the recommended size; see `sentences`."""
    table = [[*MEANINGS, ""], *rows(found)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    notes = sentences(found, depends_on_ranks=depends_on_ranks)
    return "\n".join([heading(name, found), "", *lines, "", *notes])


STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#222834;margin:2rem auto;max-width:75rem;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid #e6e8ec}
tr.best{background:#e3f4ec;font-weight:600}dt{font-weight:600;float:left;width:9rem}dd{margin:0 0 .2rem 9rem}
.bar{display:flex;width:20rem;height:1rem;background:#f4f5f7}.compute{background:#2f6fde}
.communication{background:#d1453b}.waiting{background:#e0a100}.rest{background:#9aa3b2}
i{display:inline-block;width:.8rem;height:.8rem;margin:0 .3rem 0 1rem}
"""


def scalability_page(name: str, found: Scalability, *, depends_on_ranks: bool) -> str:
    """The complete page."""
    head = "".join(f'<th title="{escape(text)}">{escape(column)}</th>' for column, text in MEANINGS.items())
    body = "".join(
        f"<tr{' class=best' if row[-1] == BEST else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[:-1])
        + f"<td>{_bar(size)}</td></tr>"
        for row, size in zip(rows(found), found.sizes, strict=True)
    )
    legend = "".join(f'<i class="{part}"></i>{part}' for part in _shares(found.sizes[0]))
    meanings = "".join(f"<dt>{escape(column)}</dt><dd>{escape(text)}</dd>" for column, text in MEANINGS.items())
    notes = "".join(f"<p>{escape(line)}</p>" for line in sentences(found, depends_on_ranks=depends_on_ranks))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(name)} · scalability</title><style>{STYLE}</style></head><body>"
        f"<h1>Scalability</h1><p>{escape(heading(name, found))}</p>{notes}"
        f"<table><tr>{head}<th>an epoch</th></tr>{body}</table><p>Parts of an epoch: {legend}</p>"
        f"<dl>{meanings}</dl></body></html>\n"
    )


def save_scalability_page(name: str, found: Scalability, path: Path, *, depends_on_ranks: bool) -> None:
    """Writes the page. The file is complete or does not exist.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    with written_aside(path) as aside:
        aside.write_text(scalability_page(name, found, depends_on_ranks=depends_on_ranks), encoding="utf-8")


def _shares(size: BlockSize) -> dict[str, float]:
    """The parts of an epoch, whose sum is 1."""
    compute = size.times.compute_s / size.times.epoch_s
    parts = {"compute": compute, "communication": size.communication, "waiting": size.waiting}
    return parts | {"rest": max(0.0, 1 - sum(parts.values()))}


def _bar(size: BlockSize) -> str:
    parts = "".join(f'<span class="{name}" style="width:{share:.1%}"></span>' for name, share in _shares(size).items())
    return f'<div class="bar">{parts}</div>'
