"""Writes the result of a training to a folder: the model, its training.yaml and its history."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import yaml

from mpi_learn.errors import SavingError
from mpi_learn.models.model import Model
from mpi_learn.mpi.communicators import Communicator, agreed_errors
from mpi_learn.settings.paths import write_whole
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_learn.training.result import Result

OnUnsavable = Callable[[str, str], None]


class Saved(NamedTuple):
    """Where the model is.

    Attributes:
        file: The whole model, or its weights alone.
        lines: The lines of Python that load the weights; empty for a whole model.
    """

    file: Path
    lines: str = ""

    def __str__(self) -> str:
        lines = f", the weights alone; to load them:\n{indented(self.lines)}" if self.lines else ""
        return f"{self.file}{lines}"


def check_saving(comm: Communicator, model: Model, first: int, on_unsavable: OnUnsavable) -> None:
    """Calls `on_unsavable` on rank 0 if the model cannot be saved as a whole. Collective over `comm`.

    Args:
        first: The rank of the first worker, which saves its model to a temporary folder.
    """
    with agreed_errors(comm):
        problem = why_unsavable(model) if comm.rank == first else None
    problem = comm.bcast(problem, root=first)
    if problem is not None and comm.rank == 0:
        on_unsavable(*problem)


def why_unsavable(model: Model) -> tuple[str, str] | None:
    """Why the model cannot be saved as a whole, and the lines of Python that load its weights; None if it can."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            model.save(Path(folder) / "model")
        except Exception as error:  # noqa: BLE001 - frameworks and the user's get_config raise anything
            return _first_line(error), model.save_weights(Path(folder) / "model")[1]
    return None


def save_result(folder: Path, configuration: TrainingConfiguration, result: Result, *, is_whole: bool = True) -> Saved:
    """Writes ``training.yaml``, ``history.json`` and ``model.keras`` or ``model.pt``.

    In the history, null is a value that was not measured or is not finite: JSON has no NaN.

    Args:
        is_whole: Whether the model could be saved before the training; if not, only its weights are written.

    Raises:
        SavingError: The model cannot be written now. History and, if possible, weights are written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = configuration.model_dump(mode="json", exclude_unset=True)
    write_whole(folder / "training.yaml", yaml.safe_dump(content, sort_keys=False))
    columns = {
        name: [value if math.isfinite(value) else None for value in values] for name, values in result.history.items()
    }
    write_whole(folder / "history.json", json.dumps(columns, indent=1))
    if not is_whole:
        return Saved(*result.save_weights(folder / "model"))
    try:
        return Saved(result.save_model(folder / "model"))
    except Exception as error:
        weights = Saved(*result.save_weights(folder / "model"))
        raise SavingError(f"the model could not be saved: {_first_line(error)}\nsaved {weights}") from error


def indented(lines: str) -> str:
    """Lines of Python below a sentence."""
    return "\n".join(f"    {line}" for line in lines.splitlines())


def _first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
