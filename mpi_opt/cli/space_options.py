"""Shared by the commands that read a ``space.yaml``: the file, and the options that override its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mpi_learn.errors import ConfigurationError

SpaceFile = Annotated[Path, typer.Argument(metavar="SPACE.yaml", help="What to search, and how.")]
Ranks = Annotated[int | None, typer.Option("-n", help="How many ranks.", min=1)]
Trials = Annotated[int | None, typer.Option(help="How many trials the study gets in all.", min=1)]
StrategyName = Annotated[str | None, typer.Option(help="bayesian, evolutionary, random, … or file.py:Class.")]
BlockSize = Annotated[str | None, typer.Option(help="Ranks a block, or auto.")]
Folds = Annotated[int | None, typer.Option(help="K of the K-fold cross-validation.", min=1)]
Seed = Annotated[int | None, typer.Option(help="Of everything random.", min=0)]
StudyName = Annotated[str | None, typer.Option(help="The study's name in the store.")]
StoreUrl = Annotated[str | None, typer.Option(help="The store, a SQLAlchemy URL.")]
TimeLimit = Annotated[str | None, typer.Option(help="Such as 2h: no trial begins that would end later.")]


def overrides(
    trials: int | None = None,
    strategy: str | None = None,
    block_size: str | None = None,
    folds: int | None = None,
    seed: int | None = None,
    study: str | None = None,
    store: str | None = None,
    time_limit: str | None = None,
) -> dict[str, Any]:
    """The values of the command line, by dotted key of the file."""
    if block_size is not None and block_size != "auto" and not block_size.isdigit():
        raise ConfigurationError(
            f"expected a number or auto, not {block_size!r}", where="--block-size", cure="write --block-size 4"
        )
    return {
        "search.trials": trials,
        "search.strategy": strategy,
        "blocks.size": int(block_size) if block_size and block_size.isdigit() else block_size,
        "folds.number": folds,
        "search.seed": seed,
        "study": study,
        "store": store,
        "search.time_limit": time_limit,
    }
