"""The coordinator with 100 to 10,000 simulated blocks, in virtual time.

    python coordinator.py --blocks 100,1000,10000 --trials 100000 --duration 10
    python coordinator.py --readme

Coordinator, strategy, store and the pickling of messages are those of a real search. Blocks are simulated: their trials
have lognormal durations, and one in a hundred fails. A clock replaces ``time.monotonic``: the processor time of rank 0
passes on it, without that of the simulated blocks, and waiting for the next message takes no real time. Each search is
a process of its own and a line of ``coordinator.jsonl``; those that the file has are not run again.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS, README = HERE / "coordinator.jsonl", HERE / "README.md"
sys.path.append(str(HERE.parent / "common"))

from markdown_tables import markdown_table, write_end  # noqa: E402 - found by the path above

from mpi_learn.job.stop_request import StopRequest  # noqa: E402
from mpi_opt.configuration.plan import Plan  # noqa: E402
from mpi_opt.configuration.read_study import read_study  # noqa: E402
from mpi_opt.coordinator.run_coordinator import run_coordinator  # noqa: E402
from mpi_opt.core.figures import Figures, Measured  # noqa: E402
from mpi_opt.core.trial import Outcome  # noqa: E402
from mpi_opt.messages.links import MAX_MESSAGES_AT_ONCE  # noqa: E402
from mpi_opt.messages.messages import (  # noqa: E402
    Assignment,
    CoordinatorLink,
    FromCoordinator,
    Join,
    Ready,
    ToCoordinator,
)
from mpi_opt.objectives.function_objective import FunctionObjective  # noqa: E402

FAILING = 0.01
"""The part of the trials that fail."""
RATE = 1000
"""The number of trials that end per second in the searches whose growth is computed."""
SPACE = {f"x{index}": {"type": "real", "low": 1e-7, "high": 10.0, "prior": "log-uniform"} for index in range(4)} | {
    "units": {"type": "integer", "low": 8, "high": 1024, "prior": "log-uniform"},
    "solver": {"type": "categorical", "categories": ["a", "b", "c"]},
}


@dataclass(frozen=True)
class Setting:
    """One search.

    Attributes:
        blocks: Number of blocks, of one rank each.
        trials: Number of trials.
        duration_s: Mean duration of a trial.
        strategy: The name of the strategy.
    """

    blocks: int
    trials: int
    duration_s: float
    strategy: str = "auto"


@dataclass
class VirtualClock:
    """Seconds since the start: the processor time of rank 0, and the time that was skipped."""

    skipped_s: float = 0.0
    _began_s: float = field(default_factory=time.process_time)

    @property
    def cpu_s(self) -> float:
        return time.process_time() - self._began_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The processor time of the block is not that of rank 0."""
        before_s = time.process_time()
        yield
        self._began_s += time.process_time() - before_s

    def now_s(self) -> float:
        return self.cpu_s + self.skipped_s

    def skip_to(self, moment_s: float) -> None:
        """Lets time pass until `moment_s`, if that is later than now."""
        self.skipped_s += max(moment_s - self.now_s(), 0.0)


