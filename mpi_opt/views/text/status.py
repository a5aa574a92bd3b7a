"""The status of a search as text for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from mpi_learn.cli.terminal import duration
from mpi_opt.core.counted import counted
from mpi_opt.store.records import readable
from mpi_opt.study.presentation import printable
from mpi_opt.study.recommendation import STATES
from mpi_opt.study.status import SearchStatus
from mpi_opt.views.block_label import block_label
from mpi_opt.views.text.tables import aligned

MAX_BLOCKS = 32
"""The largest number of blocks in the table."""

N_EVENTS = 5
"""The number of events."""


def status_text(status: SearchStatus) -> str:
    """The status as lines: the search, its trials, blocks and latest events. Times are UTC."""
    rows = [("study", f"{printable(status.study)}: {_activity(status)}")]
    states = ", ".join(f"{status.trials[state]} {state}" for state in STATES if state in status.trials)
    rows.append(("trials", f"{status.n_ended} of {status.wanted} ended{f'; {states}' if states else ''}"))
    # rows appear as soon as they are known: a search without results has neither best trial nor speed
    if status.best is not None:
        rows.append(("best", f"{status.best:.6g} (trial {status.best_number})"))
    if status.trials_per_hour is not None:
        rows.append(("speed", f"{status.trials_per_hour:,.4g} trials per hour"))
    if status.expected_end is not None:
        rows.append(("expected end", f"{readable(status.expected_end)} UTC"))
    if status.hosts:
        rows.append(("hosts", ", ".join(map(printable, status.hosts))))
    if status.n_restarts:
        rows.append(("restarts", str(status.n_restarts)))
    lines = [f"{name:<13} {value}" for name, value in rows]
    if status.blocks:
        lines += ["", _blocks(status)]
    if status.events:
        shown = [(readable(one.at), one.kind, one.detail.partition("\n")[0]) for one in status.events[:N_EVENTS]]
        lines += ["", aligned(("event at", "kind", "detail"), shown)]
    return "\n".join(lines)


def _activity(status: SearchStatus) -> str:
    owner = f"process {status.process} on {status.host}, since {readable(status.since or '')} UTC"
    silent = f"last sign of life {duration(status.silent_s or 0.0)} ago"
    match status.activity:
        case "running":
            return f"running, {owner}; {silent}"
        case "silent":
            return f"no sign of life: {owner}; {silent}"
    return status.activity if status.host is None else f"{status.activity}: {owner} was lost; {silent}"


def _blocks(status: SearchStatus) -> str:
    """The blocks as a table; the trials that run longest are first."""
    blocks = sorted(status.blocks, key=lambda block: (block.number is None, block.since))
    now = datetime.now(UTC)
    rows = [
        (
            block_label(block.block),
            block.ranks,
            block.hosts,
            "idle" if block.number is None else f"trial {block.number}",
            duration(max((now - datetime.fromisoformat(block.since)).total_seconds(), 0.0)),
        )
        for block in blocks[:MAX_BLOCKS]
    ]
    more = "" if len(blocks) <= MAX_BLOCKS else f"\n… and {counted(len(blocks) - MAX_BLOCKS, 'more block')}"
    return aligned(("block", "ranks", "hosts", "does", "for"), rows) + more
