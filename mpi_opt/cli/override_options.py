"""The arguments of the commands that read a ``space.yaml``: the file, and the options that override its keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from mpi_opt.errors import ConfigurationError

SpaceFile = Annotated[Path, typer.Argument(metavar="SPACE.yaml", help="Configuration of the study.")]
Changes = Mapping[str, Any]
"""Dotted key of the file, e.g. ``search.trials`` -> the value that overrides it; None keeps the file's."""

PANEL = "Options that override SPACE.yaml"


def _option(meaning: str, least: int | None = None) -> Any:
    return typer.Option(help=meaning, min=least, rich_help_panel=PANEL)


OVERRIDES: dict[str, tuple[str, Any]] = {
    "trials": ("search.trials", Annotated[int | None, _option("Total number of trials of the study.", least=1)]),
    "strategy": (
        "search.strategy",
        Annotated[str | None, _option("Strategy: auto, bayesian, evolutionary, random, … or file.py:Class.")],
    ),
    "block_size": ("blocks.size", Annotated[str | None, _option("Number of ranks per block, or auto, or measured.")]),
    "folds": ("folds.number", Annotated[int | None, _option("K of the K-fold cross-validation.", least=1)]),
    "seed": ("search.seed", Annotated[int | None, _option("Seed of the random numbers.", least=0)]),
    "study": ("study", Annotated[str | None, _option("Name of the study in the store.")]),
    "store": ("store", Annotated[str | None, _option("Store: SQLAlchemy URL or file.")]),
    "time_limit": ("search.time_limit", Annotated[str | None, _option("Time limit of one search, for example 2h.")]),
}
"""Option -> the dotted key of the file that it overrides, and its type."""


def overriding(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of `OVERRIDES` to a command, which receives their values as its argument `changes`.

    Typer reads the options of a command from its signature.
    """
    parameters = signature(command, eval_str=True).parameters
    own = [parameter for name, parameter in parameters.items() if name != "changes"]
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, (_, kind) in OVERRIDES.items()
    ]

    @wraps(command)
    def with_options(**arguments: Any) -> Any:
        changes = {key: arguments.pop(name) for name, (key, _) in OVERRIDES.items()}
        changes["blocks.size"] = _block_size(changes["blocks.size"])
        return command(changes=changes, **arguments)

    read = {parameter.name: parameter for parameter in (*own, *options)}
    with_options.__dict__["__signature__"] = signature(command).replace(parameters=list(read.values()))
    with_options.__annotations__ = {name: parameter.annotation for name, parameter in read.items()}
    return with_options


def written(changes: Changes) -> list[str]:
    """`changes` as command-line arguments."""
    given = {name: changes[key] for name, (key, _) in OVERRIDES.items() if changes[key] is not None}
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def _block_size(text: str | None) -> int | str | None:
    if text is not None and text not in ("auto", "measured") and not text.isdecimal():
        raise ConfigurationError(
            f"expected a number, auto or measured, found {text!r}", where="--block-size", cure="write --block-size 4"
        )
    return int(text) if text and text.isdecimal() else text
