"""What a row of the conformance table is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

HERE = Path(__file__).parent
N, N_VALIDATION, BATCH, EPOCHS, RATE, SEED = 52, 20, 24, 2, 0.1, 5
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """One kind of model.

    Attributes:
        says: What is supported, for the documentation.
        model: Name of the function in the file of models.
        data: Of the ``data:`` section: features, labels, weights, …
        settings: Of the training.yaml, besides model and data.
        parameters: The function's arguments.
        fit: Keras: arguments of `compile`, from the module of models; PyTorch: a function of (outputs, batch) for the
            loss, from the module of models.
        inputs: The x that `fit` or the module takes, from the arrays.
        labels: The y that `fit` takes, from the arrays; None: no labels.
        options: Further arguments of `fit`, from the arrays; PyTorch: name -> value of metrics.
        weight: PyTorch: what the loss of a batch is a mean over.
        optimizer: The framework's optimizer, from the module of models and, for PyTorch, the parameters; None: SGD.
        is_representative: Keras: whether ``make test`` trains it; the other rows need ``make test-all``.
        is_exact: Whether three ranks train like one: not with batch statistics or random numbers of each rank.
        loose: Names in the history that are means over each rank's batches, and so depend on the number of ranks.
        saved: The suffix of the saved model.
        refused: A part of the message with which it is refused, instead of all that.
        ranks: Number of ranks on which it is refused.
        changes: Arrays that replace the common ones.
    """

    says: str
    model: str
    data: dict[str, Any] = field(default_factory=lambda: {"features": "X", "labels": "y"})
    settings: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    fit: Callable[[Any], Any] = lambda module: {}
    inputs: Callable[[Arrays], Any] = lambda arrays: arrays["X"]
    labels: Callable[[Arrays], Any] = lambda arrays: arrays["y"]
    options: Callable[[Arrays], dict[str, Any]] = lambda arrays: {}
    weight: Callable[[Arrays], float] = lambda arrays: len(arrays["X"])
    optimizer: Callable[..., Any] | None = None
    is_exact: bool = True
    is_representative: bool = False
    loose: tuple[str, ...] = ()
    saved: str = ".keras"
    refused: str = ""
    ranks: int = 1
    changes: Arrays = field(default_factory=dict)


def arrays(n: int, seed: int) -> Arrays:
    """Arrays of every kind that the rows need, of `n` samples."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5)).astype(np.float32)
    steps = rng.normal(size=(n, 4, 3)).astype(np.float32)
    lengths = rng.integers(1, 5, n)
    padded = steps * (np.arange(4) < lengths[:, None])[..., None]
    ids = rng.integers(1, 20, (n, 4))
    kinds = rng.integers(0, 3, n)
    return {
        "X": x,
        "A": rng.normal(size=(n, 2)).astype(np.float32),
        "age": rng.integers(20, 60, (n, 1)).astype(np.int16) / np.int16(10),
        "income": rng.normal(size=(n, 1)),
        "inputs/age": rng.normal(size=(n, 1)).astype(np.float32),
        "inputs/weight": rng.normal(size=(n, 1)).astype(np.float32),
        "group/b": rng.normal(size=(n, 2)).astype(np.float32),
        "group/a": x,
        "image": rng.integers(0, 256, (n, 6, 6, 1)).astype(np.uint8),
        "pixels": rng.normal(size=(n, 6, 6, 1)).astype(np.float32),
        "steps": steps,
        "padded": padded.astype(np.float32),
        "ids": np.where(np.arange(4) < lengths[:, None], ids, 0),
        "large": 16777216 + rng.integers(0, 3, (n, 1)),
        "y": (x[:, 0] - x[:, 1] * x[:, 2]).astype(np.float32),
        "b": (x[:, 3] > 0).astype(np.int64),
        "z": x[:, 1].astype(np.float32),
        "z_column": x[:, 1:2],
        "k": kinds,
        "k_real": kinds[:, None].astype(np.float32),
        "one_hot": np.eye(3, dtype=np.float32)[kinds],
        "per_step": rng.integers(0, 2, (n, 4)),
        "per_pixel": rng.integers(0, 3, (n, 6, 6)),
        "w": (weights := rng.uniform(0.2, 2, n).astype(np.float32)),
        "w_other": np.roll(weights, 7),
        "w_column": weights[:, None],
        "w_signed": np.where(np.arange(n) % 3, weights, -weights),
    }


def written(folder: Path) -> tuple[Path, Path]:
    """The arrays as HDF5 files, to train on and to validate on."""
    files = folder / "train.h5", folder / "validation.h5"
    for path, n, seed in zip(files, (N, N_VALIDATION), (0, 1), strict=True):
        with h5py.File(path, "w") as file:
            for name, array in arrays(n, seed).items():
                file[name] = array
    return files


def configuration(row: Row, framework: str, folder: Path, n_ranks: int) -> dict[str, Any]:
    """The training.yaml of a row on so many ranks."""
    data = {"train": str(folder / "train.h5"), "validation": str(folder / "validation.h5"), "shuffle": False}
    common = {
        "model": f"{HERE / f'{framework}_models.py'}:{row.model}",
        "parameters": row.parameters,
        "data": data | row.data,
        "optimizer": {"name": "sgd", "learning_rate": RATE},
        "batch_size": BATCH // n_ranks,
        "validation": {"batch_size": BATCH},
        "epochs": EPOCHS,
        "seed": SEED,
    }
    found = common | _filled(row.settings, HERE / f"{framework}_models.py")
    return {key: value for key, value in found.items() if value is not None or key != "optimizer"}


def _filled(value: Any, file: Path) -> Any:
    """``$name`` stands for an object in the file of models."""
    if isinstance(value, dict):
        return {key: _filled(one, file) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, file) for one in value]
    return f"{file}:{value[1:]}" if isinstance(value, str) and value.startswith("$") else value
