"""The belief of a user about the best value of a hyperparameter (``expect``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpi_opt.errors import SpaceError

FACTOR = 3.0
"""The factor of a belief that has neither factor nor spread."""


@dataclass(frozen=True)
class Belief:
    """The value that a user expects to be the best.

    Attributes:
        value: The expected number or category.
        low: The expected number less one standard deviation.
        high: The expected number and one standard deviation.
        factor: How many times as likely the expected category is as each other one.
    """

    value: Any
    low: float = math.nan
    high: float = math.nan
    factor: float = FACTOR


def read_belief(given: Any, *, is_number: bool) -> Belief:
    """The belief that a user wrote as ``{value: 0.003, factor: 3}`` or ``{value: 0.3, spread: 0.1}``.

    Raises:
        SpaceError: It is not a mapping with these keys, or a number is out of its range.
    """
    cure = f"write, for example, expect: {{value: {0.003 if is_number else 'adam'}, factor: 3}}"
    keys = ("factor", "spread") if is_number else ("factor",)
    if not isinstance(given, Mapping) or "value" not in given or not set(given) <= {"value", *keys}:
        problem = f"expected a mapping with value and {' or '.join(keys)}, not {given!r}"
        raise SpaceError(problem, where="expect", cure=cure)
    value, factor, spread = given["value"], given.get("factor", FACTOR), given.get("spread")
    if not _is_above(factor, 1):
        raise SpaceError(f"expected a number above 1, not {factor!r}", where="expect.factor", cure=cure)
    if not is_number:
        return Belief(value, factor=factor)
    if not _is_above(value, -math.inf):
        raise SpaceError(f"expected a number, not {value!r}", where="expect.value", cure=cure)
    # a factor is a distance on a logarithmic scale, which needs a value above 0; a spread is one on a linear scale
    if spread is None:
        if not _is_above(value, 0):
            cure = "write a spread, for example expect: {value: 0, spread: 0.1}"
            raise SpaceError(f"a factor needs a value above 0, not {value!r}", where="expect.value", cure=cure)
        return Belief(value, value / factor, value * factor)
    if "factor" in given:
        raise SpaceError("factor and spread exclude each other", where="expect", cure="remove one of them")
    if not _is_above(spread, 0):
        raise SpaceError(f"expected a number above 0, not {spread!r}", where="expect.spread", cure=cure)
    return Belief(value, value - spread, value + spread)


def _is_above(value: object, limit: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and limit < value < math.inf
