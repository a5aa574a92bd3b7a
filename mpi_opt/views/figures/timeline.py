"""The attempts of a search on the axis of time, and the fraction of the time in which the ranks were busy."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mpi_opt.store.events import STUDY_RESUMED
from mpi_opt.store.records import AttemptRecord, EventRecord, readable
from mpi_opt.study.reading import EXTERNAL_BLOCK
from mpi_opt.views.series.axes import Axis, linear_axis


@dataclass(frozen=True)
class Bar:
    """One attempt; times in seconds since the start of the first. `block` can be `EXTERNAL_BLOCK`.

    Attempts in workload systems are in one row and can overlap: then it is divided into `strips`, and the bar is in
    number `strip`.

    Attributes:
        width: The number of ranks, relative to the widest attempt on a block of the study.
        ranks: The ranks of the block.
    """

    block: int
    number: int
    begin_s: float
    end_s: float
    outcome: str
    strip: int = 0
    strips: int = 1
    width: float = 1.0
    ranks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Timeline:
    """The attempts of a study.

    Attributes:
        bars: The attempts, by their start.
        began_at: The start of the first attempt, UTC ISO-8601 text.
        span_s: The seconds from the first start to the last known start or end.
        utilisation: The fraction of the time from the first start to the last end on a block, over all ranks of blocks,
            in which a trial ran; between 0 and 1. It is that of the searches, without the pauses between them and
            without ranks that a search did not have. None if no block ran an attempt.
        n_blocks: The most blocks that existed at once, of those that ran at least one attempt.
        pause_s: The seconds between the searches of the study, in which none ran.
    """

    bars: list[Bar]
    began_at: str
    span_s: float
    utilisation: float | None
    n_blocks: int = 0
    pause_s: float = 0.0

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


def make_timeline(attempts: Sequence[AttemptRecord], events: Sequence[EventRecord] = ()) -> Timeline | None:
    """The timeline of the attempts of a study, in any order; None without attempts.

    The bars of running attempts end at the last known time. The events tell when a search has continued the study.
    """
    if not attempts:
        return None
    ordered = sorted(attempts, key=lambda attempt: attempt.started_at)
    starts = [datetime.fromisoformat(attempt.started_at) for attempt in ordered]
    ends = [datetime.fromisoformat(attempt.finished_at) if attempt.finished_at else None for attempt in ordered]
    origin, last = starts[0], max([*starts, *filter(None, ends)])
    n_ranks = [0 if one.block == EXTERNAL_BLOCK else 1 + one.ranks.count(",") for one in ordered]
    most = max(n_ranks)
    bars = [
        Bar(
            block=attempt.block,
            number=attempt.number,
            begin_s=(start - origin).total_seconds(),
            end_s=((end or last) - origin).total_seconds(),
            outcome=attempt.outcome or "running",
            width=n / most if n else 1.0,
            ranks=frozenset(attempt.ranks.split(",")),
        )
        for attempt, start, end, n in zip(ordered, starts, ends, n_ranks, strict=True)
    ]
    # a workload system runs any number of trials side by side, all on one row of the chart
    external = _in_strips([bar for bar in bars if bar.block == EXTERNAL_BLOCK])
    bars = [external.get(id(bar), bar) for bar in bars]
    on_blocks = [bar for bar in bars if bar.block != EXTERNAL_BLOCK]
    resumed = [datetime.fromisoformat(event.at) for event in events if event.kind == STUDY_RESUMED]
    resumed_s = sorted((at - origin).total_seconds() for at in resumed)
    of_searches = _by_search(on_blocks, resumed_s)
    utilisation, n_blocks = _utilisation(of_searches) if on_blocks else None, _most_blocks(of_searches)
    span_s = (last - origin).total_seconds()
    searched = [(min(bar.begin_s for bar in run), max(bar.end_s for bar in run)) for run in _by_search(bars, resumed_s)]
    return Timeline(bars, ordered[0].started_at, span_s, utilisation, n_blocks, span_s - _covered(searched))


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


def _by_search(bars: Sequence[Bar], resumed_s: Sequence[float]) -> list[list[Bar]]:
    """The bars of each search, in order; searches without any are left out.

    The end of an attempt whose search was killed is unknown: the store has the time at which the next search found it.
    Here it ends with the other attempts of its search.
    """
    found: dict[int, list[Bar]] = defaultdict(list)
    for bar in bars:
        found[bisect_right(resumed_s, bar.begin_s)].append(bar)
    for index, run in found.items():
        if index < len(resumed_s):
            last_s = max(bar.begin_s if bar.outcome == "killed" else min(bar.end_s, resumed_s[index]) for bar in run)
            found[index] = [
                replace(bar, end_s=min(bar.end_s, last_s)) if bar.outcome == "killed" else bar for bar in run
            ]
    return [found[index] for index in sorted(found)]


def _utilisation(searches: Sequence[Sequence[Bar]]) -> float:
    busy_s = available_s = 0.0
    for bars in searches:
        spans: dict[str, list[tuple[float, float]]] = defaultdict(list)  # of a rank, which may change its block
        for bar in bars:
            for rank in bar.ranks:
                spans[rank].append((bar.begin_s, bar.end_s))
        busy_s += sum(map(_covered, spans.values()))
        available_s += len(spans) * (max(bar.end_s for bar in bars) - min(bar.begin_s for bar in bars))
    return busy_s / available_s if available_s > 0 else 1.0


def _most_blocks(searches: Sequence[Sequence[Bar]]) -> int:
    """The most blocks that existed at once: a block exists until another one has one of its ranks."""
    most = 0
    for bars in searches:
        ranks_of: dict[int, frozenset[str]] = {}
        block_of: dict[str, int] = {}
        for bar in bars:
            if ranks_of.get(bar.block) == bar.ranks:
                continue
            for block in {bar.block, *(block_of[rank] for rank in bar.ranks if rank in block_of)}:
                for rank in ranks_of.pop(block, ()):
                    del block_of[rank]
            ranks_of[bar.block] = bar.ranks
            block_of |= dict.fromkeys(bar.ranks, bar.block)
            most = max(most, len(ranks_of))
    return most


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """The length of the union of `spans`."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
