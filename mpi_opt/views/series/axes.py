"""The axes of figures: ranges, ticks, and the points that are outside of a range.

Limits are at most `LARGEST`, so that no difference of two positions overflows, neither in matplotlib nor in a browser.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mpi_opt.core.counted import counted
from mpi_opt.core.search_space.space import Categorical, Dimension, Integer, Real, Value

LARGEST = sys.float_info.max / 16
"""The largest limit of an axis."""

N_TICKS = 6
"""About the number of intervals between the ticks of an axis."""

MIN_LOG_TICKS = 3
"""The least number of ticks on a logarithmic axis that shows its scale."""

MAX_LISTED = 8
"""The ticks of an integer hyperparameter with at most this many values are its values."""

MAX_CATEGORIES = 20
"""The names of at most this many categories fit beside an axis; of more, every second, third, … is shown."""

MAX_PLACES = 24
"""The largest number of places on an axis at which the forest is evaluated."""

SPREAD = 0.5
"""The part of a category's interval over which its points are spread, because they would overlap."""

Tick = tuple[float, str]


@dataclass(frozen=True)
class Axis:
    """An axis of a figure.

    Attributes:
        title: What the axis shows.
        low: The position at its beginning.
        high: The position at its end.
        kind: The scale. Categories have the positions 0, 1, …
        ticks: The position and the text of each tick, in order.
    """

    title: str
    low: float
    high: float
    kind: Literal["linear", "log", "category"] = "linear"
    ticks: tuple[Tick, ...] = ()

    def fractions(self, places: Iterable[float]) -> np.ndarray:
        """Positions as fractions of the axis, 0 for `low` and 1 for `high`; shape (n,)."""
        values = np.array([self.low, self.high, *places], float)
        scaled = np.log10(values) if self.kind == "log" else 0.25 * values  # a quarter: no difference overflows
        return np.asarray((scaled[2:] - scaled[0]) / (scaled[1] - scaled[0]))

    def side(self, place: float) -> Literal[-1, 0, 1]:
        """Where a position is: on the axis (0), below (-1) or above it (1)."""
        return -1 if place < self.low else 1 if place > self.high else 0


def linear_axis(title: str, limits: tuple[float, float], *, whole: bool = False) -> Axis:
    """An axis with equal intervals, within `LARGEST`; with `whole` its ticks are whole numbers."""
    low, high = (min(max(limit, -LARGEST), LARGEST) for limit in limits)
    if not low < high:  # equal values, or all beyond `LARGEST`
        width = max(0.1 * abs(low), 1e-300)
        low, high = (low - width, low) if low > 0 else (low, low + width) if low < 0 else (0.0, 1.0)
    return Axis(title, low, high, ticks=nice_ticks(low, high, whole=whole))


def figure_axis(title: str, values: Iterable[float], maximize: bool) -> Axis:
    """An axis that shows `values` except very bad ones; from 0 to 1 without values."""
    return linear_axis(title, sensible_range(values, maximize) or (0.0, 1.0))


def whole_axis(title: str, values: Iterable[float]) -> Axis:
    """An axis that shows all `values`; from 0 to 1 without values."""
    known = [0.25 * value for value in values if math.isfinite(value)]
    return linear_axis(title, _with_margins(min(known), max(known)) if known else (0.0, 1.0))


def hyperparameter_axis(name: str, dimension: Dimension) -> Axis:
    """The axis of a hyperparameter, on which `position` has the values."""
    if isinstance(dimension, Categorical):
        named = every_other(tuple(enumerate(map(str, dimension.categories))), MAX_CATEGORIES)
        return Axis(name, -0.5, len(dimension.categories) - 0.5, "category", named)
    assert isinstance(dimension, Real | Integer), dimension
    is_log, is_whole = dimension.prior == "log-uniform", isinstance(dimension, Integer)
    margin = (dimension.step or 0) / 2 if is_whole and dimension.size <= 20 and not is_log else 0.0
    low, high = float(dimension.low), float(dimension.high)
    if is_whole and dimension.size <= MAX_LISTED:
        ticks: tuple[Tick, ...] = tuple((float(value), str(value)) for value in dimension.all_values())
    else:
        ticks = (log_ticks if is_log else nice_ticks)(low, high, whole=is_whole)
    # each of a few integers has an interval of its own
    return Axis(name, low - margin, high + margin, "log" if is_log else "linear", ticks)


def position(dimension: Dimension, value: Value) -> float:
    """The position of `value` on the axis of its dimension: the value, or the index of a category."""
    if isinstance(dimension, Categorical):
        return dimension.index(value)
    assert isinstance(value, int | float), "other dimensions have numbers only"
    return float(value)


def spread_position(dimension: Dimension, value: Value, number: int, index: int) -> float:
    """The position of a point: as `position`, but points of one category are spread over its interval.

    Numbers are never shifted. The shift depends on the number of the trial and the index of the hyperparameter alone,
    so that all figures show a trial at the same place. Rounding gives the category.
    """
    place = position(dimension, value)
    if not isinstance(dimension, Categorical):
        return place
    return round(place + SPREAD * (math.fmod(0.7548776662 * (number + 1) + 0.5698402910 * index, 1.0) - 0.5), 4)


