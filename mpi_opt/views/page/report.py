"""The report: one page that holds all it needs, opens offline and runs its own script only.

Everything that comes from a study is escaped: as HTML where it is text, as JSON that cannot end its element where it is
data. A content security policy forbids every other script, and all requests.
"""

from __future__ import annotations

import html
import math
import platform
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mpi_opt.configuration.configuration import publishable
from mpi_opt.core.cross_validation import number_of_folds
from mpi_opt.core.space import Categorical
from mpi_opt.errors import ConfigurationError
from mpi_opt.study.study import trial_columns, trial_row
from mpi_opt.views.figures import series
from mpi_opt.views.figures.importance import MIN_TRIALS, Surrogate
from mpi_opt.views.figures.timeline import Timeline, make_timeline
from mpi_opt.views.page.report_data import as_script, report_data
from mpi_opt.views.text.best_trial import winner_yaml
from mpi_opt.views.text.tables import cell, error_line

if TYPE_CHECKING:
    from mpi_opt.core.trial import TrialRecord
    from mpi_opt.store.records import AttemptRecord, EventRecord
    from mpi_opt.study.study import Study

SCRIPTS = ("charts.js", "figures.js", "more_figures.js", "report.js")
N_BEST, N_REASONS = 20, 30
PACKAGES = ("mpi-opt", "numpy", "scikit-optimize", "mpi4py", "keras", "tensorflow", "tensorflow-cpu", "torch")