class SimulatedBlocks(CoordinatorLink):
    """The coordinator's end of a link to blocks that exist in virtual time alone.

    Attributes:
        latencies_s: Between the end of each trial and the assignment of the next one to its block.
        spans_s: Start and end of each trial.
        first_assignment_s: Processor time at the first assignment.
    """

    def __init__(self, setting: Setting, clock: VirtualClock) -> None:
        self._setting, self._clock, self._rng = setting, clock, np.random.default_rng(1)
        self._events: list[tuple[float, int, int, bytes]] = []  # moment, number of the event, rank, message
        self._numbers = itertools.count()
        self._idle_since_s: dict[int, float] = {}
        self.latencies_s: list[float] = []
        self.spans_s: list[tuple[float, float]] = []
        self.first_assignment_s = math.nan

    is_protected = True

    def send(self, rank: int, message: FromCoordinator) -> None:
        text = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        now_s, cpu_s = self._clock.now_s(), self._clock.cpu_s
        with self._clock.stopped():
            message = pickle.loads(text)
            if isinstance(message, Join):
                self._put(now_s, rank, Ready(message.block, "host"))
            elif isinstance(message, Assignment):
                if math.isnan(self.first_assignment_s):
                    self.first_assignment_s = cpu_s
                self._run(rank, message, now_s)

    def receive(self, timeout_s: float, is_interrupted: Callable[[], bool]) -> list[tuple[int, ToCoordinator]]:
        self._clock.skip_to(self._events[0][0] if self._events else self._clock.now_s() + timeout_s)
        now_s, found = self._clock.now_s(), []
        while self._events and self._events[0][0] <= now_s and len(found) < MAX_MESSAGES_AT_ONCE:
            _, _, rank, message = heapq.heappop(self._events)
            found.append((rank, pickle.loads(message)))
        return found

    @property
    def used(self) -> float:
        """The part of the blocks' time in which trials run, until the last trial starts."""
        last_s = self.spans_s[-1][0]
        return sum(min(end_s, last_s) - start_s for start_s, end_s in self.spans_s) / (self._setting.blocks * last_s)

    def _run(self, rank: int, assignment: Assignment, now_s: float) -> None:
        """A trial of the block that `rank` leads, which starts at `now_s`."""
        if rank in self._idle_since_s:
            self.latencies_s.append(now_s - self._idle_since_s.pop(rank))
        duration_s = self._setting.duration_s * self._rng.lognormal(-0.125, 0.5)
        self.spans_s.append((now_s, now_s + duration_s))
        parameters = assignment.proposal.parameters
        if self._rng.random() < FAILING:
            outcome = Outcome(assignment.number, "failed", duration_s=duration_s, error="ValueError: not a number")
        else:
            outcome = Outcome(
                assignment.number, "complete", Figures({"value": Measured(_value(parameters))}), duration_s
            )
        self._idle_since_s[rank] = now_s + duration_s
        self._put(now_s + duration_s, rank, outcome)

    def _put(self, moment_s: float, rank: int, message: ToCoordinator) -> None:
        text = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        heapq.heappush(self._events, (moment_s, next(self._numbers), rank, text))


def _value(parameters: dict) -> float:
    x = np.log10([parameters[f"x{index}"] for index in range(4)]) + np.array([2.0, 3.3, 1.2, 4.1])
    return float(x @ x + 0.1 * (math.log2(parameters["units"]) - 7) ** 2 + 0.5 * "abc".index(parameters["solver"]))


