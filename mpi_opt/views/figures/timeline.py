"""The attempts of a search on the axis of time, and the fraction of the time in which the blocks were busy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mpi_opt.store.records import AttemptRecord, readable
from mpi_opt.study.past_trials import EXTERNAL_BLOCK
from mpi_opt.views.series.axes import Axis, linear_axis


@dataclass(frozen=True)
class Bar:
    """One attempt; times in seconds since the start of the first. `block` can be `EXTERNAL_BLOCK`.

    Attempts in workload systems are in one row and can overlap: then it is divided into `strips`, and the bar is in
    number `strip`.
    """

    block: int
    number: int
    begin_s: float
    end_s: float
    outcome: str
    strip: int = 0
    strips: int = 1


@dataclass(frozen=True)
class Timeline:
    """The attempts of a study.

    Attributes:
        bars: The attempts, by their start.
        began_at: The start of the first attempt, UTC ISO-8601 text.
        span_s: The seconds from the first start to the last known start or end.
        utilisation: The fraction of the time from the first start to the last end on a block, over all blocks, in which
            a trial ran; between 0 and 1. None if no block ran an attempt.
    """

    bars: list[Bar]
    began_at: str
    span_s: float
    utilisation: float | None

    @property
    def unit_s(self) -> int:
        """The number of seconds of a unit of the axis."""
        return 3600 if self.span_s > 7200 else 60 if self.span_s > 120 else 1

    @property
    def axis(self) -> Axis:
        """The axis of the time since the first start."""
        unit = {3600: "h", 60: "min", 1: "s"}[self.unit_s]
        title = f"time since {readable(self.began_at)} UTC [{unit}]"
        return linear_axis(title, (0.0, self.span_s / self.unit_s or 1.0))

    @property
    def rows(self) -> list[int]:
        """The blocks that ran at least one attempt, after `EXTERNAL_BLOCK` if a workload system ran one."""
        return sorted({bar.block for bar in self.bars})

    @property
    def blocks(self) -> list[int]:
        """The blocks that ran at least one attempt, without `EXTERNAL_BLOCK`."""
        return [row for row in self.rows if row != EXTERNAL_BLOCK]


def make_timeline(attempts: Sequence[AttemptRecord]) -> Timeline | None:
    """The timeline of the attempts of a study, in any order; None without attempts.

    The bars of running attempts end at the last known time.
    """
    if not attempts:
        return None
    ordered = sorted(attempts, key=lambda attempt: attempt.started_at)
    starts = [datetime.fromisoformat(attempt.started_at) for attempt in ordered]
    ends = [datetime.fromisoformat(attempt.finished_at) if attempt.finished_at else None for attempt in ordered]
    origin, last = starts[0], max([*starts, *filter(None, ends)])
    bars = [
        Bar(
            block=attempt.block,
            number=attempt.number,
            begin_s=(start - origin).total_seconds(),
            end_s=((end or last) - origin).total_seconds(),
            outcome=attempt.outcome or "running",
        )
        for attempt, start, end in zip(ordered, starts, ends, strict=True)
    ]
    external = _in_strips([bar for bar in bars if bar.block == EXTERNAL_BLOCK])
    bars = [external.get(id(bar), bar) for bar in bars]
    on_blocks = [bar for bar in bars if bar.block != EXTERNAL_BLOCK]
    utilisation = _utilisation(on_blocks) if on_blocks else None
    return Timeline(bars, ordered[0].started_at, (last - origin).total_seconds(), utilisation)


def _in_strips(bars: Sequence[Bar]) -> dict[int, Bar]:
    """`bars`, which are sorted by their start, in as few strips without overlap as possible; by the id of the bar."""
    ends: list[float] = []
    strips = []
    for bar in bars:
        free = next((strip for strip, end_s in enumerate(ends) if end_s <= bar.begin_s), len(ends))
        if free == len(ends):
            ends.append(bar.end_s)
        ends[free] = bar.end_s
        strips.append(free)
    pairs = zip(bars, strips, strict=True)
    return {id(bar): replace(bar, strip=strip, strips=len(ends)) for bar, strip in pairs}


def _utilisation(bars: Sequence[Bar]) -> float:
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for bar in bars:
        spans[bar.block].append((bar.begin_s, bar.end_s))
    span = max(bar.end_s for bar in bars) - min(bar.begin_s for bar in bars)
    return sum(_covered(block) for block in spans.values()) / (span * len(spans)) if span > 0 else 1.0


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """The length of the union of `spans`."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