def report(study: Study) -> str:
    """The whole page of a study, as HTML. Reads folds, curves, attempts and events from the store."""
    attempts, events = study.attempts(), study.events()
    spans = make_timeline(attempts)
    data = report_data(study, Surrogate.of(study), spans, study.folds(), series.curves_to_draw(study))
    nonce = secrets.token_urlsafe(16)
    parts = {
        "nonce": nonce,
        "title": escaped(f"{study.name} · MPI Opt"),
        "css": _page("report.css"),
        "script": '(() => {\n"use strict";\n' + "\n".join(map(_page, SCRIPTS)) + "\n})();",
        "data": as_script(data),
        "name": escaped(study.name),
        "summary": escaped(_summary(study)),
        "tiles": _tiles(study, spans),
        "utilisation": escaped(f"blocks busy {spans.utilisation:.1%} of the time" if spans else ""),
        "best_ranges": _best_ranges(study),
        "trials": _best_table(study),
        "failures": _failures(study, attempts, events),
        "winner_hint": _winner_hint(study),
        "winner": escaped(winner_yaml(study, study.best) if study.best else "no trial is complete yet"),
        "reproduce": _reproduce(study, attempts),
        "footer": escaped(f"written by MPI Opt {_version('mpi-opt')} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _page("report.html"))


def save_report(study: Study, path: Path) -> None:
    """Writes the page of a study, whole or not at all.

    Raises:
        ConfigurationError: The folder does not exist, or the file is one.
    """
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder", where="-o", cure=f"-o {path / 'report.html'}")
    if not path.parent.is_dir():
        raise ConfigurationError(f"the folder {path.parent} does not exist", where="-o", cure=f"mkdir -p {path.parent}")
    aside = path.with_name(f".{path.name}.unfinished")
    aside.write_text(report(study), encoding="utf-8")
    aside.replace(path)


def escaped(text: object) -> str:
    """`text` as HTML shows it, also within an attribute."""
    return html.escape(str(text), quote=True)


def _page(name: str) -> str:
    return resources.files("mpi_opt.views.page").joinpath("static", name).read_text(encoding="utf-8")


def _summary(study: Study) -> str:
    verb = "maximising" if study.record.maximize else "minimising"
    folds = number_of_folds(study.configuration)
    aim = f"{verb} {series.merit_name(study)}"
    if study.merits.are_several:
        pairs = zip(study.merits.directions, study.merits.names, strict=True)
        aim = "Pareto front of " + ", ".join(f"{name} ({direction})" for direction, name in pairs)
    parts = [aim, f"strategy {study.record.strategy}", f"seed {study.record.seed}"]
    parts += [f"{folds} folds"] if folds != 1 else []
    return ", ".join([*parts, f"begun {study.record.created_at[:16].replace('T', ' ')} UTC"])


def _tiles(study: Study, spans: Timeline | None) -> str:
    counts, best = study.record.counts, study.best
    n_ended = sum(counts.get(state, 0) for state in ("complete", "pruned", "failed"))
    merit = "–"
    if best is not None:
        merit = f"{best.figure_of_merit:.4g}" + (f" ± {best.uncertainty:.2g}" if best.uncertainty else "")
    states = [state for state in ("pruned", "failed", "running", "queued") if counts.get(state)]
    others = ", ".join(f"{counts[state]} {state}" for state in states)
    tiles = [
        (merit, f"best {series.merit_name(study)}" + (f" (trial {best.number})" if best else "")),
        (counts.get("complete", 0), "trials complete" + (f"; {others}" if others else "")),
    ]
    if spans:
        pace = 3600 * n_ended / spans.span_s if spans.span_s else 0.0
        tiles += [
            (_duration(spans.span_s), "from first to last"),
            (f"{pace:,.0f}" if pace > 100 else f"{pace:.3g}", "trials an hour"),
        ]
        tiles += [(f"{spans.utilisation:.1%}", f"of the time busy, {len(spans.blocks)} blocks")]
    return "".join(f'<div class="tile"><b>{escaped(v)}</b><span>{escaped(text)}</span></div>' for v, text in tiles)


def _best_table(study: Study) -> str:
    trials = study.ranked(("complete",))[:N_BEST]
    if not trials:
        return '<p class="empty">no trial is complete yet</p>'
    index = {trial.number: i for i, trial in enumerate(study.trials)}
    hidden = {"state", "started_at", "finished_at", "attempts", "error"}
    columns = [column for column in trial_columns(study.space, study.merits) if column not in hidden]
    rows = [trial_row(trial, study.space, study.merits) for trial in trials]
    head = "".join(f"<th>{escaped(column)}</th>" for column in columns)
    body = "".join(
        f'<tr data-trial="{index[row["number"]]}"{" class=is-best" if rank == 0 else ""}>'
        + "".join(f"<td>{escaped(cell(row[column]))}</td>" for column in columns)
        + "</tr>"
        for rank, row in enumerate(rows)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _best_ranges(study: Study) -> str:
    """Where the best tenth of the complete trials lie, hyperparameter by hyperparameter."""
    ranked = series.complete(study)
    best = ranked[: max(5, math.ceil(len(ranked) / 10))]
    if len(ranked) < MIN_TRIALS:
        return ""
    rows = []
    for name, dimension in study.space.items():
        values = [trial.parameters[name] for trial in best if name in trial.parameters]
        if not values:
            text = "inactive in all of them"
        elif isinstance(dimension, Categorical):
            text = ", ".join(f"{value} ({count})" for value, count in Counter(map(str, values)).most_common(4))
        else:
            text = f"{cell(min(values))} … {cell(max(values))}"
        rows.append(f'<tr><td class="text">{escaped(name)}</td><td>{escaped(text)}</td></tr>')
    head = f'<p class="hint spaced">Where the {len(best)} best trials lie:</p>'
    return f'{head}<table class="ranges">{"".join(rows)}</table>'


def _failures(study: Study, attempts: Sequence[AttemptRecord], events: Sequence[EventRecord]) -> str:
    reasons: dict[str, list[TrialRecord]] = {}  # reasons that differ by numbers only are one
    for trial in study.trials:
        if trial.state == "failed":
            reasons.setdefault(re.sub(r"\d+", "#", error_line(trial.error) or ""), []).append(trial)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    parts = [_reason(trials) for _, trials in ordered[:N_REASONS]]
    if len(ordered) > N_REASONS:
        parts.append(f"<p>and {len(ordered) - N_REASONS} other reasons: mpi-opt results --state failed</p>")
    if not parts:
        parts.append('<p class="good">No trial failed.</p>')
    rows: list[tuple[Any, ...]] = [
        (attempt.finished_at, f"trial {attempt.number}", f"lost on block {attempt.block}: {attempt.error}")
        for attempt in attempts
        if attempt.outcome == "lost"
    ]
    rows += [(event.at, event.kind, event.detail) for event in events]
    parts += [_events(sorted(rows, key=lambda row: str(row[0]))[-200:])] if rows else []
    return "".join(parts)


def _reason(trials: Sequence[TrialRecord]) -> str:
    reason = error_line(trials[0].error) or "no reason was recorded"
    numbers = ", ".join(str(trial.number) for trial in trials[:12]) + (", …" if len(trials) > 12 else "")
    head = f'<span class="count">{len(trials)} ×</span> {escaped(reason)} <span class="which">trials {numbers}</span>'
    return f"<details><summary>{head}</summary><pre>{escaped((trials[0].error or '')[:6000])}</pre></details>"


def _events(rows: Sequence[tuple[Any, ...]]) -> str:
    lines = "\n".join(f"{str(at)[:19].replace('T', ' ')}  {what:<16} {detail}" for at, what, detail in rows)
    head = f"What happened on the way: {len(rows)} events"
    return f"<details><summary>{head}</summary><pre>{escaped(lines)}</pre></details>"


def _winner_hint(study: Study) -> str:
    if study.configuration.get("training") is None:
        return "The hyperparameters of the best trial."
    command = escaped(f"mpi-opt best --study {study.name} > best.yaml; mpi-learn train best.yaml -n 4")
    return f"A ready training.yaml of the best trial: <code>{command}</code>"


def _reproduce(study: Study, attempts: Sequence[AttemptRecord]) -> str:
    ranks = [int(number) for attempt in attempts for number in re.findall(r"\d+", attempt.ranks)]
    n = max(ranks, default=0) + 1
    versions = [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    mpirun = f"mpirun -np {n} " if n > 1 else ""
    facts = {
        "command": f"{mpirun}python -m mpi_opt search space.yaml",
        "ranks": f"{n}: one coordinates, {n - 1} train" if n > 1 else "1",
        "seed": study.record.seed,
        "versions": ", ".join([*versions, f"Python {platform.python_version()}"]),
        "cite": f"MPI Opt {_version('mpi-opt')}: hyperparameter search over blocks of MPI ranks (see CITATION.cff)",
    }
    listed = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in facts.items())
    shown = {key: value for key, value in publishable(study.configuration).items() if key != "directory"}
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    note = "Versions are those of the place where this page was written."
    return (
        f'<dl>{listed}</dl><p class="hint">{note}</p>'
        f"<details><summary>The whole space.yaml</summary><pre>{escaped(text)}</pre></details>"
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
