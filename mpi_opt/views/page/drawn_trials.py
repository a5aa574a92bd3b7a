"""The trials and blocks that the figures of a page show: all of them, or a part of very many.

A page with a point for each of 100,000 trials in each figure takes a browser many seconds, and the points cover each
other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mpi_opt.core.thinning import thinned
from mpi_opt.core.trial import TrialRecord
from mpi_opt.study.study import Study
from mpi_opt.views.figures.timeline import Timeline
from mpi_opt.views.series import figures as series

MAX_TRIALS = 20_000
"""The largest number of trials that are all shown; of more, half of this number are the best ones."""

MAX_ROWS, MAX_BARS = 400, 20_000
"""The largest numbers of blocks and of their attempts in the timeline: browsers limit the height of a figure."""


@dataclass(frozen=True)
class Drawn:
    """The trials that the figures of a page show.

    Attributes:
        trials: The trials, by number.
        timeline: The timeline, with some of the blocks and of their attempts; None without attempts.
        note: Which part of the trials is shown; empty if all are.
        blocks_note: Which part of the blocks is shown; empty if all are.
    """

    trials: list[TrialRecord]
    timeline: Timeline | None
    note: str = ""
    blocks_note: str = ""

    @classmethod
    def of(cls, study: Study, timeline: Timeline | None) -> Drawn:
        """The part of a study that is shown.

        Of many trials these are the best ones, an even selection of all others, those that were the best so far when
        they ended, and those of the blocks in the timeline.
        """
        shown = None if timeline is None else _with_some_blocks(timeline)
        blocks_note = ""
        if timeline is not None and shown is not None and len(shown.bars) < len(timeline.bars):
            of_blocks = f"{len(shown.rows):,} of {len(timeline.rows):,} blocks"
            of_trials = f"{len(shown.bars):,} of {len(timeline.bars):,} attempts"
            blocks_note = f"{of_blocks if len(shown.rows) < len(timeline.rows) else of_trials}, evenly selected"
        if len(study.trials) <= MAX_TRIALS:
            return cls(study.trials, shown, "", blocks_note)
        # lines and bars refer to trials: without these, the history and the timeline would have gaps
        chosen = {trial.number for trial in thinned(study.ranked(), MAX_TRIALS)}
        chosen |= {trial.number for _, trial in series.improvements(series.by_end_time(study), study.record.maximize)}
        chosen |= {bar.number for bar in shown.bars} if shown is not None else set()
        chosen |= {study.best.number} if study.best is not None else set()
        trials = [trial for trial in study.trials if trial.number in chosen]
        which = "the best ones, and an even selection of the others"
        return cls(trials, shown, f"figures show {len(trials):,} of {len(study.trials):,} trials: {which}", blocks_note)


def _with_some_blocks(timeline: Timeline) -> Timeline:
    """The timeline with an even selection of its blocks, and with all of their attempts unless these are too many."""
    rows, n_bars = timeline.rows, len(timeline.bars)
    n = min(MAX_ROWS, max(MAX_BARS * len(rows) // max(n_bars, MAX_BARS), 1), len(rows))
    chosen = {rows[index * len(rows) // n] for index in range(n)}
    bars = [bar for bar in timeline.bars if bar.block in chosen]
    return replace(timeline, bars=bars[:: math.ceil(len(bars) / MAX_BARS)] if bars else bars)
