"""Timelines of all ranks, in one file of JSON lines per rank, and their use of processor and memory."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mpi_learn.environment import MIB
from mpi_learn.errors import DataError
from mpi_learn.optimizers.optimizer import Optimizer

Item = TypeVar("Item")
Event = tuple[str, str, int, int]
"""(name, kind, start in ns since 1970, duration in ns)."""

COMPUTE, COMMUNICATION, DATA, IDLE = "compute", "communication", "data", "idle"
MOST_EVENTS = 10_000
"""Events are written to the file when this many are in memory."""


class Timeline:
    """The timeline of a training without ``trace``: records nothing."""

    def span(self, name: str, kind: str) -> AbstractContextManager[None]:
        """A context whose duration is recorded; spans may be nested."""
        return nullcontext()

    def waiting(self, items: Iterable[Item]) -> Iterable[Item]:
        """The same items; records the time until each one is available as `DATA`."""
        return items

    def timed(self, optimizer: Optimizer) -> Optimizer:
        """An optimizer with the same updates, which are recorded as `COMPUTE`."""
        return optimizer

    def write(self) -> None:
        """Writes the events in memory to the file."""


class RecordedTimeline(Timeline):
    """A rank's timeline in ``FOLDER/rank-00003.jsonl``.

    If the file cannot be written, for example because the disk is full, the recording ends with a message. The training
    continues.

    Args:
        folder: An existing folder.
        role: ``master`` or ``worker``.
    """

    def __init__(self, folder: Path, rank: int, host: str, role: str) -> None:
        self.file = folder / f"rank-{rank:05d}.jsonl"
        self._origin_ns = time.time_ns() - time.perf_counter_ns()
        self._events: list[Event] = []
        self.rank, self._is_recording = rank, True
        self._store("w", json.dumps({"rank": rank, "host": host, "role": role}) + "\n")

    @contextmanager
    def span(self, name: str, kind: str) -> Iterator[None]:
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self._add(name, kind, start)

    def waiting(self, items: Iterable[Item]) -> Iterable[Item]:
        iterator = iter(items)
        while True:
            start = time.perf_counter_ns()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self._add("batch", DATA, start)
            yield item

    def timed(self, optimizer: Optimizer) -> Optimizer:
        return TimedOptimizer(optimizer, self)

    def write(self) -> None:
        lines = [json.dumps(event) for event in self._events]
        self._events.clear()
        self._store("a", "".join(f"{line}\n" for line in lines))

    def _store(self, mode: str, text: str) -> None:
        if not self._is_recording:
            return
        try:
            with self.file.open(mode, encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            self._is_recording = False
            if self.rank > 0:  # its disk is usually that of rank 0, and 256 ranks would print 256 lines
                return
            with suppress(OSError):
                print(f"trace: {self.file} ends here: {error.strerror or error}", file=sys.stderr, flush=True)

    def _add(self, name: str, kind: str, start_ns: int) -> None:
        if not self._is_recording:
            return
        self._events.append((name, kind, self._origin_ns + start_ns, time.perf_counter_ns() - start_ns))
        if len(self._events) >= MOST_EVENTS:
            self.write()


class TimedOptimizer(Optimizer):
    """An optimizer whose updates are recorded."""

    def __init__(self, optimizer: Optimizer, timeline: Timeline) -> None:
        self.layout, self._optimizer, self._timeline = optimizer.layout, optimizer, timeline

    def update(self, weights: np.ndarray, gradient: np.ndarray, scale: float = 1.0) -> None:
        with self._timeline.span("update", COMPUTE):
            self._optimizer.update(weights, gradient, scale)

    def finalize(self, weights: np.ndarray) -> None:
        self._optimizer.finalize(weights)

    def arrays(self) -> dict[str, np.ndarray]:
        return self._optimizer.arrays()


@dataclass(frozen=True)
class RankTrace:
    """The timeline of one rank.

    Attributes:
        rank, host, role: As in `RecordedTimeline`.
        events: In the order of their ends.
    """

    rank: int
    host: str
    role: str
    events: list[Event]

    def seconds(self) -> dict[str, float]:
        """Seconds by kind. The time of a nested span counts for that span alone; time outside of spans is idle."""
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
    """Removes the timelines of an earlier training from an existing folder."""
    for file in folder.glob("rank-*.jsonl"):
        file.unlink(missing_ok=True)


def read_traces(folder: Path) -> list[RankTrace]:
    """The timelines of all ranks, in the order of ranks. The empty file of a rank that was killed is left out.

    Raises:
        DataError: The folder holds no timelines, or a file is not a timeline.
    """
    files = [file for file in sorted(folder.glob("rank-*.jsonl")) if file.stat().st_size]
    if not files:
        raise DataError("there are no timelines in this folder", where=str(folder), cure="train with `trace: FOLDER`")
    return [_read(file) for file in files]


def _read(file: Path) -> RankTrace:
    """A rank's timeline; an unfinished last line, of a rank that was killed while writing, is left out."""
    try:
        head, *lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        return RankTrace(**json.loads(head), events=[tuple(json.loads(line)) for line in whole])
    except (ValueError, TypeError) as error:
        cure = "remove it, or train again with `trace: FOLDER`"
        raise DataError(f"this is not a timeline: {error}", where=str(file), cure=cure) from error


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
    """Seconds and fractions of compute, communication, data and idle time, one line per rank."""
    kinds = (COMPUTE, COMMUNICATION, DATA, IDLE)
    lines = [f"{'rank':>5} {'role':7} " + " ".join(f"{kind:>21}" for kind in kinds)]
    for trace in traces:
        seconds = trace.seconds()
        whole = sum(seconds.values()) or 1.0
        cells = " ".join(f"{seconds[kind]:>11.3f} s {100 * seconds[kind] / whole:>5.1f} %" for kind in kinds)
        lines.append(f"{trace.rank:>5} {trace.role:7} {cells}")
    return "\n".join(lines)


