"""The scalability report as one HTML page, which contains no script and opens offline."""

from __future__ import annotations

from html import escape
from pathlib import Path

from mpi_opt.core.scalability import BlockSize, Scalability
from mpi_opt.views.output_file import written_aside
from mpi_opt.views.series.scalability import BEST, MEANINGS, heading, rows, sentences

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
