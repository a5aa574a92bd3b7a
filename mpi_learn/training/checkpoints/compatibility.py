"""Checks whether a checkpoint belongs to a training: raises ConfigurationError with the difference and its cure."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from mpi_learn.errors import ConfigurationError
from mpi_learn.training.checkpoints.checkpoint_file import NamedArrays, SavedTraining
from mpi_learn.training.configuration import TrainingConfiguration

MAY_DIFFER = (
    *("epochs", "checkpoint", "early_stopping", "target", "validation", "trace", "monitor", "xla", "callbacks"),
    *("framework", "gradient_checkpointing", "device"),
)
"""Keys of the configuration that may change between an interruption and its continuation."""
ARRAYS = {"weights", "batch_statistics", "counters"}
METADATA = {"epoch", "history", "shapes", "stopping", "training"}
"""The parts that every checkpoint has."""


def check_format(checkpoint: SavedTraining, where: str) -> None:
    """Raises ConfigurationError if a checkpoint lacks what every checkpoint of this version has."""
    if not (checkpoint.arrays.keys() >= ARRAYS and checkpoint.metadata.keys() >= METADATA):
        raise ConfigurationError(
            "another version of MPI Learn has written this checkpoint",
            where=where,
            cure="give the path of an empty folder",
        )


def check_stages(checkpoint: SavedTraining, n_stages: int, where: str) -> None:
    """Raises ConfigurationError if the model of a checkpoint was in another number of stages."""
    if (n := checkpoint.metadata.get("n_stages", 1)) != n_stages:
        raise ConfigurationError(
            f"it belongs to a model in {n} stages, now there are {n_stages}",
            where=where,
            cure="write the same pipeline.stages, with a multiple of as many ranks, or the path of an empty folder",
        )


def check_complete(needed: NamedArrays, saved: NamedArrays, where: str) -> None:
    """Raises ConfigurationError if a checkpoint of the same training lacks an array of its algorithm.

    Args:
        needed: Arrays with the names, shapes and dtypes of those that the checkpoint must have.
    """
    for name, array in needed.items():
        found = saved.get(name)
        if found is None or (found.shape, found.dtype) != (array.shape, array.dtype):
            raise ConfigurationError(
                f"another version of MPI Learn has written it: it has no {name}"
                + ("" if found is None else f" of shape {array.shape} and dtype {array.dtype}"),
                where=where,
                cure="write another checkpoint.path, and this one as checkpoint.start_from: the weights continue, and "
                "the optimizer starts without the missing state",
            )


def check_same(then: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raises ConfigurationError if two configurations differ in a key that must not change."""
    with suppress(ValueError):  # options that are new since then have their default values
        then = TrainingConfiguration.model_validate(then).model_dump(mode="json")
    for key in now:
        if key not in MAY_DIFFER and then.get(key) != now[key]:
            name, before, after = first_difference(key, then.get(key), now[key])
            raise ConfigurationError(
                f"it belongs to a training with another {name}: {before!r}, now {after!r}",
                where=where,
                cure="give another checkpoint.path, and this one as checkpoint.start_from to begin with its weights, "
                "or write `resume: false` to start again",
            )


def first_difference(name: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """The first part in which two different values of a key differ: its name, such as ``data.train[0]``, and both."""
    parts: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(other | one, key=lambda key: key != "name")  # a section with another name has other keys
        parts = ((f"{name}.{key}", one.get(key), other.get(key)) for key in keys)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = ((f"{name}[{index}]", *pair) for index, pair in enumerate(zip(one, other, strict=True)))
    different = next((part for part in parts if part[1] != part[2]), None)
    return (name, one, other) if different is None else first_difference(*different)
