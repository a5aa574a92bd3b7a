"""The base class of the sections of a YAML file, and their short forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section of the file: immutable, and an unknown key is an error.

    Attributes:
        equivalents: Key of another library that a user may try -> what to write instead.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    equivalents: ClassVar[Mapping[str, str]] = {}


def as_section(value: Any) -> Any:
    """``optimizer: adam`` is short for ``optimizer: {name: adam}``."""
    return {"name": value} if isinstance(value, str) else value


def as_list(value: Any) -> Any:
    """``train: a.h5`` is short for ``train: [a.h5]``."""
    return [value] if isinstance(value, str) else value


def listed(value: Any) -> Any:
    """``callbacks: CSVLogger`` is short for ``callbacks: [CSVLogger]``; so is a mapping for a list of it."""
    return value if isinstance(value, list) else [value]


def without_numpy(value: Any) -> Any:
    """The same with Python's numbers instead of those of NumPy, which a checkpoint cannot store as JSON."""
    if isinstance(value, dict):
        return {name: without_numpy(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_numpy(entry) for entry in value]
    return value.item() if getattr(value, "shape", None) == () else value  # NumPy is not imported here
