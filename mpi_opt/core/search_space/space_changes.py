"""Compares search spaces by their meaning, and converts the trials of a study to a space that extends its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from mpi_opt.core.search_space.dimension import Categorical, Dimension, Integer, Real
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.search_space.values import Value
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import SpaceError


def means_the_same(space: Space, other: Space) -> bool:
    """Whether two spaces have the same points with the same priors, however they are written."""
    return _meaning(space) == _meaning(other)


def extended(before: Space, now: Space, trials: Iterable[TrialRecord]) -> dict[int, Parameters]:
    """The hyperparameters of trials in the space `now`, which extends `before`.

    A new hyperparameter that is active in a trial has its default. Every other change is safe if all trials are points
    of the new space: a wider range, or more categories.

    Returns:
        Number of the trial -> its hyperparameters, for the trials that change.

    Raises:
        SpaceError: A hyperparameter was removed or has another type, a new one has no default, or a trial is outside of
            the new space.
    """
    for name, dimension in before.items():
        if name not in now:
            raise SpaceError(f"{name} is not in the space any more", where=f"space.{name}", cure="restore it")
        if now[name].kind != dimension.kind:
            problem = f"the type was {dimension.kind}, now {now[name].kind}"
            raise SpaceError(problem, where=f"space.{name}", cure="restore it")
    changed = {}
    for trial in trials:
        parameters = with_defaults(trial.parameters, before, now)
        try:
            now.check(parameters)
        except SpaceError as error:
            raise SpaceError(
                f"trial {trial.number} is not in the new space: {error.problem}",
                where=f"space.{error.where}" if error.where in now else "space",
                cure="extend the space so that it contains all trials of the study",
            ) from None
        if parameters != trial.parameters:
            changed[trial.number] = parameters
    return changed


def with_defaults(parameters: Parameters, before: Space, now: Space) -> Parameters:
    """A point of the space `before` with the defaults of the hyperparameters that `now` has in addition.

    Raises:
        SpaceError: A new hyperparameter has no default.
    """
    found = dict(parameters)
    for name in now.order:
        if name in before or not now.is_active(name, found):
            continue
        default = now[name].default
        if default is None:
            raise SpaceError(
                f"the trials of the study have no value of the new hyperparameter {name}",
                where=f"space.{name}",
                cure="write the value that they had: default: …",
            )
        found[name] = default
    return {name: found[name] for name in now if name in found}


def with_beliefs(space: Space, other: Space) -> Space:
    """`space` with the beliefs of `other`, which means the same."""
    return Space({name: replace(cast(Any, one), expect=other[name].expect) for name, one in space.items()})


def _meaning(space: Space) -> dict[str, Any]:
    return {name: (_values(dimension), _condition(dimension, space)) for name, dimension in space.items()}


def _values(dimension: Dimension) -> tuple[Any, ...]:
    """What the values and their prior are; a range with a step ends at its last value."""
    if isinstance(dimension, Categorical):
        return dimension.kind, frozenset(_category(value) for value in dimension.categories)
    assert isinstance(dimension, Real | Integer), "there is no other kind"
    low, high, step = dimension.low, dimension.high, dimension.step
    if isinstance(dimension, Integer):
        high -= (high - low) % dimension.step  # exact, also beyond 2^53
    end = high if step is None or isinstance(dimension, Integer) else dimension.size
    return dimension.kind, low, end, step, dimension.prior


def _condition(dimension: Dimension, space: Space) -> dict[str, frozenset[Any]]:
    """Hyperparameter -> its values under which this one exists, without those that are always met."""
    wanted = {name: _wanted(values, space[name]) for name, values in (dimension.when or {}).items()}
    return {name: values for name, values in wanted.items() if not _is_always_met(values, space[name])}


def _wanted(values: Any, parent: Dimension) -> frozenset[Any]:
    one_or_more = values if isinstance(values, list | tuple) else (values,)
    return frozenset(_category(value) if isinstance(parent, Categorical) else value for value in one_or_more)


def _is_always_met(values: frozenset[Any], parent: Dimension) -> bool:
    is_complete = isinstance(parent, Categorical) and values == frozenset(map(_category, parent.categories))
    return is_complete and not parent.when


def _category(value: Value) -> tuple[str, Value]:
    """1, 1.0 and True are different categories."""
    return type(value).__name__, value
