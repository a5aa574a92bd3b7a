"""What each rank did when: one file of JSON lines per rank, merged afterwards to a Chrome trace or a summary."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mpi_learn.errors import DataError
from mpi_learn.optimizers.optimizer import Optimizer

Item = TypeVar("Item")
COMPUTE, COMMUNICATION, DATA, IDLE = "compute", "communication", "data", "idle"


class Timeline:
    """A rank's timeline that records nothing: what a training without ``trace`` has."""

    def span(self, name: str, kind: str) -> AbstractContextManager[None]:
        """A context around some work; spans may lie within each other."""
        return nullcontext()

    def waiting(self, items: Iterable[Item]) -> Iterable[Item]:
        """The same items; the time that each takes to come counts as data."""
        return items

    def timed(self, optimizer: Optimizer) -> Optimizer:
        """The same optimizer; its updates count as computing."""
        return optimizer

    def write(self) -> None:
        """Writes what was recorded since the last time."""


class RecordedTimeline(Timeline):
    """A rank's timeline in ``FOLDER/rank-00003.jsonl``.

    Args:
        folder: Exists already.
        rank: In the training.
        host: Where it runs.
        role: ``master`` or ``worker``.
    """

    def __init__(self, folder: Path, rank: int, host: str, role: str) -> None:
        self.file = folder / f"rank-{rank:05d}.jsonl"
        self._origin_ns = time.time_ns() - time.perf_counter_ns()
        self._events: list[tuple[str, str, int, int]] = []
        self.file.write_text(json.dumps({"rank": rank, "host": host, "role": role}) + "\n", encoding="utf-8")

    @contextmanager
    def span(self, name: str, kind: str) -> Iterator[None]:
        """See `Timeline.span`."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self._events.append((name, kind, start, time.perf_counter_ns()))

    def waiting(self, items: Iterable[Item]) -> Iterable[Item]:
        """See `Timeline.waiting`."""
        iterator = iter(items)
        while True:
            start = time.perf_counter_ns()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self._events.append(("batch", DATA, start, time.perf_counter_ns()))
            yield item

    def timed(self, optimizer: Optimizer) -> Optimizer:
        """See `Timeline.timed`."""
        update = optimizer.update

        def timed_update(weights: np.ndarray, gradient: np.ndarray, scale: float = 1.0) -> None:
            with self.span("update", COMPUTE):
                update(weights, gradient, scale)

        optimizer.update = timed_update
        return optimizer

    def write(self) -> None:
        """See `Timeline.write`."""
        lines = [json.dumps([name, kind, self._origin_ns + a, b - a]) for name, kind, a, b in self._events]
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write("".join(f"{line}\n" for line in lines))
        self._events.clear()


@dataclass(frozen=True)
class RankTrace:
    """What one rank did; events are (name, kind, start in ns since 1970, duration in ns)."""

    rank: int
    host: str
    role: str
    events: list[tuple[str, str, int, int]]

    def seconds(self) -> dict[str, float]:
        """Seconds by kind; a span within another counts for itself only; idle is what no span covers."""
        total = {COMPUTE: 0.0, COMMUNICATION: 0.0, DATA: 0.0, IDLE: 0.0}
        if not self.events:
            return total
        open_spans: list[tuple[int, str]] = []
        for _, kind, start, duration in sorted(self.events, key=lambda event: (event[2], -event[3])):
            while open_spans and open_spans[-1][0] <= start:
                open_spans.pop()
            total[kind] += duration / 1e9
            if open_spans:
                total[open_spans[-1][1]] -= duration / 1e9
            open_spans.append((start + duration, kind))
        span = max(start + duration for *_, start, duration in self.events) - min(event[2] for event in self.events)
        total[IDLE] += max(0.0, span / 1e9 - sum(total.values()))
        return total


def clear_traces(folder: Path) -> None:
    """Makes the folder, without the timelines of an earlier training."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("rank-*.jsonl"):
        file.unlink()


def read_traces(folder: Path) -> list[RankTrace]:
    """All ranks' timelines, by rank.

    Raises:
        DataError: There are none in the folder, or a file is not one of ours.
    """
    files = sorted(folder.glob("rank-*.jsonl"))
    if not files:
        raise DataError("there are no timelines in this folder", where=str(folder), cure="train with `trace: FOLDER`")
    return [_read(file) for file in files]


def _read(file: Path) -> RankTrace:
    try:
        head, *lines = file.read_text(encoding="utf-8").splitlines()
        return RankTrace(**json.loads(head), events=[tuple(json.loads(line)) for line in lines])
    except (ValueError, TypeError) as error:
        raise DataError(f"this is no timeline: {error}", where=str(file)) from error


def chrome_trace(traces: list[RankTrace]) -> dict[str, Any]:
    """All timelines as one trace for Perfetto or chrome://tracing; times in µs since the first event."""
    hosts = sorted({trace.host for trace in traces})
    first = min((event[2] for trace in traces for event in trace.events), default=0)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": host}} for number, host in enumerate(hosts)
    ]
    for trace in traces:
        place = {"pid": hosts.index(trace.host), "tid": trace.rank}
        events.append({"ph": "M", "name": "thread_name", "args": {"name": f"rank {trace.rank} {trace.role}"}} | place)
        for name, kind, start, duration in trace.events:
            times = {"ts": (start - first) / 1e3, "dur": duration / 1e3}
            events.append({"ph": "X", "name": name, "cat": kind} | times | place)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def summary(traces: list[RankTrace]) -> str:
    """Seconds and shares of compute, communication, data and idle time, a line per rank."""
    kinds = (COMPUTE, COMMUNICATION, DATA, IDLE)
    lines = [f"{'rank':>5} {'role':7} " + " ".join(f"{kind:>21}" for kind in kinds)]
    for trace in traces:
        seconds = trace.seconds()
        whole = sum(seconds.values()) or 1.0
        cells = " ".join(f"{seconds[kind]:>11.3f} s {100 * seconds[kind] / whole:>5.1f} %" for kind in kinds)
        lines.append(f"{trace.rank:>5} {trace.role:7} {cells}")
    return "\n".join(lines)