def searched(setting: Setting, folder: Path) -> dict:
    """Runs a search, then starts it again with a trial more, and reads it; returns a line of the results."""
    (folder / "objective.py").write_text("def value(trial):\n    return 0.0\n")
    line = asdict(setting) | _run(setting, folder, setting.trials)
    line["memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    line["store_mb"] = round((folder / "scale.db").stat().st_size / 2**20, 1)
    if setting.trials >= 10_000:
        # in a process of its own, as a search that continues: one that holds earlier trials takes longer
        program = [sys.executable, __file__, "--one", json.dumps(asdict(setting)), "--resume", str(folder)]
        out = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout
        line["resume_s"] = float(out.splitlines()[-1])
        for command in ("results", "report"):
            began_s = _children_s()
            program = [sys.executable, "-m", "mpi_opt", command, "--store", "sqlite:///scale.db"]
            subprocess.run(program, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            line[f"{command}_s"] = round(_children_s() - began_s, 1)
        line["report_mb"] = round(next(folder.glob("*.html")).stat().st_size / 2**20, 1)
    line["load"] = round(os.getloadavg()[1])
    return line


def _children_s() -> float:
    """The processor time of the commands that have ended: other programs make them wait, but hardly add to it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(setting: Setting, folder: Path, n_trials: int) -> dict:
    content = {
        "study": "scale",
        "store": f"sqlite:///{folder / 'scale.db'}",
        "objective": "objective.py:value",
        "space": SPACE,
        "search": {"strategy": setting.strategy, "trials": n_trials, "seed": 1},
    }
    plan = Plan(read_study(content), folder, FunctionObjective("objective.py:value", folder), setting.blocks + 1)
    clock = VirtualClock()
    link = SimulatedBlocks(setting, clock)
    with patch("time.monotonic", clock.now_s):
        run_coordinator(plan, link, StopRequest(), itertools.count(), None)
    n_started, latencies_s = len(link.latencies_s) + setting.blocks, np.array(link.latencies_s or [math.nan])
    return {
        "cpu_ms": round(1e3 * clock.cpu_s / max(n_started, 1), 3),
        "core": round(clock.cpu_s / clock.now_s(), 3),
        "used": round(link.used, 3),
        "latency_ms": [round(1e3 * value, 1) for value in np.quantile(latencies_s, [0.5, 0.99, 1.0])],
        "first_assignment_s": round(link.first_assignment_s, 2),
    }


def settings(
    blocks: list[int], trials: list[int], durations_s: list[float], strategies: list[str]
) -> Iterator[Setting]:
    """All combinations in which each block runs at least two trials."""
    for strategy, duration_s, n_trials, n_blocks in itertools.product(strategies, durations_s, trials, blocks):
        if n_trials >= 2 * n_blocks:
            yield Setting(n_blocks, n_trials, duration_s, strategy)


def table(lines: list[dict]) -> str:
    """A row for each search."""
    names = [
        "blocks",
        "trials",
        "trial, s",
        "CPU a trial, ms",
        "of a core",
        "blocks used",
        "latency, ms: median, 99 %, max",
    ]
    names += ["memory, MB", "store, MB", "resume, s", "results, s", "report, s", "report, MB", "load"]
    rows = []
    for line in sorted(lines, key=lambda line: (line["strategy"], line["duration_s"], line["trials"], line["blocks"])):
        latency = ", ".join(f"{value:,.0f}" if value >= 10 else f"{value:.1f}" for value in line["latency_ms"])
        rows.append(
            [f"{line['blocks']:,}", f"{line['trials']:,}", f"{line['duration_s']:g}", f"{line['cpu_ms']:.2f}"]
            + [f"{100 * line['core']:.1f} %", f"{100 * line['used']:.1f} %", latency]
            + [f"{line['memory_mb']:,}", f"{line['store_mb']:,.0f}"]
            + [str(line.get(key, "–")) for key in ("resume_s", "results_s", "report_s", "report_mb", "load")]
        )
    return markdown_table(names, rows)


def exponents(lines: list[dict]) -> str:
    """The growth with the number of trials, of the searches in which `RATE` trials end per second."""
    found = [line for line in lines if line["blocks"] == RATE * line["duration_s"]]
    columns = {
        "CPU of the search": [line["cpu_ms"] * line["trials"] for line in found],
        "memory": [line["memory_mb"] for line in found],
        "store": [line["store_mb"] for line in found],
        "resume": [line["resume_s"] for line in found],
        "`results`": [line["results_s"] for line in found],
        "`report`": [line["report_s"] for line in found],
        "size of the report": [line["report_mb"] for line in found],
    }
    trials = np.log([line["trials"] for line in found])
    rows = [[name, f"{np.polyfit(trials, np.log(values), 1)[0]:.2f}"] for name, values in columns.items()]
    sizes = ", ".join(f"{line['trials']:,}" for line in found)
    head = f"Exponents of growth with the number of trials ({sizes}; {RATE:,} trials a second):"
    return f"{head}\n\n{markdown_table(['quantity', 'exponent'], rows)}"


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", default="100,1000,10000")
    parser.add_argument("--trials", default="100000")
    parser.add_argument("--duration", default="10,600", help="mean durations of a trial in seconds")
    parser.add_argument("--strategies", default="auto")
    parser.add_argument("--one", help="a setting as JSON; prints its line")
    parser.add_argument("--resume", type=Path, help="with --one: the folder of its store, which continues")
    parser.add_argument("--readme", action="store_true", help="only write the table")
    given = parser.parse_args()
    if given.resume:
        setting = Setting(**json.loads(given.one))
        print(_run(setting, given.resume, setting.trials + 1)["first_assignment_s"])
        return
    if given.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(searched(Setting(**json.loads(given.one)), Path(folder))))
        return
    known = [json.loads(line) for line in RESULTS.open()] if RESULTS.is_file() else []
    if given.readme:
        write_end(README, f"{table(known)}\n\n{exponents(known)}")
        return
    wanted = settings(
        [int(value) for value in given.blocks.split(",")],
        [int(value) for value in given.trials.split(",")],
        [float(value) for value in given.duration.split(",")],
        given.strategies.split(","),
    )
    for setting in wanted:
        if any(asdict(setting).items() <= line.items() for line in known):
            continue
        command = [sys.executable, __file__, "--one", json.dumps(asdict(setting))]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        known.append(json.loads(out.splitlines()[-1]))
        with RESULTS.open("a") as file:
            file.write(json.dumps(known[-1]) + "\n")
        print(table(known[-1:]), flush=True)


if __name__ == "__main__":
    main()
