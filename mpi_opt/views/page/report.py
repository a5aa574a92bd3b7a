"""The report: one HTML page that contains its data and script and opens offline.

All content from a study is escaped: text as HTML, data as JSON that cannot close its element. The content security
policy of the page forbids other scripts and all requests.
"""

from __future__ import annotations

import html
import math
import re
import secrets
import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from mpi_learn import __version__
from mpi_learn.cli.terminal import duration
from mpi_learn.settings.yaml_file import dumped
from mpi_opt.configuration.configuration import EXTERNAL, publishable
from mpi_opt.core.collecting import collector_paused
from mpi_opt.core.counted import counted, plural
from mpi_opt.core.folds.fold_splits import number_of_folds
from mpi_opt.core.limits import reason_of
from mpi_opt.core.search_space.space import Categorical
from mpi_opt.core.trial import State, TrialRecord
from mpi_opt.errors import ConfigurationError, shortened
from mpi_opt.store.records import CHOSEN, AttemptRecord, CurveRecord, EventRecord, FoldRecord, readable
from mpi_opt.study.presentation import (
    LAST_COLUMNS,
    NOTE,
    cell,
    html_table,
    main_figure_name,
    trial_columns,
    trial_rows,
    with_null,
)
from mpi_opt.study.reading import EXTERNAL_BLOCK
from mpi_opt.study.study import Study
from mpi_opt.views.figures.importance import MIN_TRIALS, Forest
from mpi_opt.views.figures.timeline import Timeline, make_timeline
from mpi_opt.views.output_file import written_aside
from mpi_opt.views.page.drawn_trials import Drawn
from mpi_opt.views.page.report_data import as_script, report_data
from mpi_opt.views.series import figures as series
from mpi_opt.views.text.best_trial import codes_text, trial_yaml, versions_text
from mpi_opt.views.text.tables import confirmation_text, error_line, lineage

OfTrial = TypeVar("OfTrial", AttemptRecord, CurveRecord, FoldRecord)
"""Records in the store with the number of a trial."""

SCRIPTS = ("charts.js", "page_data.js", "figures_of_trials.js", "figures_of_hyperparameters.js", "report.js")
N_BEST, N_REASONS, N_EVENTS = 20, 30, 200
OTHER_STATES: tuple[State, ...] = ("pruned", "failed", "running", "queued")


