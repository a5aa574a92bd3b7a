"""The values of hyperparameters: those of NumPy as Python values, and all of them as text."""

from __future__ import annotations

from typing import Any

import numpy as np

Value = bool | int | float | str | None


def python_value(value: Any) -> Any:
    """The Python value of a NumPy scalar; any other value as it is.

    The number for ``np.float32(0.1)`` is 0.1, as it is printed. Its exact value, 0.10000000149, is larger.
    """
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def python_values(values: Any) -> Any:
    """A value of NumPy, or several, as Python values: an array, a range, a list or a tuple becomes a list."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    return list(map(python_value, values)) if isinstance(values, list | tuple | range) else python_value(values)


def listed(values: object) -> str:
    """One or several values, as in YAML."""
    return ", ".join(map(_in_yaml, values if isinstance(values, list | tuple) else [values]))


def _in_yaml(value: object) -> str:
    """A value as in YAML: a text that would be read as something else is quoted."""
    if isinstance(value, str):
        return f'"{value}"' if _is_no_plain_text(value) else value
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def _is_no_plain_text(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in ("", "~", "null", "true", "false")
    return True
