"""Figures of merit as values: by name, each with its uncertainty."""

from __future__ import annotations

import math
from typing import Any, SupportsFloat

import numpy as np


class Measured(float):
    """A figure of merit, or a cost, with its uncertainty.

    Attributes:
        uncertainty: Standard deviation of the value; None if it is unknown.
    """

    __slots__ = ("uncertainty",)

    uncertainty: float | None

    def __new__(cls, value: float, uncertainty: float | None = None) -> Measured:
        """Constructs a float with an attribute."""
        made = super().__new__(cls, value)
        made.uncertainty = None if uncertainty is None else float(uncertainty)
        return made

    def __reduce__(self) -> tuple[Any, ...]:  # the default would call `__new__` without the uncertainty
        return Measured, (float(self), self.uncertainty)


class Figures(dict[str, Measured]):
    """The figures of merit of a trial or of a fold, by name and in the order of the study; empty without a result.

    A study with one figure of merit is no special case: its trials have one entry. As with all mappings, equality is
    that of names and numbers; uncertainties are not compared.
    """

    __slots__ = ()

    @property
    def main(self) -> Measured | None:
        """The first figure of merit, which is shown where there is space for one number only."""
        for figure in self.values():  # in a third of the time of `next(iter(…))`; tables ask for each of many trials
            return figure
        return None

    @property
    def uncertainties(self) -> dict[str, float]:
        """The known uncertainties, by name."""
        return {name: figure.uncertainty for name, figure in self.items() if figure.uncertainty is not None}


def real_number(value: object) -> float:
    """`value` as a float, which may be infinite or NaN; also an array or tensor of one number.

    Raises:
        TypeError: It is no real number. Truth values, texts and complex numbers have a ``float``, but are mistakes.
    """
    if type(value) is float:  # the usual case; `isinstance` of a protocol takes several µs
        return value
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())  # NumPy converts arrays of no dimension only; a masked number becomes NaN
    kind = str(getattr(value, "dtype", ""))  # of NumPy, PyTorch, TensorFlow and JAX
    is_other = isinstance(value, bool | str | bytes) or "bool" in kind or "complex" in kind
    if is_other or not isinstance(value, SupportsFloat):
        raise TypeError(f"a real number is needed, not {value!r}")
    try:
        return float(value)
    except OverflowError:  # an integer beyond the floats
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]
    except (TypeError, ValueError):  # an array of several numbers, or of texts
        raise TypeError(f"a real number is needed, not {value!r}") from None