def unit_positions(dimension: Dimension) -> tuple[np.ndarray, np.ndarray]:
    """At most `MAX_PLACES` evenly spaced units in [0, 1], and the positions of their values; both of shape (m,)."""
    m = int(min(MAX_PLACES, dimension.size))
    units = (np.arange(m) + 0.5) / m
    return units, np.array([position(dimension, dimension.decode(unit)) for unit in units])


def outside(axis: Axis, values: Iterable[float], what: str = "trial") -> str:
    """How many of `values` are outside of `axis`, and where; empty if none is."""
    known = [value for value in values if not math.isnan(value)]
    parts = []
    for side, symbol, word, most in ((1, "▲", "above", max), (-1, "▼", "below", min)):
        beyond = [value for value in known if axis.side(value) == side]
        if beyond:
            n, limit, end = len(beyond), axis.high if side > 0 else axis.low, most(beyond)
            parts.append(f"{symbol} {counted(n, what)} {word} {limit:.4g}, up to {end:.4g}")
    return "; ".join(parts)


def sensible_range(values: Iterable[float], maximize: bool) -> tuple[float, float] | None:
    """The limits of an axis that shows `values` except very bad ones; None without values."""
    known = sorted(0.25 * value for value in values if math.isfinite(value))  # differences and margins are finite
    if not known:
        return None
    quarter, middle, three_quarters = (known[int(q * (len(known) - 1))] for q in (0.25, 0.5, 0.75))
    width = three_quarters - quarter or abs(middle) or 0.25
    if maximize:
        low, high = max(known[0], quarter - 1.5 * width), known[-1]
    else:
        low, high = known[0], min(known[-1], three_quarters + 1.5 * width)
    return _with_margins(low, high)


def curve_range(values: Iterable[float]) -> tuple[float, float] | None:
    """The limits of an axis that shows `values` between the first and the last percentile; None without values."""
    known = sorted(0.25 * value for value in values if math.isfinite(value))
    if not known:
        return None
    return _with_margins(known[len(known) // 100], known[-1 - len(known) // 100])


def _with_margins(low: float, high: float) -> tuple[float, float]:
    """The limits of an axis, for a quarter of the smallest and of the largest value on it."""
    margin = 0.06 * (high - low) or 0.06 * (abs(high) or 0.25)
    largest = 0.25 * sys.float_info.max
    return 4.0 * max(low - margin, -largest), 4.0 * min(high + margin, largest)


def nice_ticks(low: float, high: float, *, whole: bool = False) -> tuple[Tick, ...]:
    """Ticks at multiples of 1, 2 or 5 times a power of ten, about `N_TICKS`. Different ticks differ in text."""
    size = max(abs(low), abs(high))
    rough = max((high - low) / N_TICKS, 1e-11 * size, sys.float_info.min)  # not below rounding errors
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.999 * rough)
    if whole:
        step = max(step, 1.0)
    # 1e-9, here and in `log_ticks`: a tick at the end of the axis stays, also if the division has rounded it away
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = min(15, max(4, math.ceil(math.log10(max(size, step) / step)) + 2))
    return tuple((i * step, number_text(float(f"{i * step:.12g}"), digits)) for i in range(first, last + 1))


def log_ticks(low: float, high: float, *, whole: bool = False) -> tuple[Tick, ...]:
    """Ticks at powers of ten, or at 1, 2 and 5 times them; as `nice_ticks` if these are fewer than `MIN_LOG_TICKS`."""
    begin, end = math.log10(low), math.log10(high)
    every = max(1, math.ceil((end - begin) / N_TICKS))
    exponents = range(math.floor(begin + 1e-9), math.floor(end + 1e-9) + 1)
    first = math.ceil(begin - 1e-9)
    for factors, chosen in (((1,), [e for e in exponents if (e - first) % every == 0]), ((1, 2, 5), exponents)):
        found = [(factor, e) for e in chosen for factor in factors]
        ticks = [(float(f"{factor}e{e}"), _log_text(factor, e)) for factor, e in found]
        ticks = [tick for tick in ticks if begin - 1e-9 <= math.log10(tick[0]) <= end + 1e-9]
        if len(ticks) >= MIN_LOG_TICKS:
            return tuple(ticks)
    return nice_ticks(low, high, whole=whole)


def _log_text(factor: int, exponent: int) -> str:
    return number_text(float(f"{factor}e{exponent}"), 4) if -2 <= exponent <= 4 else f"{factor}e{exponent}"


def number_text(value: float, digits: int = 4) -> str:
    """A number with at most `digits` significant digits, without trailing zeros; 1e6 and more, and less than 1e-3, as
    powers of ten."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        text = f"{value:.{digits}g}"
        return f"{float(text):.{digits}f}".rstrip("0").rstrip(".") if "e" in text else text
    mantissa, _, exponent = f"{value:.{max(0, digits - 2)}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def every_other(ticks: tuple[Tick, ...], most: int) -> tuple[Tick, ...]:
    """At most `most` of `ticks`, evenly spaced, for an axis without space for all of them."""
    return ticks[:: max(1, math.ceil(len(ticks) / most))]
