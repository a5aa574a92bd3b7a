"""Converts what user code returns or reports to a float, if it is a real number."""

from __future__ import annotations

from typing import SupportsFloat


def real_number(value: object) -> float:
    """`value` as a float, which may be infinite or NaN; also an array or tensor of one number.

    Raises:
        TypeError: It is no real number. Truth values, texts and complex numbers have a ``float``, but are mistakes.
    """
    if type(value) is float:  # the usual case; `isinstance` of a protocol takes several µs
        return value
    kind = str(getattr(value, "dtype", ""))  # of NumPy, PyTorch, TensorFlow and JAX
    is_other = isinstance(value, bool | str | bytes) or "bool" in kind or "complex" in kind
    if is_other or not isinstance(value, SupportsFloat):
        raise TypeError(f"a real number is needed, not {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError):  # an array of several numbers, or of texts
        raise TypeError(f"a real number is needed, not {value!r}") from None
