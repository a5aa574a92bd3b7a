"""How much faster trainings are on more ranks, learnt from those that have had several numbers of ranks."""

from __future__ import annotations

import math
from collections import defaultdict

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
