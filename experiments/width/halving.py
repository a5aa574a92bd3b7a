"""``halving`` on 16 blocks in virtual time, without ``blocks.elastic``, with it, and with ``merit``. Prints a table.

    python experiments/width/halving.py [--seeds 10] [--exponent 0.8] [--cost 0.5]
    python experiments/width/halving.py --smoke        # one seed of one table, with few trials

Coordinator, strategy and store are those of a real search. The blocks are simulated: the figure of merit of a trial is
the accuracy in a table of learning curves, and an epoch on N ranks takes 1 / N ** exponent of the time on one rank. A
clock that passes only while the coordinator waits for messages replaces ``time.monotonic``.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "halving"), str(HERE.parent / "common")]

from curves import CURVES, N_EPOCHS, TASKS, Curves  # noqa: E402 - found by the path above
from markdown_tables import markdown_table  # noqa: E402

from mpi_opt.coordinator.blocks.block_membership import BlockMembership  # noqa: E402
from mpi_opt.coordinator.blocks.block_pool import BlockPool  # noqa: E402
from mpi_opt.coordinator.coordinator import Coordinator  # noqa: E402
from mpi_opt.coordinator.search_settings import SearchSettings  # noqa: E402
from mpi_opt.core.block_layout import BlockLayout  # noqa: E402
from mpi_opt.core.figures import Figures, Measured  # noqa: E402
from mpi_opt.core.limits import SearchLimits  # noqa: E402
from mpi_opt.core.trial import Outcome, Proposal  # noqa: E402
from mpi_opt.messages.messages import (  # noqa: E402
    Assignment,
    CoordinatorLink,
    Disband,
    FromCoordinator,
    Join,
    Leave,
    LeftBlock,
    Ready,
    Report,
    ToCoordinator,
    TrialProgress,
)
from mpi_opt.strategies import make_strategy  # noqa: E402

N_BLOCKS, EPOCH_S, FORMING_S = 16, 60.0, 0.1
"""The median time of an epoch on one rank, and the time in which ranks form a block, in seconds."""


@dataclass(frozen=True)
class Setting:
    """What is simulated.

    Attributes:
        exponent: N ranks are N ** exponent times as fast as one.
        cost_epochs: The time in which a trial starts on a block, in epochs on one rank.
        n_trials: Number of trials of a search.
        options: The options of ``halving``.
    """

    exponent: float = 0.8
    cost_epochs: float = 0.5
    n_trials: int = 400
    options: dict = field(default_factory=dict)


@dataclass
class Clock:
    """Virtual seconds since the start."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


class SimulatedBlocks(CoordinatorLink):
    """The coordinator's end of a link to blocks that exist in virtual time alone.

    Attributes:
        ended: Time, number, row, epochs and regret of each trial that has ended.
    """

    is_protected = True

    def __init__(self, curves: Curves, setting: Setting, clock: Clock, seed: int) -> None:
        self._curves, self._setting, self._clock, self._seed = curves, setting, clock, seed
        self._events: list[tuple[float, int, int, ToCoordinator | None]] = []
        self._numbers = itertools.count()
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._running: dict[int, tuple[Proposal, int, float]] = {}  # leader -> trial, ranks, start of this attempt
        self._done: dict[int, int] = {}  # epochs of each trial
        self._asked: set[int] = set()
        self.ended: list[tuple[float, int, int, int, float]] = []

    def send(self, rank: int, message: FromCoordinator) -> None:
        match message:
            case Join():
                self._blocks[message.block] = message.ranks
                if rank == message.ranks[0]:
                    self._put(FORMING_S, rank, Ready(message.block, "host"))
            case Disband():
                self._put(FORMING_S, rank, LeftBlock(message.block))
            case Leave():
                self._asked.add(message.number)
            case Assignment():
                self._start(rank, message.proposal)

    def receive(self, timeout_s: float, is_interrupted: Callable[[], bool]) -> list[tuple[int, ToCoordinator]]:
        if not self._events:
            self._clock.now_s += timeout_s
            return []
        self._clock.now_s = max(self._clock.now_s, self._events[0][0])
        found = []
        while self._events and self._events[0][0] <= self._clock.now_s:
            _, _, rank, message = heapq.heappop(self._events)
            found += self._epoch(rank) if message is None else [(rank, message)]
        return found

    def _put(self, after_s: float, rank: int, message: ToCoordinator | None) -> None:
        heapq.heappush(self._events, (self._clock.now_s + after_s, next(self._numbers), rank, message))

    def _start(self, rank: int, proposal: Proposal) -> None:
        n_ranks = next(len(ranks) for ranks in reversed(self._blocks.values()) if ranks[0] == rank)
        self._done.setdefault(proposal.number, self._done.get(proposal.resume_from, 0))
        self._running[rank] = proposal, n_ranks, self._clock.now_s
        self._put(self._setting.cost_epochs * EPOCH_S + self._epoch_s(proposal, n_ranks), rank, None)

    def _epoch_s(self, proposal: Proposal, n_ranks: int) -> float:
        return EPOCH_S * _scale(self._seed, proposal.parameters["row"]) / n_ranks**self._setting.exponent

    def _epoch(self, rank: int) -> list[tuple[int, ToCoordinator]]:
        """An epoch has ended on the block that `rank` leads."""
        proposal, n_ranks, began_s = self._running[rank]
        number, total = proposal.number, int(proposal.budget)
        self._done[number] += 1
        done, elapsed_s = self._done[number], self._clock.now_s - began_s
        row = proposal.parameters["row"]
        regret = self._curves.regret(float(self._curves.accuracy[row, done - 1]))
        found: list[tuple[int, ToCoordinator]] = [(rank, Report(number, 0, done - 1, regret))]
        found += [(rank, TrialProgress(number, done, total, 10**6, elapsed_s))]
        if done < total and number not in self._asked:
            self._put(self._epoch_s(proposal, n_ranks), rank, None)
            return found
        del self._running[rank]
        if done < total:
            self._asked.remove(number)
            return [*found, (rank, Outcome(number, "queued", duration_s=elapsed_s))]
        self._asked.discard(number)
        self.ended.append((self._clock.now_s, number, row, done, regret))
        return [*found, (rank, Outcome(number, "complete", Figures({"regret": Measured(regret)}), elapsed_s))]


