"""The search space: its dimensions, the conditions between them, and its mapping to the unit cube.

A point is a plain ``dict`` from hyperparameter to value that holds the *active* hyperparameters only, which are those
whose ``when`` condition is met. Strategies that need numbers work in the unit cube (`Space.encode`, `Space.decode`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mpi_learn.settings.suggestions import suggestion
from mpi_opt.core.arrays import Bools, Floats
from mpi_opt.core.search_space.dimension import DIMENSIONS, Categorical, Dimension, Integer, Real
from mpi_opt.core.search_space.values import Value
from mpi_opt.errors import SpaceError

__all__ = ["DIMENSIONS", "Categorical", "Dimension", "Integer", "Parameters", "Real", "Space", "Value"]

Parameters = dict[str, Value]


@dataclass(frozen=True)
class Space(Mapping[str, Dimension]):
    """An ordered mapping from hyperparameter to `Dimension`.

    Args:
        dimensions: The hyperparameters in the order of the user's file.

    Raises:
        SpaceError: The space is empty, or a condition has an unknown hyperparameter or value, or is part of a cycle.

    Attributes:
        order: The names in an order in which each follows those that its condition depends on.
    """

    dimensions: Mapping[str, Dimension]
    order: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise SpaceError("the search space is empty", where="space", cure="name at least one hyperparameter")
        if not isinstance(self.dimensions, Mapping):
            raise SpaceError(
                f"expected a mapping from name to hyperparameter, not {self.dimensions!r}",
                where="space",
                cure='write, for example, {"x": Real(0.0, 1.0)}',
            )
        object.__setattr__(self, "dimensions", dict(self.dimensions))
        for name, dimension in self.dimensions.items():
            if not isinstance(dimension, Dimension):
                raise SpaceError(
                    f"expected Real, Integer or Categorical, not {dimension!r}",
                    where=f"space.{name}",
                    cure="write, for example, Real(0.0, 1.0)",
                )
            self._check_condition(name, dimension)
        object.__setattr__(self, "order", tuple(self._sorted_by_condition()))

    def __getitem__(self, name: str) -> Dimension:
        return self.dimensions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.dimensions)

    def __len__(self) -> int:
        return len(self.dimensions)

    @property
    def size(self) -> float:
        """Number of points; an upper limit if there are conditions, ``inf`` if a hyperparameter is continuous."""
        sizes = [dimension.size for dimension in self.dimensions.values()]
        return math.inf if math.inf in sizes else math.prod(sizes)

    @cached_property
    def has_conditions(self) -> bool:
        """Whether a hyperparameter exists at some points only."""
        return any(dimension.when for dimension in self.dimensions.values())

    def is_active(self, name: str, parameters: Mapping[str, Value]) -> bool:
        """Whether `parameters` meet the condition of `name`; they must contain the hyperparameters it depends on."""
        when = self.dimensions[name].when
        if not when:
            return True
        return all(
            parent in parameters and _is_among(parameters[parent], wanted, self.dimensions[parent])
            for parent, wanted in when.items()
        )

    def may_be_inactive(self, name: str, given: Mapping[str, Value]) -> bool:
        """Whether the hyperparameter does not exist at some points that have the values `given`."""
        for parent, wanted in (self.dimensions[name].when or {}).items():
            dimension = self.dimensions[parent]
            is_known = parent in given
            if not is_known and (dimension.size == math.inf or self.may_be_inactive(parent, given)):
                return True
            values = (given[parent],) if is_known else dimension.all_values()
            if not all(_is_among(value, wanted, dimension) for value in values):
                return True
        return False

    def active(self, parameters: Mapping[str, Value]) -> Parameters:
        """The active hyperparameters among `parameters`, in the order of the space."""
        kept: Parameters = {}
        for name in self.order:
            if name in parameters and self.is_active(name, kept):
                kept[name] = parameters[name]
        return {name: kept[name] for name in self.dimensions if name in kept}

    def sample(self, rng: np.random.Generator) -> Parameters:
        """Draws a point from the priors."""
        return self.decode(rng.random(len(self.dimensions)))

    def encode(self, parameters: Mapping[str, Value]) -> Floats:
        """Maps a point to the unit cube.

        Returns:
            Shape (n_dimensions,), float64, one entry for each hyperparameter in order; 0.5 for inactive ones.
        """
        return np.array(
            [
                dimension.encode(parameters[name]) if name in parameters else 0.5
                for name, dimension in self.dimensions.items()
            ]
        )

    def decode(self, units: Floats) -> Parameters:
        """Maps a point of the unit cube to the active hyperparameters.

        Args:
            units: Shape (n_dimensions,), each in [0, 1].
        """
        values = {
            name: dimension.decode(u) for (name, dimension), u in zip(self.dimensions.items(), units, strict=True)
        }
        return self.active(values) if self.has_conditions else values

    def active_units(self, units: Floats) -> Bools:
        """Whether each hyperparameter is active at each point of the unit cube, as in the result of `decode`.

        Args:
            units: Shape (m, n_dimensions), each in [0, 1].

        Returns:
            Shape (m, n_dimensions), bool.
        """
        names = list(self.dimensions)
        found = np.ones(units.shape, dtype=bool)
        for name in self.order:
            for parent, wanted in (self.dimensions[name].when or {}).items():
                dimension, column = self.dimensions[parent], names.index(parent)
                is_met = [_is_among(dimension.decode(unit), wanted, dimension) for unit in units[:, column].tolist()]
                found[:, names.index(name)] &= found[:, column] & is_met
        return found

    def centre(self) -> Parameters:
        """The active hyperparameters at the centre of the unit cube."""
        return self.decode(np.full(len(self.dimensions), 0.5))

    def default(self) -> Parameters:
        """The active hyperparameters of the default configuration: the defaults, or else the middle of the ranges."""
        return self.active(self.full_default())

    def full_default(self) -> Parameters:
        """The defaults, or else the middle of the ranges, of all hyperparameters, active or not."""
        return {
            name: dimension.decode(0.5) if dimension.default is None else dimension.default
            for name, dimension in self.dimensions.items()
        }

    def check(self, parameters: Mapping[str, Value]) -> None:
        """Raises `SpaceError` unless `parameters` is a point of this space."""
        for name, value in parameters.items():
            if name not in self.dimensions:
                cure = suggestion(str(name), self.dimensions)
                raise SpaceError(f"{name!r} is not a hyperparameter of this space", cure=cure)
            if value not in self.dimensions[name]:
                cure = "give one of these values, or extend the space"
                raise SpaceError(f"{value!r} is outside of {self.dimensions[name]}", where=name, cure=cure)
        if len(parameters) == len(self.dimensions) and not self.has_conditions:
            return  # the usual case: a resumed search checks each of its trials
        for name in self.order:
            if self.is_active(name, parameters) != (name in parameters):
                if name not in parameters:
                    raise SpaceError(f"hyperparameter {name!r} is missing: {dict(parameters)}", cure="add its value")
                raise SpaceError(
                    f"hyperparameter {name!r} does not exist for these values: {dict(parameters)}",
                    cure=f"remove it; it exists only when {dict(self.dimensions[name].when or {})}",
                )

    def _check_condition(self, name: str, dimension: Dimension) -> None:
        where = f"space.{name}.when"
        if dimension.when is None:
            return
        if not isinstance(dimension.when, Mapping):
            raise SpaceError(
                f"expected a mapping, not {dimension.when!r}", where=where, cure="write, for example, {optimizer: sgd}"
            )
        for parent, wanted in dimension.when.items():
            if parent not in self.dimensions:
                raise SpaceError(
                    f"{parent!r} is not a hyperparameter", where=where, cure=f"one of: {', '.join(self.dimensions)}"
                )
            if wanted in ([], ()):
                raise SpaceError(
                    f"no value of {parent} is given, so the hyperparameter never exists",
                    where=where,
                    cure="name at least one value",
                )
            for value in wanted if isinstance(wanted, list | tuple) else (wanted,):
                if value not in self.dimensions[parent]:
                    raise SpaceError(
                        f"{parent} never takes the value {value!r}",
                        where=where,
                        cure=f"its values: {self.dimensions[parent]}",
                    )

    def _sorted_by_condition(self) -> list[str]:
        done: list[str] = []
        left = list(self.dimensions)
        while left:
            ready = [name for name in left if all(parent in done for parent in self.dimensions[name].when or ())]
            if not ready:
                raise SpaceError(
                    f"the conditions of {', '.join(left)} depend on each other", where="space", cure="drop one `when`"
                )
            done += ready
            left = [name for name in left if name not in ready]
        return done


def _is_among(value: Value, wanted: Any, dimension: Dimension) -> bool:
    options = wanted if isinstance(wanted, list | tuple) else (wanted,)
    if isinstance(dimension, Categorical):  # 1, 1.0 and True are different categories
        return any(type(option) is type(value) and option == value for option in options)
    return value in options


Limits = Mapping[str, tuple[float, float]]
"""Hyperparameter -> the smallest and the largest value of new trials."""


@dataclass(frozen=True)
class Hint:
    """One hint.

    Attributes:
        point: A point to try next; empty if there is none.
        narrow: Narrower ranges, in place of earlier ones of the same hyperparameters.
        widen: The hyperparameters whose ranges are those of the space again.
    """

    point: Parameters = field(default_factory=dict)
    narrow: Limits = field(default_factory=dict)
    widen: tuple[str, ...] = ()

    def as_text(self) -> str:
        """The detail of the event."""
        given = {"point": self.point, "narrow": {name: list(limits) for name, limits in self.narrow.items()}}
        return json.dumps({key: value for key, value in (given | {"widen": list(self.widen)}).items() if value})

    @classmethod
    def from_text(cls, text: str) -> Hint:
        """The hint with this detail."""
        given = json.loads(text)
        narrow = {name: (low, high) for name, (low, high) in given.get("narrow", {}).items()}
        return cls(given.get("point", {}), narrow, tuple(given.get("widen", ())))


def points_and_limits(hints: Iterable[Hint]) -> tuple[list[Parameters], dict[str, tuple[float, float]]]:
    """The points of all hints, and the ranges after the last one."""
    points, limits = list[Parameters](), dict[str, tuple[float, float]]()
    for hint in hints:
        points += [hint.point] if hint.point else []
        limits = {name: each for name, each in limits.items() if name not in hint.widen} | dict(hint.narrow)
    return points, limits


def points_in(space: Space, points: Iterable[Parameters]) -> list[Parameters]:
    """The points of hints in a space that may have been extended since, without those that it does not have.

    Hyperparameters that a point lacks have their defaults, as in the trials before an extension.
    """
    found = []
    for point in points:
        completed = space.active(space.full_default() | point)
        try:
            space.check(completed)
        except SpaceError:
            continue
        found.append({name: space[name].exact(value) for name, value in completed.items()})
    return found