@collector_paused()
def report(study: Study) -> str:
    """The complete page of a study as HTML. Reads folds, curves, attempts and events from the store."""
    attempts, events = _of_known_trials(study, study.attempts()), study.events()
    folds, curves = _of_known_trials(study, study.folds()), _of_known_trials(study, series.curves_to_draw(study))
    timeline = make_timeline(attempts, events)
    drawn = Drawn.of(study, timeline)
    data = report_data(study, drawn, Forest.of(study), folds, curves)
    nonce = secrets.token_urlsafe(16)
    parts = {
        "nonce": nonce,
        "title": escaped(f"{study.name} · MPI Opt"),
        "css": _page("report.css"),
        "script": '(() => {\n"use strict";\n' + "\n".join(map(_page, SCRIPTS)) + "\n})();",
        "data": as_script(data),
        "name": escaped(study.name),
        "summary": escaped("; ".join(filter(None, [_summary(study), drawn.note]))),
        "tiles": _tiles(study, timeline),
        "utilisation": escaped(_utilisation(timeline)),
        "external_row": escaped(_external_row(timeline)),
        "best_ranges": _best_ranges(study),
        "trials": _best_table(study, drawn.trials),
        "failures": _failures(study, attempts, events),
        "best_trial_hint": _best_trial_hint(study),
        "best_trial": escaped(_best_trial(study)),
        "reproduce": _reproduce(study, attempts),
        "footer": escaped(f"written by MPI Opt {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _page("report.html"))


def _of_known_trials(study: Study, records: Sequence[OfTrial]) -> list[OfTrial]:
    """The records of the trials of `study`: a search may have begun others since the study was read."""
    known = {trial.number for trial in study.trials}
    return [record for record in records if record.number in known]


def save_report(study: Study, path: Path) -> None:
    """Writes the page of a study. The file is complete or does not exist.

    Raises:
        ConfigurationError: The folder does not exist, or `path` is a folder.
    """
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder", where="-o", cure=f"-o {path / 'report.html'}")
    with written_aside(path) as aside:
        aside.write_text(report(study), encoding="utf-8")


def escaped(text: object) -> str:
    """`text` escaped for HTML, also for use in an attribute."""
    return html.escape(str(text), quote=True)


def _page(name: str) -> str:
    return resources.files("mpi_opt.views.page").joinpath("static", name).read_text(encoding="utf-8")


def _summary(study: Study) -> str:
    verb = "maximising" if study.record.maximize else "minimising"
    folds = number_of_folds(study.configuration)
    aim = f"{verb} {main_figure_name(study.record)}"
    if study.figures_of_merit.are_several:
        pairs = zip(study.figures_of_merit.directions, study.figures_of_merit.names, strict=True)
        aim = "Pareto front of " + ", ".join(f"{name} ({direction})" for direction, name in pairs)
    parts = [aim, f"strategy {study.record.strategy}", f"seed {study.record.seed}"]
    parts += [f"{folds} folds"] if folds != 1 else []
    return ", ".join([*parts, f"created {readable(study.record.created_at)} UTC"])


def _tiles(study: Study, timeline: Timeline | None) -> str:
    """The numbers at the top of the page."""
    counts = study.record.counts
    others = ", ".join(f"{n} {state}" for state in OTHER_STATES if (n := counts.get(state)))
    tiles = [_best_tile(study), (str(counts.get("complete", 0)), "trials complete" + (f"; {others}" if others else ""))]
    if timeline:
        searched_s = timeline.span_s - timeline.pause_s
        pace = 3600 * study.record.n_ended / searched_s if searched_s > 0 else 0.0
        without = f", without pauses of {duration(timeline.pause_s)}" if timeline.pause_s > 1 else ""
        tiles += [
            (duration(searched_s), f"from the first start to the last end{without}"),
            (f"{pace:,.0f}" if pace > 100 else f"{pace:.3g}", "trials per hour"),
        ]
    if timeline and timeline.utilisation is not None:
        n_blocks = counted(timeline.n_blocks, "block")
        tiles.append((f"{timeline.utilisation:.1%}", f"of the time busy, {n_blocks}"))
    return "".join(f'<div class="tile"><b>{escaped(v)}</b><span>{escaped(text)}</span></div>' for v, text in tiles)


def _utilisation(timeline: Timeline | None) -> str:
    if timeline is None or timeline.utilisation is None:
        return ""
    return f"blocks busy {timeline.utilisation:.1%} of the time"


def _external_row(timeline: Timeline | None) -> str:
    """An explanation of the row of workload systems; empty if there is no such row."""
    if timeline is None or EXTERNAL_BLOCK not in timeline.rows:
        return ""
    return " The row “external” has the trials that a workload system runs; they can overlap."


def _best_tile(study: Study) -> tuple[str, str]:
    best, name = study.best, f"best {main_figure_name(study.record)}"
    if best is None:
        return "–", name
    uncertainty = f" ± {best.uncertainty:.2g}" if best.uncertainty else ""
    return f"{best.figure_of_merit:.4g}{uncertainty}", f"{name} (trial {best.number})"


def _best_trial(study: Study) -> str:
    if study.best is None:
        return "no trial is complete yet"
    notes = [*study.notes(), *confirmation_text(study.record, study.confirmation).splitlines()]
    return trial_yaml(study.record, lineage(study, study.best), notes=notes)


def _best_table(study: Study, drawn: Sequence[TrialRecord]) -> str:
    """The table of the best trials, each with its index among those that the figures show."""
    trials = study.ranked(("complete",))[:N_BEST]
    if not trials:
        return '<p class="empty">no trial is complete yet</p>'
    if (best := study.best) is not None and best not in trials:  # shorter trainings have better figures of merit
        trials = [*trials[:-1], best]
    index = {trial.number: i for i, trial in enumerate(drawn)}
    rows = trial_rows(trials, study.record)
    attributes = [f' data-trial="{index[trial.number]}"' for trial in trials]
    attributes[trials.index(best or trials[0])] += " class=is-best"
    hidden = {"state", *LAST_COLUMNS} - ({NOTE} if any(trial.note for trial in trials) else set())
    return html_table(trial_columns(study.record, without=hidden), rows, attributes)


def _best_ranges(study: Study) -> str:
    """The range of each hyperparameter over the best tenth of the complete trials, at least five.

    Empty for fewer than `MIN_TRIALS` complete trials.
    """
    ranked = series.complete(study)
    best = ranked[: max(5, math.ceil(len(ranked) / 10))]
    if len(ranked) < MIN_TRIALS:
        return ""
    rows = []
    for name, dimension in study.space.items():
        values = [trial.parameters[name] for trial in best if name in trial.parameters]
        numbers = [value for value in values if isinstance(value, int | float)]
        if not values:
            text = "inactive in all of them"
        elif isinstance(dimension, Categorical):
            text = ", ".join(
                f"{value} ({count})"
                for value, count in Counter(str(with_null(value)) for value in values).most_common(4)
            )
        else:
            text = f"{cell(min(numbers))} … {cell(max(numbers))}"
        rows.append(f'<tr><td class="text">{escaped(name)}</td><td>{escaped(text)}</td></tr>')
    head = f'<p class="hint spaced">Ranges of the {len(best)} best trials:</p>'
    return f'{head}<table class="ranges">{"".join(rows)}</table>'


def _failures(study: Study, attempts: Sequence[AttemptRecord], events: Sequence[EventRecord]) -> str:
    """The failed trials by reason, then the latest `N_EVENTS` events and lost attempts."""
    reasons = _by_reason(study.trials)
    parts = [_reason(trials) for trials in reasons[:N_REASONS]] or ['<p class="good">No trial failed.</p>']
    if len(reasons) > N_REASONS:
        parts.append(f"<p>and {counted(len(reasons) - N_REASONS, 'other reason')}: mpi-opt results --state failed</p>")
    rows = [(event.at, event.kind, event.detail) for event in events]
    rows += [
        (
            str(attempt.finished_at),
            f"trial {attempt.number}",
            f"{attempt.outcome} {_place(attempt)}: {attempt.error}",
        )
        for attempt in attempts
        if attempt.is_given_up
    ]
    return "".join([*parts, _events(sorted(rows)) if rows else ""])


def _place(attempt: AttemptRecord) -> str:
    return "in a workload system" if attempt.block == EXTERNAL_BLOCK else f"on block {attempt.block}"


def _by_reason(trials: Sequence[TrialRecord]) -> list[list[TrialRecord]]:
    """The failed trials, grouped by the reason without its numbers; the largest group first."""
    reasons: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        if trial.state == "failed":
            reasons.setdefault(reason_of(error_line(trial.error)), []).append(trial)
    return sorted(reasons.values(), key=lambda group: -len(group))


def _reason(trials: Sequence[TrialRecord]) -> str:
    reason = error_line(trials[0].error) or "no reason was recorded"
    numbers = ", ".join(str(trial.number) for trial in trials[:12]) + (", …" if len(trials) > 12 else "")
    which = f'<span class="which">{plural("trial", len(trials))} {numbers}</span>'
    head = f'<span class="count">{len(trials)} ×</span> {escaped(reason)} {which}'
    return f"<details><summary>{head}</summary><pre>{escaped(shortened(trials[0].error or ''))}</pre></details>"


def _events(rows: Sequence[tuple[str, str, str]]) -> str:
    lines = "\n".join(f"{readable(at)}  {kind:<16} {detail}" for at, kind, detail in rows[-N_EVENTS:])
    head = f"{counted(len(rows), 'event')} of the search"
    if len(rows) > N_EVENTS:
        head += f"; the latest {N_EVENTS} are shown"
    return f"<details><summary>{head}</summary><pre>{escaped(lines)}</pre></details>"


def _best_trial_hint(study: Study) -> str:
    if study.configuration.get("training") is None:
        return "The hyperparameters of the best trial."
    command = escaped(f"mpi-opt best --study {shlex.quote(study.name)} > best.yaml; mpi-learn train best.yaml -n 4")
    return f"To train the best trial again: <code>{command}</code>"


def _reproduce(study: Study, attempts: Sequence[AttemptRecord]) -> str:
    facts = _how_to_run(study, attempts) | {
        "seed": study.record.seed,
        "versions": _versions(study),
        "cite": f"MPI Opt {__version__}: hyperparameter search over blocks of MPI ranks (see CITATION.cff)",
    }
    listed = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in facts.items())
    whole = publishable(study.configuration | {"training": study.record.training})
    shown = {key: value for key, value in whole.items() if key not in ("directory", CHOSEN)}
    text = dumped(shown)
    return f"<dl>{listed}</dl><details><summary>The complete space.yaml</summary><pre>{escaped(text)}</pre></details>"


def _versions(study: Study) -> str:
    """The versions with which the trials ran; for several codes of the study, how they differ."""
    codes = study.codes()
    if not codes:
        return "not recorded"
    commit = f", commit {codes[-1].git_commit}" if codes[-1].git_commit else ""
    text = versions_text(codes[-1]) + commit
    if len(codes) == 1:
        return text
    return f"{text}; the trials ran with {len(codes)} codes (column code):\n{codes_text(codes)}"


def _how_to_run(study: Study, attempts: Sequence[AttemptRecord]) -> dict[str, Any]:
    """The command that ran the trials, and earlier ones. Stores of schema 3 have none: then its form."""
    if study.record.commands:
        *earlier, latest = study.record.commands
        return {"command": latest} | ({"before": "\n".join(earlier)} if earlier else {})
    if study.configuration.get("objective") == EXTERNAL:
        return {"command": "mpi-opt ask SPACE.yaml (the command was not recorded)"}
    largest = max((int(number) for attempt in attempts for number in re.findall(r"\d+", attempt.ranks)), default=0)
    n_ranks = f" -n N, with N of at least {largest + 1}" if largest else ""
    return {"command": f"mpi-opt search SPACE.yaml{n_ranks} (the command was not recorded)"}