class Monitor:
    """Measures the use of processor and memory by this process.

    Args:
        framework: ``keras`` or ``torch``; its memory on the GPU is measured.
    """

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def measure(self) -> dict[str, float]:
        """Mean CPU use since the last call, in percent of one core; memory now and its maximum, in MiB."""
        wall, cpu = time.perf_counter(), time.process_time()
        used = 100 * (cpu - self._cpu) / max(wall - self._wall, 1e-9)
        self._wall, self._cpu = wall, cpu
        memory = {"memory_mb": resident_bytes() / MIB, "peak_memory_mb": peak_bytes() / MIB}
        return {"cpu_percent": used} | memory | gpu_memory(self.framework)


def resident_bytes() -> int:
    """Resident memory of this process, in bytes."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        return peak_bytes()


def peak_bytes() -> int:
    """The maximum of the resident memory of this process, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def gpu_memory(framework: str) -> dict[str, float]:
    """Memory that `framework` uses on one GPU, in MiB; empty without a GPU, and on a master, which does not load it."""
    keras = sys.modules.get("keras")
    uses_torch = framework == "torch" or (keras is not None and keras.backend.backend() == "torch")
    module = sys.modules.get("torch" if uses_torch else "tensorflow")
    if module is None:
        return {}
    if uses_torch:
        return {"gpu_memory_mb": module.cuda.memory_allocated() / MIB} if module.cuda.is_available() else {}
    if not module.config.list_logical_devices("GPU"):
        return {}
    return {"gpu_memory_mb": module.config.experimental.get_memory_info("GPU:0")["current"] / MIB}


def combined(of_ranks: list[dict[str, float]]) -> dict[str, float]:
    """Mean processor use of the ranks, and the sum of their memory."""
    names = dict.fromkeys(name for usage in of_ranks for name in usage)
    columns = {name: [usage[name] for usage in of_ranks if name in usage] for name in names}
    return {
        name: float(np.mean(values) if name == "cpu_percent" else np.sum(values)) for name, values in columns.items()
    }
