"""Collinear partons and hadrons as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Points = npt.NDArray[np.complex128]
"""Points of the plane of pseudorapidity and azimuth: Δη + i Δφ."""


@dataclass(frozen=True)
class Partons:
    """Partons (or hadrons) near one axis, one entry each; all columns have shape (n,).

    Attributes:
        origin: The index of the hard parton from which each originates.
        pt: Transverse momentum in GeV.
        position: Relative to the axis of the hard parton, Δη + i Δφ.
        charge: Electric charge in units of e/3. A parton of charge 0 is a gluon; 2 and -1 are quarks, -2 and 1 are
            antiquarks.
        max_angle: The largest angle at which the parton still radiates, in the plane of η and φ.
        opening: The angle of the branching that produced the parton: the distance of its colour partner.
    """

    origin: Integers
    pt: Reals
    position: Points
    charge: Integers
    max_angle: Reals
    opening: Reals

    def __len__(self) -> int:
        return len(self.pt)

    def take(self, which: Flags) -> Partons:
        """Those for which `which` is true."""
        return Partons(**{column.name: getattr(self, column.name)[which] for column in fields(self)})


def summed(index: Integers, values: npt.NDArray[np.floating[Any]], n: int) -> Reals:
    """For each of 0 … n - 1, the sum of the `values` that have this index."""
    return np.asarray(np.bincount(index, values, n), np.float64)


def joined(parts: Sequence[Partons]) -> Partons:
    """All parts, one after another."""
    return Partons(
        **{column.name: np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Partons)}
    )
