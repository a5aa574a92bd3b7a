"""Records hints of a user to a study: checks them against its space, and completes points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mpi_learn.settings.suggestions import suggestion
from mpi_opt.core.search_space.space import Categorical, Hint, Integer, Parameters, Real, points_and_limits
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.store import Store
from mpi_opt.store.events import HINT
from mpi_opt.store.records import StudyRecord
from mpi_opt.strategies.points.constraint import constraints_of

FOLLOWING = ("auto", "bayesian", "evolutionary", "random", "sobol")
"""The strategies that follow hints, with those of users that have the method ``steer``."""


def record_hint(
    store: Store, study: StudyRecord, values: Sequence[str], narrow: Sequence[str], *, widen: bool
) -> list[str]:
    """Records a hint, and returns sentences about it.

    Args:
        store: Open for writing.
        study: The study.
        values: ``name=value`` of a point; with `widen` also names of hyperparameters.
        narrow: ``name=low..high``.
        widen: Whether to take back narrower ranges: of the hyperparameters in `values`, or of all.

    Raises:
        ConfigurationError: The hint is empty or misspelt, or the strategy of the study does not follow hints.
        SpaceError: A value is not in the space, or the point violates the constraints.
    """
    options = study.configuration.get("search", {}).get("options", {})
    follows = study.strategy in FOLLOWING or ":" in study.strategy
    if not follows or options.get("reproducible"):
        what = "a reproducible search" if follows else study.strategy
        cure = f"hints are for studies of {', '.join(FOLLOWING)}"
        raise ConfigurationError(f"{what} does not follow hints", where=f"study {study.name}", cure=cure)
    known = map(Hint.from_text, store.hints(study.id))
    names = [value for value in values if "=" not in value]
    if names and not widen:
        raise ConfigurationError(f"expected name=value, found {names[0]!r}", where="hint", cure="write lr=0.01")
    for name in names:
        _check_name(study, name)
    given = dict(_assignment(study, value) for value in values if "=" in value)
    limits = dict(_range(study, text) for text in narrow)
    # `--widen` without names takes back every range that earlier hints have narrowed
    widened = (tuple(names) or tuple(points_and_limits(known)[1])) if widen else ()
    hint = Hint(_completed(study, given) if given else {}, limits, widened)
    if hint == Hint():
        cure = "write a point such as lr=0.01, --narrow lr=1e-4..1e-2, or --widen"
        raise ConfigurationError("no range is narrowed" if widen else "the hint is empty", where="hint", cure=cure)
    store.event(study.id, HINT, hint.as_text())
    return list(_sentences(hint, given))


def _sentences(hint: Hint, given: Parameters) -> list[str]:
    found = []
    if hint.point:
        point = ", ".join(f"{name}={value}" for name, value in hint.point.items())
        others = [name for name in hint.point if name not in given]
        found.append(f"to try next: {point}" + (f" ({', '.join(others)} as in the best trial)" if others else ""))
    found += [f"range of {name}: {low:g} to {high:g}" for name, (low, high) in hint.narrow.items()]
    found += [f"range of {name}: that of the space" for name in hint.widen if name not in hint.narrow]
    return found


def _check_name(study: StudyRecord, name: str) -> None:
    if name not in study.space:
        raise SpaceError(f"{name!r} is not a hyperparameter", where="hint", cure=suggestion(name, study.space))


def _value(text: str) -> Any:
    """A number, true, false, null or a text, as in a ``space.yaml``."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "null": None}.get(text, text)


def _assignment(study: StudyRecord, text: str) -> tuple[str, Any]:
    name, _, written = text.partition("=")
    _check_name(study, name)
    dimension = study.space[name]
    for value in (_value(written), written):
        if value in dimension:
            return name, dimension.exact(value)
    is_range = ".." in written and not isinstance(dimension, Categorical)
    cure = f"write --narrow {text}, or --widen {name}" if is_range else "write one of these values"
    raise SpaceError(f"expected {dimension}; found {written}", where=name, cure=cure)


def _range(study: StudyRecord, text: str) -> tuple[str, tuple[float, float]]:
    name, _, written = text.partition("=")
    _check_name(study, name)
    dimension = study.space[name]
    if isinstance(dimension, Categorical):
        raise SpaceError("only the ranges of numbers can be narrowed", where=name, cure="leave it out")
    low, high = (_value(end) for end in written.partition("..")[::2])
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)):
        raise ConfigurationError(f"expected LOW..HIGH, found {written!r}", where=name, cure="write 1e-4..1e-2")
    assert isinstance(dimension, Real | Integer), "there is no other kind"
    if low > high:
        raise ConfigurationError(f"expected LOW..HIGH, found {written!r}", where=name, cure=f"write {high}..{low}")
    if not dimension.low <= low <= high <= dimension.high:
        cure = "a larger space needs search: {extend: true}, see the documentation"
        raise SpaceError(f"expected a part of: {dimension}; found {low:g} to {high:g}", where=name, cure=cure)
    if (ends := _ends(dimension, low, high)) is None:
        problem = f"there is no value from {low:g} to {high:g}: {dimension}"
        raise SpaceError(problem, where=name, cure="write a range with at least one value")
    return name, ends


def _ends(dimension: Real | Integer, low: float, high: float) -> tuple[float, float] | None:
    """The smallest and the largest value of a dimension from `low` to `high`; None if there is none."""
    start, step = dimension.low, dimension.step
    if step is None:
        return low, high
    if isinstance(dimension, Integer):  # exact also for integers that no float represents
        first, last = -((start - math.ceil(low)) // step), (math.floor(high) - start) // step
        ends: tuple[float, float] = start + first * step, start + last * step
    else:
        # 1e-6: users write 0.3 for the value 0.30000000000000004 of the grid
        first, last = math.ceil((low - start) / step - 1e-6), math.floor((high - start) / step + 1e-6)
        ends = dimension.exact(start + first * step), dimension.exact(start + last * step)
    return ends if first <= last else None


def _completed(study: StudyRecord, given: Parameters) -> Parameters:
    """A point with the values `given`; the others are those of the best trial, or else the defaults."""
    best = {} if study.best is None else study.best.parameters
    point = study.space.active(study.space.full_default() | best | given)
    study.space.check(point)
    if unused := [name for name in given if name not in point]:
        problem = f"{unused[0]} does not exist at this point: {point}"
        raise SpaceError(problem, where="hint", cure="also give the hyperparameters that its `when` names")
    options = study.configuration.get("search", {}).get("options", {})
    for constraint in constraints_of(study.strategy, options, study.space):
        if not constraint.is_met(point):
            problem = f"{point} violates the constraint {constraint.text}"
            raise SpaceError(problem, where="hint", cure="change the point")
    return point
