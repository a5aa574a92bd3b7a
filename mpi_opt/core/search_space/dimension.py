"""The dimensions of a search space: the values of a hyperparameter, and their mapping to [0, 1]."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from mpi_opt.core.search_space.belief import Belief, read_belief
from mpi_opt.core.search_space.unit_interval import PRIORS, Grid, Interval
from mpi_opt.core.search_space.values import Value, listed, python_value, python_values
from mpi_opt.errors import SpaceError

MAX_INTEGER = 2**63 - 1
"""The largest magnitude of an integer hyperparameter: databases and NumPy have integers of 64 bits."""


class Dimension(ABC):
    """The values of one hyperparameter, and their mapping to the unit interval.

    The mapping follows the prior: intervals of equal length are equally likely.
    """

    kind: ClassVar[str]
    """The ``type`` in a ``space.yaml``."""

    when: Mapping[str, Any] | None
    default: Value
    expect: Mapping[str, Any] | None

    def __repr__(self) -> str:
        """The call that creates the dimension, without default values."""
        values = [(one.name, getattr(self, one.name), one.default) for one in fields(cast(Any, self))]
        given = ", ".join(f"{name}={value!r}" for name, value, default in values if value != default)
        return f"{type(self).__name__}({given})"

    def __str__(self) -> str:
        """The type and the values, for messages: ``real, 0.0001 to 0.1, log-uniform``."""
        condition = ", ".join(f"{name} is {listed(wanted)}" for name, wanted in (self.when or {}).items())
        return ", ".join(filter(None, (self.kind, *self._values(), condition and f"when {condition}")))

    @abstractmethod
    def _values(self) -> tuple[str, ...]:
        """The parts of `__str__` that name the values."""

    def entry(self) -> dict[str, Any]:
        """The dimension as in a ``space.yaml``, of JSON types."""
        given = {n: value for n, value in vars(self).items() if value is not None and not n.startswith("_")}
        return {"type": self.kind} | {n: list(v) if isinstance(v, tuple) else v for n, v in given.items()}

    @property
    @abstractmethod
    def size(self) -> float:
        """Number of different values; ``inf`` for a continuous hyperparameter."""

    @abstractmethod
    def encode(self, value: Value) -> float:
        """The middle of the part of [0, 1] that is mapped to `value`."""

    @abstractmethod
    def decode(self, unit: float) -> Value:
        """The value at `unit` in [0, 1], of a JSON type."""

    @abstractmethod
    def all_values(self) -> Iterable[Value]:
        """Every value of a finite dimension, in order. They are computed one at a time: there may be very many."""

    @abstractmethod
    def __contains__(self, value: object) -> bool:
        """Whether `decode` can return `value`, up to rounding."""

    def exact(self, value: Value) -> Value:
        """Converts a value of the dimension to the form that `decode` returns: 1 to 1.0 for a real hyperparameter."""
        return value

    def _check_common(self) -> None:
        """Verifies what all dimensions have, and converts it to the form of the store."""
        if isinstance(self.when, Mapping):
            object.__setattr__(self, "when", {name: python_values(wanted) for name, wanted in self.when.items()})
        self._check_default()
        self._check_belief()

    def _check_default(self) -> None:
        """Verifies that the default is a value of the dimension, and converts it to the form that `decode` returns."""
        if self.default is None:
            return
        default = python_value(self.default)
        if default not in self:
            raise SpaceError(
                f"the default {default!r} is not one of its values", where="default", cure="write one, or remove it"
            )
        object.__setattr__(self, "default", self.exact(default))

    def _check_belief(self) -> None:
        """Verifies that the expected value is one of the dimension, and converts it to the form of the store."""
        if isinstance(self.expect, Mapping):
            given = {key: python_value(value) for key, value in self.expect.items()}
            object.__setattr__(self, "expect", given)
        if (belief := self.belief) is None:
            return
        is_whole = isinstance(self, Integer) and isinstance(belief.value, float) and belief.value.is_integer()
        value = int(belief.value) if is_whole else belief.value
        if value not in self:
            problem, cure = f"the expected value {value!r} is not one of its values", "write one, or remove it"
            raise SpaceError(problem, where="expect.value", cure=cure)
        object.__setattr__(self, "expect", {**cast(Mapping[str, Any], self.expect), "value": value})

    @property
    def belief(self) -> Belief | None:
        """Where a user expects the best value; None without a belief."""
        return None if self.expect is None else read_belief(self.expect, is_number=not isinstance(self, Categorical))

    def sample(self, rng: np.random.Generator) -> Value:
        """Draws a value from the prior."""
        return self.decode(rng.random())


@dataclass(frozen=True, repr=False)
class Real(Dimension):
    """A real hyperparameter in [`low`, `high`].

    Args:
        low: The smallest value.
        high: The largest value.
        prior: ``"uniform"``, or ``"log-uniform"`` if the order of magnitude matters.
        step: If given, the values are `low`, `low` + `step`, …
        when: The condition under which the hyperparameter exists, e.g. ``{"optimizer": "sgd"}``; a list of values
            means any of them.
        default: The value in the trials of a study that did not have the hyperparameter yet (``search.extend``).
        expect: Where the best value probably is: ``{"value": 0.003, "factor": 3}`` if two thirds of the belief are
            between 0.001 and 0.009, or ``{"value": 0.3, "spread": 0.1}`` if they are between 0.2 and 0.4.
    """

    kind: ClassVar[str] = "real"

    low: float
    high: float
    prior: str = "uniform"
    step: float | None = None
    when: Mapping[str, Any] | None = None
    default: Value = None
    expect: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _use_python_numbers(self)
        _check_interval(self.low, self.high, self.prior, self.step)
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))
        self._check_common()

    @property
    def size(self) -> float:
        return self._numbers.size

    def encode(self, value: Value) -> float:
        return self._numbers.encode(_number(value))

    def decode(self, unit: float) -> float:
        number = self._numbers.decode(unit)
        return number if self.step is None else min(max(_tidy(number, self.step), self.low), self.high)

    def exact(self, value: Value) -> float:
        return _number(value) if self.step is None else self.decode(self.encode(value))

    def all_values(self) -> Iterator[float]:
        assert self.step is not None, "a continuous dimension has no list of values"
        for index in range(int(self.size)):
            yield self.exact(self.low + index * self.step)

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        if self.step is None:
            return True
        n_steps = (value - self.low) / self.step
        rounding = sys.float_info.epsilon * max(abs(self.low), abs(self.high))  # exceeds 1e-6 steps if these are tiny
        return abs(n_steps - round(n_steps)) <= max(1e-6, rounding / self.step)

    def _values(self) -> tuple[str, ...]:
        return _range_text(f"{self.low:.12g} to {self.high:.12g}", self.step, self.prior)

    @cached_property
    def _numbers(self) -> Interval | Grid:
        if self.step is None:
            return Interval(self.low, self.high, self.prior)
        return Grid(self.low, self.high, self.step, self.prior)


@dataclass(frozen=True, repr=False)
class Integer(Dimension):
    """An integer hyperparameter in [`low`, `high`], both included.

    Args:
        low: The smallest value, at least -(2⁶³ - 1).
        high: The largest value, at most 2⁶³ - 1.
        prior: ``"uniform"`` or ``"log-uniform"``.
        step: The values are `low`, `low` + `step`, …
        when: As in `Real`.
        default: As in `Real`.
        expect: As in `Real`.
    """

    kind: ClassVar[str] = "integer"

    low: int
    high: int
    prior: str = "uniform"
    step: int = 1
    when: Mapping[str, Any] | None = None
    default: Value = None
    expect: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _use_python_numbers(self)
        for name in ("low", "high", "step"):
            value = getattr(self, name)
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            if isinstance(value, bool) or not is_whole:
                raise SpaceError(
                    f"an integer hyperparameter needs a whole number as {name}, not {value!r}",
                    where=name,
                    cure="write a whole number, or type: real",
                )
            if MAX_INTEGER < abs(value) <= sys.float_info.max:
                raise SpaceError(
                    f"an integer hyperparameter needs a {name} of at most 2⁶³ - 1 = {MAX_INTEGER}, and at least minus "
                    f"this number, not {value!r}",
                    where=name,
                    cure="narrow the range, or write type: real",
                )
            object.__setattr__(self, name, int(value))
        _check_interval(self.low, self.high, self.prior, self.step)
        self._check_common()

    @property
    def size(self) -> float:
        return self._numbers.size

    def encode(self, value: Value) -> float:
        return self._numbers.encode(value if isinstance(value, int) else _number(value))

    def decode(self, unit: float) -> int:
        return int(self._numbers.decode(unit))

    def all_values(self) -> range:
        return range(self.low, self.high + 1, self.step)

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
            and (value - self.low) % self.step == 0
        )

    def _values(self) -> tuple[str, ...]:
        return _range_text(f"{self.low} to {self.high}", None if self.step == 1 else self.step, self.prior)

    @cached_property
    def _numbers(self) -> Grid:
        return Grid(self.low, self.high, self.step, self.prior)


@dataclass(frozen=True, repr=False)
class Categorical(Dimension):
    """A hyperparameter with several values that have no order.

    Args:
        categories: Different strings, numbers, booleans or None.
        when: As in `Real`.
        default: As in `Real`.
        expect: The category that is probably the best, ``{"value": "adam", "factor": 3}``: three times as likely as
            each other one.
    """

    kind: ClassVar[str] = "categorical"

    categories: tuple[Value, ...]
    when: Mapping[str, Any] | None = None
    default: Value = None
    expect: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.categories, str) or not isinstance(self.categories, list | tuple):
            raise SpaceError(
                f"categories must be a list, not {self.categories!r}", where="categories", cure="write [a, b, c]"
            )
        object.__setattr__(self, "categories", tuple(map(python_value, self.categories)))
        if not self.categories:
            raise SpaceError("categories is empty", where="categories", cure="name at least one value")
        for category in self.categories:
            if not isinstance(category, bool | int | float | str | None):
                raise SpaceError(
                    f"a category must be text, a number, true, false or null, not {category!r}",
                    where="categories",
                    cure="give it a name and look the name up in the model's function",
                )
            if isinstance(category, float) and not math.isfinite(category):
                raise SpaceError(
                    f"{category} cannot be a category, because JSON, in which the store keeps it, has no such number",
                    where="categories",
                    cure="write null or a text, and convert it in the model's function",
                )
        if len({(type(c), c) for c in self.categories}) < len(self.categories):
            raise SpaceError(
                f"duplicate category in {list(self.categories)}", where="categories", cure="name each once"
            )
        self._check_common()

    @property
    def size(self) -> float:
        return len(self.categories)

    def index(self, value: Value) -> int:
        """The index of `value` in `categories`; ``1``, ``1.0`` and ``True`` are different categories."""
        for index, category in enumerate(self.categories):
            if type(category) is type(value) and category == value:
                return index
        raise SpaceError(f"{value!r} is not one of the categories {list(self.categories)}", cure="name one of them")

    def encode(self, value: Value) -> float:
        return (self.index(value) + 0.5) / len(self.categories)

    def decode(self, unit: float) -> Value:
        return self.categories[min(int(unit * len(self.categories)), len(self.categories) - 1)]

    def all_values(self) -> tuple[Value, ...]:
        return self.categories

    def __contains__(self, value: object) -> bool:
        return any(type(c) is type(value) and c == value for c in self.categories)

    def _values(self) -> tuple[str, ...]:
        return (f"one of {listed(self.categories)}",)


def _range_text(ends: str, step: float | None, prior: str) -> tuple[str, ...]:
    steps = "" if step is None else f" in steps of {step!r}"
    return (f"{ends}{steps}", "" if prior == "uniform" else prior)


def _number(value: Value) -> float:
    """The value of a dimension of numbers as a float."""
    return float(cast(float, value))


def _use_python_numbers(dimension: Real | Integer) -> None:
    """Replaces NumPy scalars among the numbers of a dimension."""
    for name in ("low", "high", "step"):
        object.__setattr__(dimension, name, python_value(getattr(dimension, name)))


def _check_interval(low: float, high: float, prior: str, step: float | None) -> None:
    for name, value in (("low", low), ("high", high), *([] if step is None else [("step", step)])):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) <= sys.float_info.max:  # also False for NaN
            raise SpaceError(f"{name} must be a finite number, not {value!r}", where=name, cure="write a number")
    if not high - low <= sys.float_info.max:
        raise SpaceError(f"the range from {low} to {high} is too large for a float", where="high", cure="narrow it")
    if not low < high:
        cure = "exchange the two" if low > high else "leave it out of the space, and write the value where it is used"
        raise SpaceError(f"low must be less than high, not {low} ≥ {high}", where="low", cure=cure)
    if prior not in PRIORS:
        cure = f"write prior: {' or prior: '.join(PRIORS)}"
        raise SpaceError(f"prior must be one of {', '.join(PRIORS)}, not {prior!r}", where="prior", cure=cure)
    if prior == "log-uniform" and low <= 0:
        cure = "increase low, or write prior: uniform"
        raise SpaceError(f"a log-uniform prior needs low > 0, not {low}", where="low", cure=cure)
    if step is not None and not 0 < step <= high - low:
        raise SpaceError(
            f"step must be between 0 and high - low = {high - low:g}, not {step!r}",
            where="step",
            cure="write a smaller positive step, or remove it",
        )


def _tidy(value: float, step: float) -> float:
    """`value` without the rounding errors of adding steps (0.30000000000000004)."""
    return float(round(value, max(0, 12 - math.floor(math.log10(step)))))


DIMENSIONS: dict[str, type[Real | Integer | Categorical]] = {kind.kind: kind for kind in (Real, Integer, Categorical)}
"""``type`` in a ``space.yaml`` -> class."""
