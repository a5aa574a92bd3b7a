"""The time of a search as a function of the size of its blocks, from measured times of trainings.

Times on the numbers of ranks that were measured are used as they are, and interpolated between them. Beyond, the model
of an epoch on n ranks is

    t(n) = compute / n + fixed + steps(n) · (communication · log2 n + waiting),

whose four constants are fitted to the measured numbers of ranks (log2 n: the rounds of a sum over n ranks). The
validation has the form of the first two terms.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from statistics import fmean

from mpi_learn.training.timing.times import TrainingTimes
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.counted import counted

GAIN = 0.03
"""A wider block must shorten the search by this share: measured times scatter."""


def mean_times(times: Sequence[TrainingTimes]) -> TrainingTimes:
    """The mean of each time."""
    return TrainingTimes(*(fmean(getattr(one, each.name) for one in times) for each in fields(TrainingTimes)))


class ScalingCurve:
    """The times of one training on any number of ranks.

    Args:
        measured: Number of ranks -> its times; at least one.
    """

    def __init__(self, measured: Mapping[int, TrainingTimes]) -> None:
        self.measured = dict(sorted(measured.items()))
        self.n = list(self.measured)

    @property
    def most_ranks(self) -> int:
        """The largest number of ranks whose times are known or can be extrapolated."""
        most = int(min(times.most_ranks for times in self.measured.values()))
        return min(most, self.n[-1]) if len(self.n) == 1 else most

    def times(self, n: int) -> TrainingTimes:
        """The times on `n` ranks, at least the smallest measured number."""
        if n in self.measured:
            return self.measured[n]
        return self._extrapolated(n) if n > self.n[-1] else self._between(n)

    def _between(self, n: int) -> TrainingTimes:
        """The times between two measured numbers of ranks, linear in the logarithm of the number."""
        above = max(1, bisect_left(self.n, n))
        low, high = self.n[above - 1], self.n[above]
        share = math.log(n / low) / math.log(high / low)

        def value(name: str) -> float:
            ends: list[float] = [getattr(self.measured[m], name) for m in (low, high)]
            factors = (low, high, n) if name in ("compute_s", "validation_s", "n_steps") else (1, 1, 1)  # about 1 / n
            return ((1 - share) * ends[0] * factors[0] + share * ends[1] * factors[1]) / factors[2]

        return TrainingTimes(*(value(each.name) for each in fields(TrainingTimes)))

    def _extrapolated(self, n: int) -> TrainingTimes:
        most, first, last = self.n[-1], self.measured[self.n[0]], self.measured[self.n[-1]]
        # as many steps on any number of ranks, or in inverse proportion to it, by the form of `batch_size`
        power = math.log(first.n_steps / last.n_steps) / math.log(most / self.n[0])
        n_steps = max(1.0, last.n_steps * (most / n) ** power)
        several = [(m, times) for m, times in self.measured.items() if m > 1]
        per_round = sum(times.communication_s / times.n_steps * math.log2(m) for m, times in several) / sum(
            math.log2(m) ** 2 for m, _ in several
        )
        waiting_s = fmean(times.waiting_s / times.n_steps for _, times in several)
        return TrainingTimes(
            start_s=last.start_s,
            compute_s=self._shared("compute_s", n),
            communication_s=n_steps * per_round * math.log2(n),
            waiting_s=n_steps * waiting_s,
            validation_s=self._shared("validation_s", n),
            rest_s=last.rest_s,
            epochs=last.epochs,
            n_steps=n_steps,
            most_ranks=last.most_ranks,
        )

    def _shared(self, name: str, n: int) -> float:
        """Extrapolates a time of which the ranks share a part: the line over 1/n by least squares, neither negative."""
        inverse = [1 / m for m in self.n]
        values: list[float] = [getattr(times, name) for times in self.measured.values()]
        x, y = fmean(inverse), fmean(values)
        slope = sum((a - x) * (b - y) for a, b in zip(inverse, values, strict=True))
        slope /= sum((a - x) ** 2 for a in inverse)
        slope = min(max(0.0, slope), y / x)
        return y - slope * x + slope / n


@dataclass(frozen=True)
class BlockSize:
    """A search with blocks of one size.

    Attributes:
        layout: The blocks.
        times: Those of one fold of a trial, as means over the measured configurations.
        trial_s: Seconds of a trial with all its folds.
        speed_up: How many times as fast a trial is as on the narrowest block.
        efficiency: The speed-up, divided by the factor in ranks.
        search_s: Seconds until the last trial ends.
        is_extrapolated: Whether no training was measured on this number of ranks or more.
    """

    layout: BlockLayout
    times: TrainingTimes
    trial_s: float
    speed_up: float
    efficiency: float
    search_s: float
    is_extrapolated: bool

    @property
    def n_ranks(self) -> int:
        """Ranks of the smallest block."""
        return min(map(len, self.layout.blocks))

    @property
    def communication(self) -> float:
        """The share of communication in an epoch."""
        return self.times.communication_s / self.times.epoch_s

    @property
    def waiting(self) -> float:
        """The share of waiting in an epoch."""
        return self.times.waiting_s / self.times.epoch_s

    @property
    def trials_per_hour(self) -> float:
        """Trials per hour of all blocks together."""
        return 3600 * len(self.layout.blocks) / self.trial_s

    @property
    def core_hours_of_trial(self) -> float:
        """Hours of a trial times the ranks of its block."""
        return self.n_ranks * self.trial_s / 3600

    @property
    def core_hours_of_search(self) -> float:
        """Hours of the search times all its ranks."""
        return self.layout.n_ranks * self.search_s / 3600


@dataclass(frozen=True)
class Scalability:
    """The sizes of blocks among which a search can choose.

    Attributes:
        sizes: The narrowest blocks first.
        n_trials: Number of trials of the search.
        measured: The numbers of ranks on which trainings were measured.
        n_configurations: Number of measured points of the space.
    """

    sizes: list[BlockSize]
    n_trials: int
    measured: list[int]
    n_configurations: int

    @classmethod
    def of(cls, curves: Sequence[ScalingCurve], layouts: Sequence[BlockLayout], n_trials: int) -> Scalability:
        """The time of a search of `n_trials` trials with each of `layouts` on whose blocks the trainings can run.

        Args:
            curves: Those of representative points of the space; trials are like them in turn.
        """
        sizes: list[BlockSize] = []
        for layout in layouts:
            n_folds = layout.n_folds
            narrow, wide = (_ranks_of_fold(f(map(len, layout.blocks)), n_folds) for f in (min, max))
            # no time is known on fewer ranks than were measured, and a training may not have work for more ranks
            if narrow < max(curve.n[0] for curve in curves) or wide > min(curve.most_ranks for curve in curves):
                continue
            n_in_turn = n_folds if min(map(len, layout.blocks)) < n_folds else 1
            times = mean_times([curve.times(narrow) for curve in curves])
            trial_s, first = n_in_turn * times.training_s, sizes[0] if sizes else None
            speed_up = 1.0 if first is None else first.trial_s / trial_s
            factor = 1.0 if first is None else min(map(len, layout.blocks)) / first.n_ranks
            search_s = _search_s(layout, curves, n_trials)
            is_extrapolated = wide > max(curve.n[-1] for curve in curves)
            sizes.append(BlockSize(layout, times, trial_s, speed_up, speed_up / factor, search_s, is_extrapolated))
        return cls(sizes, n_trials, curves[0].n, len(curves))

    @property
    def best(self) -> BlockSize:
        """The size with which the search ends first; of almost equal ones the narrowest."""
        best = self.sizes[0]
        for wider in self.sizes[1:]:
            if wider.search_s < (1 - GAIN) * best.search_s:
                best = wider
        return best

    @property
    def reason(self) -> str:
        """Why `best` is the best."""
        best, first = self.best, self.sizes[0]
        if len(self.sizes) == 1:
            return "no other size can be compared"
        if best is not first:
            return f"the search ends {first.search_s / best.search_s:.2f} times sooner than with {first.layout}"
        other = min(self.sizes[1:], key=lambda size: size.search_s)
        if other.search_s < first.search_s:
            return f"{other.layout} would shorten the search by less than {GAIN:.0%}"
        return f"with wider blocks, the search would take {other.search_s / first.search_s:.2f} times as long or more"

    @property
    def note(self) -> str:
        """What the measurement does not show; empty if it shows everything."""
        if len(self.measured) == 1:
            n = counted(self.measured[0], "rank")
            return f"trainings were measured on {n} only: wider blocks need measurements on more cores"
        if self.best.is_extrapolated:
            n = counted(self.measured[-1], "rank")
            return f"no training was measured on more than {n}: measure on more cores before a long search"
        return ""


def candidate_sizes(n_training: int, n_trials: int, n_folds: int, unit: int = 1) -> list[int]:
    """The sizes of blocks that are compared: powers of two, multiples of the folds, and one block for each trial.

    Args:
        n_training: Number of ranks in blocks.
        unit: Each block has a multiple of this number of ranks.
    """
    doubled = [2**i for i in range(n_training.bit_length())]
    wanted = {unit * two for two in doubled} | {unit * n_folds * two for two in doubled}
    wanted |= {n_training, max(1, n_training // n_trials)}
    return sorted({size for size in wanted if size <= n_training} or {unit})


def _ranks_of_fold(n_ranks: int, n_folds: int) -> int:
    """Number of ranks that train the same fold; the smallest group of a block."""
    return n_ranks if n_ranks < n_folds else n_ranks // n_folds


def _search_s(layout: BlockLayout, curves: Sequence[ScalingCurve], n_trials: int) -> float:
    """Seconds of a search: each trial starts on the block that is idle first."""

    @cache
    def trial_s(n_ranks: int, configuration: int) -> float:
        n_in_turn = layout.n_folds if n_ranks < layout.n_folds else 1
        return n_in_turn * curves[configuration].times(_ranks_of_fold(n_ranks, layout.n_folds)).training_s

    ends = [(0.0, -len(block)) for block in layout.blocks]  # larger blocks first
    heapq.heapify(ends)
    for number in range(n_trials):
        idle_s, n = ends[0]
        heapq.heapreplace(ends, (idle_s + trial_s(-n, number % len(curves)), n))
    return max(ends)[0]


LayoutOf = Callable[[int], BlockLayout]
"""The layout of a search for a size of its blocks."""


def distinct_layouts(layout_of: LayoutOf, sizes: Sequence[int]) -> list[BlockLayout]:
    """The layouts with these sizes; of those with the same blocks only one. The narrowest blocks first."""
    layouts = {tuple(map(len, (layout := layout_of(size)).blocks)): layout for size in sizes}
    return [layouts[blocks] for blocks in sorted(layouts, key=lambda blocks: (min(blocks), len(blocks)))]


FIRST_EXPONENT = 0.8
"""Before anything is measured, twice the ranks are assumed to be 2 ** 0.8 = 1.7 times as fast."""

FIRST_WEIGHT = 0.01
"""The weight of this assumption; that of a measurement of the same numbers of ranks is 1."""


class SpeedUp:
    """The speed-up curve of a study, ``ranks ** exponent`` with an exponent that depends on the number of ranks.

    The exponent at a number of ranks is the mean of those that were measured, with weights that decrease by a factor of
    exp(2) for each factor of 2 in the number of ranks.
    """

    def __init__(self) -> None:
        # (fewer, more ranks) -> number of measurements, and the sum of the logarithms of their speed-ups
        self._measured: defaultdict[tuple[int, int], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        self._most = 1

    def add(self, few: int, many: int, factor: float) -> None:
        """Takes a training into account that is `factor` times as fast on `many` ranks as on `few`."""
        if few > many:
            few, many, factor = many, few, 1 / factor
        if few == many or not 0 < factor < math.inf:
            return
        n, total = self._measured[few, many]
        self._measured[few, many] = n + 1, total + math.log(factor)
        self._most = max(self._most, many)

    def most_ranks(self, now: int) -> int:
        """The largest number of ranks for which the curve is used: twice the largest that was measured, or `now`."""
        return 2 * max(self._most, now)

    def factor(self, few: int, many: int) -> float:
        """How many times as fast a training on `many` ranks is, compared with `few`."""
        place = math.log2(few * many) / 2
        weights, exponents = FIRST_WEIGHT, FIRST_WEIGHT * FIRST_EXPONENT
        for (a, b), (n, total) in self._measured.items():
            weight = math.exp(-2 * abs(math.log2(a * b) / 2 - place))
            weights += weight
            exponents += weight * total / n / math.log(b / a)
        return float((many / few) ** (exponents / weights))
