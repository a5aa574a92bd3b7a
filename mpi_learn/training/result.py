"""The result of a training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpi_learn.data import Samples

Arrays = np.ndarray | tuple[np.ndarray, ...] | dict[str, np.ndarray]


@dataclass
class Result:
    """The result of a training; the same on every rank.

    Attributes:
        history: Metric name -> one float per epoch. The ``val_`` lists have NaN for epochs without validation.
        parameters: Arguments with which the model was built.
        seconds: Wall time of the training loop, without building the model and loading the data.
        samples_per_second: Training samples over the wall time of the training steps, without validation.
        epochs: Number of epochs, including those before a resume.
        stopped_by: ``epochs``, ``early_stopping``, ``target`` or ``callback``.
        save_model: Writes the model to a path without suffix as a whole, and returns the file.
        save_weights: Writes only the weights, for models that cannot be saved whole; returns the file, and the lines of
            Python that load it.
        best_epoch: Number of the epoch, from 0, whose weights early stopping has restored; else None.
    """

    history: dict[str, list[float]]
    parameters: dict[str, Any]
    seconds: float
    samples_per_second: float
    epochs: int
    stopped_by: str
    best_epoch: int | None
    load_model: Callable[[], Any] = field(repr=False)
    save_model: Callable[[Path], Path] = field(repr=False)
    save_weights: Callable[[Path], tuple[Path, str]] = field(repr=False)
    load_validation: Callable[[], tuple[Arrays, Arrays]] = field(repr=False)

    @property
    def model(self) -> Any:
        """The trained Keras or PyTorch model. A master, which has no framework, builds it at the first access."""
        if not hasattr(self, "_model"):
            self._model = self.load_model()
        return self._model

    @property
    def validation(self) -> tuple[Arrays, Arrays]:
        """(x, y) of the validation data, copied; several arrays as a tuple, or as a mapping if they have names."""
        return self.load_validation()


def as_pair(samples: Samples) -> tuple[Arrays, Arrays]:
    """Samples as (x, y): a mapping if they have names, else the only array or a tuple of arrays."""
    parts = (samples.x, samples.format.x_names), (samples.y, samples.format.y_names)
    x, y = (
        dict(zip(names, part, strict=True)) if names else part[0] if len(part) == 1 else part for part, names in parts
    )
    return x, y
