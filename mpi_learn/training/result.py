"""The result of a training, and the folder in which it is saved and from which it is loaded."""

from __future__ import annotations

import errno
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.errors import ModelError, SavingError
from mpi_learn.models.building.frameworks import load_framework
from mpi_learn.models.model import Model
from mpi_learn.models.pipeline.staged import joined
from mpi_learn.mpi.communicators import Communicator, result_of_rank
from mpi_learn.settings.paths import write_whole
from mpi_learn.settings.user_code import errors_of_user_code, load_function
from mpi_learn.settings.yaml_file import dumped
from mpi_learn.training.configuration import TrainingConfiguration, read_configuration
from mpi_learn.training.sections import AUTO

Found = TypeVar("Found")

OF_FOLDER = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS, errno.EIO)
"""Errors that depend on the folder, and not on the model. Code of the user may raise other `OSError`."""

SampleArrays = np.ndarray | tuple[np.ndarray, ...] | dict[str, np.ndarray]


@dataclass
class Result:
    """The result of a training; the same on every rank.

    Attributes:
        history: Metric name -> one float per epoch. The ``val_`` lists have NaN for epochs without validation.
        parameters: Arguments with which the model was built.
        seconds: Wall time of the training loop, without building the model and loading the data. It includes the time
            before a resume.
        samples_per_second: Training samples over the wall time of the training steps, without validation.
        epochs: Number of epochs, including those before a resume.
        epochs_before: Number of epochs before a resume, or of the checkpoint from which the training has started.
        stopped_by: ``epochs``, ``early_stopping``, ``target`` or ``callback``; or ``left``, see `KeptEpoch`.
        save_model: Writes the model to a path without suffix as a whole, and returns the file.
        save_weights: Writes only the weights, for models that cannot be saved whole; returns the file, and the lines of
            Python that load it.
        best_epoch: Number of the epoch, from 0, whose weights early stopping has restored; else None.
        batch_size: Samples per worker and step, also those that ``auto`` has chosen; None with a total batch.
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
    load_validation: Callable[[], Samples] = field(repr=False)
    epochs_before: int = 0
    batch_size: int | None = None

    @cached_property
    def model(self) -> Any:
        """The trained Keras or PyTorch model. A master, which has no framework, builds it at the first access."""
        return self.load_model()

    @property
    def validation(self) -> tuple[SampleArrays, SampleArrays]:
        """(x, y) of the validation data, copied; several arrays as a tuple, or as a mapping if they have names."""
        samples = self.load_validation()
        return _arrays(samples.x, samples.format.x_names), _arrays(samples.y, samples.format.y_names)

    @property
    def validation_weights(self) -> SampleArrays | None:
        """The weights of the validation samples, of shape (n,), copied; by output if these have own ones; else None."""
        samples = self.load_validation()
        return _arrays(samples.weights, samples.format.weight_names) if samples.weights else None


def validation_of(dataset: Dataset) -> Samples:
    """A copy of the validation samples; their files are closed again."""
    samples = dataset.take_validation(slice(None))
    dataset.close()
    return samples


def _arrays(arrays: tuple[np.ndarray, ...], names: tuple[str, ...]) -> SampleArrays:
    if names:
        return dict(zip(names, arrays, strict=True))
    return arrays[0] if len(arrays) == 1 else arrays


OnUnsavable = Callable[[str, str], None]


class Saved(NamedTuple):
    """The file of a saved model.

    Attributes:
        file: The whole model, or its weights alone.
        lines: The lines of Python that load the weights; empty for a whole model.
    """

    file: Path
    lines: str = ""

    def __str__(self) -> str:
        lines = f", the weights alone; to load them:\n{indented(self.lines)}" if self.lines else ""
        return f"{self.file}{lines}"


def check_saving(
    comm: Communicator, model: Model, first: int, on_unsavable: OnUnsavable, output: Path | None = None
) -> None:
    """Calls `on_unsavable` on rank 0 if the model cannot be saved as a whole. Collective over `comm`.

    Args:
        first: The rank of the first worker, which saves its model.
        output: See `why_unsavable`.

    Raises:
        SavingError: Nothing can be saved.
    """
    problem = result_of_rank(comm, lambda: why_unsavable(model, output), first)
    if problem is not None and comm.rank == 0:
        on_unsavable(*problem)


def why_unsavable(model: Model, output: Path | None = None) -> tuple[str, str] | None:
    """Why the model cannot be saved as a whole, and the lines of Python that load its weights; None if it can.

    Args:
        output: The folder in which it is saved for this test, and removed again. None, or a folder that this host does
            not have: the folder of the system for temporary files.

    Raises:
        SavingError: Not even the weights can be saved, for example because the disk is full.
    """
    place = output if output is not None and output.is_dir() else Path(tempfile.gettempdir())
    try:  # errors of the folder, and of saving the weights alone
        with tempfile.TemporaryDirectory(prefix=".", dir=place) as folder:
            reason = _problem_with_saving(model, Path(folder) / "model")
            return None if reason is None else (reason, model.save_weights(Path(folder) / "model")[1])
    except Exception as error:
        # PyTorch raises a RuntimeError if the disk is full
        cure = "use a folder with enough free space, or correct the code that saves the model"
        raise SavingError(f"the model cannot be saved in {place}: {_first_line(error)}\n  → {cure}") from error


def _problem_with_saving(model: Model, path: Path) -> str | None:
    """Saves the model as a whole; returns the error in one line. Raises an error of the folder."""
    try:
        model.save(path)
    except Exception as error:
        if _is_of_folder(error):
            raise
        return _first_line(error)
    return None


def _is_of_folder(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in OF_FOLDER


def save_result(folder: Path, configuration: TrainingConfiguration, result: Result, *, is_whole: bool = True) -> Saved:
    """Writes ``training.yaml``, ``history.json`` and ``model.keras`` or ``model.pt``.

    In the history, null is a value that was not measured or is not finite: JSON has no NaN.

    Args:
        is_whole: Whether the model could be saved before the training; if not, only its weights are written.

    Raises:
        SavingError: A part cannot be written now. The others are, and the weights alone if the whole model cannot be.
    """
    errors: dict[str, Exception] = {}

    def attempt(what: str, write: Callable[[], Found]) -> Found | None:
        try:
            return write()
        except Exception as error:  # noqa: BLE001 - whatever the framework raises
            errors[what] = error
            return None

    columns = {
        name: [value if math.isfinite(value) else None for value in values] for name, values in result.history.items()
    }
    content = configuration.model_dump(mode="json", exclude_unset=True)
    if configuration.batch_size == AUTO:  # so that the file describes this training
        content["batch_size"] = result.batch_size
    attempt(str(folder), lambda: folder.mkdir(parents=True, exist_ok=True))
    attempt("training.yaml", lambda: write_whole(folder / "training.yaml", dumped(content)))
    attempt("history.json", lambda: write_whole(folder / "history.json", json.dumps(columns, indent=1)))
    file = attempt("the model", lambda: result.save_model(folder / "model")) if is_whole else None
    weights = attempt("the weights", lambda: result.save_weights(folder / "model")) if file is None else None
    saved = Saved(file) if file is not None else Saved(*weights) if weights is not None else None
    if saved is not None and not errors:
        return saved
    lines = [f"{what} could not be saved: {_first_line(error)}" for what, error in errors.items()]
    raise SavingError("\n".join([*lines, *([f"saved {saved}"] if saved else [])])) from next(iter(errors.values()))


def indented(lines: str) -> str:
    """Lines of Python below a sentence."""
    return "\n".join(f"    {line}" for line in lines.splitlines())


def _first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def load_saved_model(folder: Path | str) -> Any:
    """The model in a folder of ``mpi-learn train --output``, or of a trial; for a GAN a mapping by name.

    A Keras model is in a ``.keras`` file. Of a PyTorch module, and of a Keras model that cannot be saved as a whole,
    only the weights are in the folder. Then the function that ``training.yaml`` names builds the model.

    Raises:
        ModelError: The folder has no model, or it cannot be loaded.
        ConfigurationError: ``training.yaml`` is not valid.
    """
    folder = Path(folder)
    files = sorted(folder.glob("model*"))
    if not files:
        raise ModelError("there is no model", where=str(folder), cure="name the folder of mpi-learn train --output")
    configuration = read_configuration(folder / "training.yaml")
    return load_model_files(files, str(configuration.model), dict(configuration.parameters))


def load_model_files(files: Sequence[Path], function: str, arguments: dict[str, Any]) -> Any:
    """The model of ``model.keras`` or ``model.pt``; of ``model_NAME.keras`` and others a mapping by NAME.

    Args:
        files: The files of one model.
        function: The function that builds it, for files that have only the weights.
        arguments: Its arguments.

    Raises:
        ModelError: A file cannot be loaded.
    """
    built: Any = None
    if any(file.suffix != ".keras" for file in files):
        with errors_of_user_code("building the model", function, ModelError):
            built = load_function(function)(**arguments)
            if isinstance(built, list | tuple):
                built = joined(built)
    loaded = {}
    for file in files:
        name = file.name.partition(".")[0].removeprefix("model").removeprefix("_")
        loaded[name] = _load(file, built[name] if name and built is not None else built)
    return loaded.get("", loaded)


def _load(file: Path, built: Any) -> Any:
    try:
        if file.suffix == ".keras":
            return load_framework("keras").saving.load_model(file)
        if file.suffix == ".pt":
            torch = load_framework("torch")
            built.load_state_dict(torch.load(file))
            return built.eval()
        built.load_weights(file)
    except (ValueError, TypeError, OSError, KeyError, RuntimeError, AttributeError) as error:
        raise ModelError(
            f"it cannot be loaded: {error}",
            where=str(file),
            cure="use the same version of the framework, and the same code of the model, as the training",
        ) from error
    return built