@cache
def _scale(seed: int, row: int) -> float:
    """The time of an epoch of a configuration relative to the median, the same in each of its trials."""
    return float(np.random.default_rng([seed, row]).lognormal(0.0, 0.5))


@dataclass(frozen=True)
class Search:
    """A search that has ended: times and regrets of its improvements, its trials, and when the last one ended."""

    improved: list[tuple[float, float]]
    trials: list[tuple[int, int, int, float]]
    duration_s: float

    def time_to(self, regret: float) -> float:
        """When the search had this regret, in seconds; infinite if it never had."""
        return next((moment_s for moment_s, reached in self.improved if reached <= regret), math.inf)


class NoStore:
    """A store that keeps nothing, because the coordinator of a new study only writes."""

    def read_nothing(self, *arguments: object, **options: object) -> list:
        return []

    hints = trials = attempts = ended_trials = read_nothing
    record = requeue = event = read_nothing


def searched(curves: Curves, seed: int, setting: Setting, *, elastic: bool | str) -> Search:
    """One search in virtual time."""
    clock = Clock()
    strategy_options = {"max_budget": N_EPOCHS, "proposer": "random"} | setting.options
    strategy = make_strategy("halving", curves.space, seed=seed, options=strategy_options)
    settings = SearchSettings(
        SearchLimits(setting.n_trials), is_elastic=bool(elastic), is_by_merit=elastic == "merit", seed=seed
    )
    with patch("time.monotonic", clock):
        link = SimulatedBlocks(curves, setting, clock, seed)
        pool = BlockPool(link, BlockMembership.of(BlockLayout(N_BLOCKS + 1, 1)))
        Coordinator(pool, strategy, NoStore(), 1, settings).run()
    best, improved = math.inf, []
    for moment_s, _, _, _, regret in link.ended:
        if regret < best:
            best = regret
            improved.append((moment_s, regret))
    trials = sorted(one[1:] for one in link.ended)
    return Search(improved, trials, link.ended[-1][0])


OPTIONS = {"default": {}, "reproducible": {"reproducible": True}}


def compared(curves: Curves, seeds: range, setting: Setting) -> list[str]:
    """A row of the table, for searches with the same seed.

    The regret is the largest of their final ones. Minutes are medians, ratios geometric means.
    """
    minutes, ends, n_same = [], [], 0
    for seed in seeds:
        found = [searched(curves, seed, setting, elastic=one) for one in (False, True, "merit")]
        regret = max(one.improved[-1][1] for one in found)
        minutes.append([one.time_to(regret) / 60 for one in found])
        ends.append([one.duration_s for one in found])
        n_same += found[0].trials == found[1].trials == found[2].trials
    medians = [f"{statistics.median(column):.0f}" for column in zip(*minutes, strict=True)]
    return [*medians, *_ratios(minutes), *_ratios(ends), f"{n_same} of {len(seeds)}"]


def _ratios(times: list[list[float]]) -> list[str]:
    return [f"{statistics.geometric_mean(one[0] / one[i] for one in times):.2f}" for i in (1, 2)]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--exponent", type=float, default=0.8)
    parser.add_argument("--cost", type=float, default=0.5, help="time of a start, in epochs on one rank")
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--smoke", action="store_true", help="one seed of one table, with few trials")
    given = parser.parse_args()
    tasks, n_seeds, n_trials = (TASKS[:1], 1, 60) if given.smoke else (TASKS, given.seeds, given.trials)
    rows = []
    for name, options in OPTIONS.items():
        for task in tasks:
            setting = Setting(given.exponent, given.cost, n_trials, options)
            rows.append([name, task, *compared(Curves(given.curves, task, True), range(n_seeds), setting)])
    header = ["`halving`", "table", "without, min", "elastic, min", "merit, min", "times sooner", "merit"]
    header += ["end, times sooner", "merit", "same trials"]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
