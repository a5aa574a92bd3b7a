"""Hints of a user to a study: points to try next, and narrower ranges. They are events with the kind ``hint``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.errors import SpaceError

HINT = "hint"
"""The kind of the events."""

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
