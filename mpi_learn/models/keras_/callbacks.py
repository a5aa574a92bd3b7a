"""Callbacks of Keras: creates them by name, and refuses those that act on batches or on one rank alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from mpi_learn.errors import ConfigurationError
from mpi_learn.settings.component import Component, shown_arguments
from mpi_learn.settings.suggestions import suggestion
from mpi_learn.settings.user_code import errors_of_user_code

INSTEAD = {
    "BackupAndRestore": "write `checkpoint: {path: FOLDER}`",
    "EarlyStopping": "write `early_stopping: {metric: val_loss, patience: 3}`",
    "ModelCheckpoint": "write `checkpoint: {path: FOLDER}`, and train with --output FOLDER",
    "SwapEMAWeights": "it changes the weights of one rank alone",
    "TensorBoard": "write `callbacks: [{name: CSVLogger, filename: log.csv}]`",
    "TerminateOnNaN": "write `early_stopping: …`: NaN is no improvement",
}
"""Callbacks of Keras that act on one rank alone, save its model or need batches, and what to write instead."""
SETTING_THE_RATE = ("LearningRateScheduler", "ReduceLROnPlateau")
PROGRESS = ("best", "wait", "cooldown_counter")
"""Attributes in which `ReduceLROnPlateau`, or a similar callback of the user, stores its view of earlier epochs."""
OF_BATCHES = tuple(f"on_{kind}batch_{at}" for kind in ("", "train_", "test_", "predict_") for at in ("begin", "end"))
OF_VALIDATION = ("on_test_begin", "on_test_end")


def make_keras_callback(wanted: Component) -> Any:
    """Creates a callback of Keras by its name.

    Raises:
        ConfigurationError: There is no such callback, or it is not available in a distributed training.
    """
    import keras

    known = {name: value for name, value in vars(keras.callbacks).items() if isinstance(value, type)}
    if wanted.name not in known:
        raise ConfigurationError(
            f"Keras has no callback {wanted.name}", where="callbacks", cure=suggestion(wanted.name, known)
        )
    _check_available(known[wanted.name])
    with errors_of_user_code(f"{wanted.name} with ({shown_arguments(wanted.arguments)})", "callbacks"):
        return known[wanted.name](**wanted.arguments)


def is_keras_callback(made: Any) -> bool:
    """Whether `made` is a `keras.callbacks.Callback`; does not import Keras."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(made, keras.callbacks.Callback)


def progress(made: Any) -> dict[str, float]:
    """The attributes in `PROGRESS` that a callback has, with their values, for a checkpoint."""
    return {name: value for name, value in vars(made).items() if name in PROGRESS and isinstance(value, int | float)}


def check_keras_callback(made: Any, fixed_by: str) -> None:
    """Checks that a callback is available in a distributed training.

    Args:
        made: The callback.
        fixed_by: Why callbacks cannot set the learning rate; empty if they can.

    Raises:
        ConfigurationError: It acts on batches, is one of `INSTEAD`, or sets a learning rate that cannot be set.
    """
    import keras

    _check_available(type(made))
    for name in (kind.__name__ for kind in type(made).__mro__):
        if name in SETTING_THE_RATE and fixed_by:
            raise ConfigurationError(
                f"{name} sets the learning rate, but {fixed_by}", where="callbacks", cure="leave one of the two out"
            )
    plain = keras.callbacks.Callback
    for methods, acts in ((OF_BATCHES, "acts on batches"), (OF_VALIDATION, "acts on each validation")):
        if any(method in vars(made) or getattr(type(made), method) is not getattr(plain, method) for method in methods):
            raise ConfigurationError(
                f"{type(made).__name__} {acts}, but callbacks are called after each epoch only",
                where="callbacks",
                cure="override on_epoch_end only",
            )


def give_model(callbacks: list[Any], model: Any) -> None:
    """Gives a model to callbacks of Keras and, as `fit` does, to the history that they can read, ``model.history``."""
    import keras

    made, is_gan = list(filter(is_keras_callback, callbacks)), isinstance(model, dict)
    of_keras = keras.callbacks.CallbackList(made, add_history=not is_gan, model=model)  # calls `set_model`
    if not is_gan:
        callbacks += of_keras.callbacks[len(made) :]
        model.stop_training = False


def optimizer_values(optimizer: Any) -> dict[str, Any]:
    """The numbers and texts of an optimizer of Keras that callbacks might set."""
    values = {name: value for name, value in vars(optimizer).items() if isinstance(value, float | int | str | None)}
    values = {name: value for name, value in values.items() if not name.startswith("_")}
    return values | {"learning_rate": float(optimizer.learning_rate), "iterations": int(optimizer.iterations)}


def new_rate(model: Any, optimizer: Any, before: Mapping[str, Any]) -> float | None:
    """The learning rate of the model's optimizer if callbacks have set it.

    Args:
        optimizer: The optimizer that the model had.
        before: Its `optimizer_values`.

    Raises:
        ConfigurationError: They have changed something else of the optimizer, which the training would not notice.
    """
    problem = ""
    if model.optimizer is not optimizer:
        problem = "compiles the model again, or gives it another optimizer"
    else:
        now = optimizer_values(optimizer)
        rate = now["learning_rate"]
        if changed := [name for name in now if name != "learning_rate" and now[name] != before.get(name)]:
            problem = f"sets {changed[0]} of the optimizer"
    if problem:
        raise ConfigurationError(
            f"a callback {problem}; only its learning rate can change during the training",
            where="callbacks",
            cure="write it in the section `optimizer:` or `loss:`",
        )
    return None if rate == before["learning_rate"] else rate


def _check_available(kind: type) -> None:
    for name in (parent.__name__ for parent in kind.__mro__):
        if name in INSTEAD:
            raise ConfigurationError(f"{name} is not available as a callback", where="callbacks", cure=INSTEAD[name])
