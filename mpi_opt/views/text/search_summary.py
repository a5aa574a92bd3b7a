"""The state of a running search, and the text at the end of one: the best trials, the store, the next commands."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mpi_learn.cli.terminal import duration
from mpi_opt.core.counted import counted
from mpi_opt.errors import without_passwords
from mpi_opt.store.connecting import is_in_memory, parsed
from mpi_opt.store.events import SEARCH_EVENTS, STUDY_FINISHED
from mpi_opt.store.records import readable
from mpi_opt.store.study_view import StudyColumns, quoted
from mpi_opt.study.presentation import cell
from mpi_opt.study.recommendation import STATES
from mpi_opt.study.status import SearchStatus
from mpi_opt.views.block_label import block_label
from mpi_opt.views.text.tables import aligned, confirmation_text, lineage, schedule_text, trials_table

if TYPE_CHECKING:  # `status` reads the store without the modules of a search
    from mpi_opt.study.study import Study


def search_summary(study: Study, store: str, n_expected: int) -> str:
    """The text at the end of a search of `n_expected` trials; `store` is the URL as the user wrote it."""
    if study.figures_of_merit.are_several:
        lines = ["", "the Pareto front:", trials_table(study.record, study.pareto()[:20]), ""]
    else:
        lines = ["", "the best trials:", trials_table(study.record, study.ranked(("complete",))[:5]), ""]
    if notes := study.notes():
        lines += [*notes, ""]
    if confirmed := confirmation_text(study.record, study.confirmation):
        lines += [confirmed, ""]
    if study.best is not None and (changes := schedule_text(lineage(study, study.best))):
        lines += ["hyperparameters of the best trial that changed during its training:", changes, ""]
    if not study.is_finished:
        n_ended, n_running = study.record.n_ended, study.record.counts.get("running", 0)
        # no trial of this search is running any more
        is_left_to_others = n_running > 0 and n_ended + n_running >= n_expected
        rest = (
            f"a workload system still runs {n_running}"
            if is_left_to_others
            else "to resume, run the same command again"
        )
        have = "has" if n_expected == 1 else "have"
        lines.append(f"{n_ended} of {counted(n_expected, 'trial')} {have} ended; {rest}")
    n_failed = study.record.counts.get("failed", 0)
    if n_failed:
        lines.append(f"{n_failed} of {counted(study.record.n_ended, 'trial')} failed")
    if not is_in_memory(parsed(store)):
        store = without_passwords(store)
        if n_failed:
            of_study = f"--store {shlex.quote(store)} --study {shlex.quote(study.name)}"
            lines[-1] += f"; to see why\n  mpi-opt results {of_study} --state failed"
        query = re.sub(r'[\\"$`]', r"\\\g<0>", _query(study))  # in double quotes: the query has single ones
        lines += [f"all trials are in {store}; try", f'  mpi-opt results --store {shlex.quote(store)} --sql "{query}"']
    return "\n".join(lines)


def end_in_short(study: Study) -> str:
    """How a search has ended, in one line."""
    latest = next((event for event in reversed(study.events()) if event.kind in SEARCH_EVENTS), None)
    why = "" if latest is None else f"{latest.detail}; "
    if latest is not None and latest.kind == STUDY_FINISHED and not study.is_finished:
        why = "not all new runs of the best points have ended; "
    of = f"{study.figures_of_merit.names[0]} " if study.figures_of_merit.are_several else ""
    best = "" if study.best is None else f"; best {of}{study.best.figure_of_merit:.6g} (trial {study.best.number})"
    n_ended, wanted = study.record.n_ended, study.record.configuration.get("search", {}).get("trials")
    of_wanted = "" if study.is_finished or wanted is None else f"{n_ended} of "
    return f"{why}{of_wanted}{counted(wanted if of_wanted else n_ended, 'trial')} ended{best}"


def _query(study: Study) -> str:
    """A query in SQL for the best trials."""
    order, view = "DESC" if study.record.maximize else "ASC", quoted(study.view)
    named = StudyColumns.of(study.space, study.figures_of_merit)
    if named.pareto is not None:
        return f"SELECT * FROM {view} WHERE {named.pareto} = 1 ORDER BY figure_of_merit {order}"
    columns = ", ".join(["number", *map(quoted, named.parameters.values()), "figure_of_merit"])
    return f"SELECT {columns} FROM {view} WHERE state = 'complete' ORDER BY figure_of_merit {order} LIMIT 5"


MAX_BLOCKS = 32
"""The largest number of blocks in the table."""

N_EVENTS = 5
"""The number of events."""


def status_text(status: SearchStatus) -> str:
    """The status as lines: the search, its trials, blocks and latest events. Times are UTC."""
    rows = [("study", f"{cell(status.study, None)}: {_activity(status)}")]
    states = ", ".join(f"{status.trials[state]} {state}" for state in STATES if state in status.trials)
    rows.append(("trials", f"{status.n_ended} of {status.wanted} ended{f'; {states}' if states else ''}"))
    # rows appear as soon as they are known: a search without results has neither best trial nor speed
    if (runs := status.new_runs) is not None:
        rows.append(("new runs", f"{runs.n_ended} of {runs.wanted} ended (study {cell(runs.study, None)})"))
    if status.best is not None:
        name, n = status.figures_of_merit[0], len(status.figures_of_merit)
        which = f"; {cell(name, None)}, the first of {n} figures of merit" if n > 1 else ""
        rows.append(("best", f"{status.best:.6g} (trial {status.best_number}){which}"))
    if status.trials_per_hour is not None:
        rows.append(("speed", f"{_speed(status.trials_per_hour)} trials per hour"))
    if status.expected_end is not None:
        rows.append(("expected end", f"{readable(status.expected_end)} UTC"))
    if status.hosts:
        rows.append(("hosts", ", ".join(map(cell, status.hosts))))
    if status.n_restarts:
        rows.append(("restarts", str(status.n_restarts)))
    lines = [f"{name:<13} {value}" for name, value in rows]
    if status.blocks:
        lines += ["", _blocks(status)]
    if status.events:
        shown = [(readable(one.at), one.kind, one.detail.partition("\n")[0]) for one in status.events[:N_EVENTS]]
        lines += ["", aligned(("event at (UTC)", "kind", "detail"), shown)]
    return "\n".join(lines)


def _speed(per_hour: float) -> str:
    return f"{per_hour:,.0f}" if per_hour >= 1000 else f"{per_hour:.4g}"


def _activity(status: SearchStatus) -> str:
    owner = f"process {status.process} on {status.host}, since {readable(status.since or '')} UTC"
    silent = f"last sign of life {duration(status.silent_s or 0.0)} ago"
    match status.activity:
        case "running":
            return f"running, {owner}; {silent}"
        case "silent":
            return f"no sign of life: {owner}; {silent}"
    if status.host is None and (n := status.trials.get("running", 0)):  # a search returns its trials when it ends
        return f"{status.activity}; a workload system runs {counted(n, 'trial')}"
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
