"""What a Keras model takes and returns, and which methods its class replaces, on any backend of Keras."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras

from mpi_learn.errors import ModelError
from mpi_learn.models.outputs import Outputs, shown
from mpi_learn.models.settings import Example
from mpi_learn.settings.user_traceback import cure_at_line

SEED_STATE = "seed_generator_state"
"""The name of the variable of a `keras.random.SeedGenerator`."""
RANK_SEED = 1_000_003
"""The difference between the seeds of two ranks."""

COUNTERS = re.compile(r"_\d+(?=/|$)")
"""The counters in paths such as ``dense_3/kernel``: they depend on how many layers a process has made before."""


def takes_training(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter ``training``. Keras passes it to no other, not even to ``**options``."""
    return "training" in inspect.signature(function).parameters


def overrides(model: keras.Model, method: str) -> bool:
    """Whether the user's class replaces a method of `keras.Model`."""
    return getattr(type(model), method) is not getattr(keras.Model, method)


def check_loop(model: keras.Model, is_validated: bool) -> None:
    """Checks that the model leaves the loops over batches to the caller.

    Args:
        is_validated: Whether there are validation data, for which `fit` calls `evaluate`.

    Raises:
        ModelError: It overrides a method that is not called here, or its state depends on the order of the batches.
    """
    for layer in model._flatten_layers():
        if getattr(layer, "stateful", False):
            raise ModelError(
                f"{layer.name} has stateful=True: each batch would continue the previous one",
                where="model",
                cure="leave stateful out, and give whole sequences",
            )
    of_validation = ("evaluate", "make_test_function") if is_validated else ()
    for name in ("fit", "make_train_function", *of_validation):
        if overrides(model, name):
            cure = "override `train_step`, `test_step` or `compute_loss`, or use `callbacks`"
            if getattr(model, "inputs", None):  # as the tasks of keras_hub, which preprocess their data in `fit`
                cure = "return keras.Model(model.input, model.output): the same layers, without methods of the class"
            raise ModelError(
                f"{type(model).__name__} overrides `{name}`, which MPI Learn does not call", where="model", cure=cure
            )


def input_names(model: keras.Model, example: Example) -> tuple[str, ...]:
    """The names by which the model is called; empty for a tensor or a list of tensors.

    Raises:
        ModelError: The data do not name the model's inputs.
    """
    inputs, names = getattr(model, "inputs", None), example.x_names
    if not inputs:
        return names
    # a single input is passed as it is: Keras then accepts any name; several in a mapping have no order
    structure = getattr(model, "input", None) if len(inputs) > 1 else None
    by_name = isinstance(structure, dict)
    known = tuple(structure) if isinstance(structure, dict) else tuple(tensor.name for tensor in inputs)
    if names and len(inputs) > 1 and set(names) != set(known):
        raise ModelError(
            f"the model's inputs are named {', '.join(known)}, the data's features {', '.join(names)}",
            where="data.features",
            cure=f"write {{{', '.join(f'{name}: …' for name in known)}}}",
        )
    if by_name and not names:
        raise ModelError(
            f"the model takes its inputs by name ({', '.join(known)}), which have no order",
            where="data.features",
            cure=f"write a mapping: {{{', '.join(f'{name}: …' for name in known)}}}",
        )
    return names if len(inputs) > 1 else ()


def not_taken(model: keras.Model, example: Example, error: Exception) -> ModelError:
    """The error of a model that cannot be called on the example."""
    shapes = [array.shape[1:] for array in example.x]
    expected = [tuple(tensor.shape[1:]) for tensor in getattr(model, "inputs", None) or ()]
    if expected and expected != shapes:
        return ModelError(
            f"the model takes samples of shape {shown(expected)}, the data have {shown(shapes)}",
            where="data.features",
            cure="change the input shape of the model, or data.features",
        )
    return ModelError(
        f"the model does not take samples of shape {shown(shapes)}: {error_text(error)}",
        where="data.features",
        cure=cure_at_line("change the first layers of the model, or data.features", error),
    )


def unfit(error: Exception, where: str = "model") -> ModelError:
    """The error of a step that Keras or its backend cannot compute."""
    text = error_text(error)
    has_no_loss = text.startswith("No loss to compute")
    cure = "write `loss: …`" if has_no_loss else "change the outputs of the model, data.labels or the loss"
    problem = f"model, loss and data do not fit together: {text}"
    return ModelError(problem, where=where, cure=cure_at_line(cure, error))


class RecordingScope(keras.StatelessScope):  # type: ignore[misc] # Keras has no types
    """A scope that records which variables are assigned in it."""

    def __init__(self, state_mapping: Sequence[tuple[Any, Any]]) -> None:
        super().__init__(state_mapping, collect_losses=True)
        self.assigned: dict[int, Any] = {}

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Called by Keras for each assignment."""
        super().add_update(update)
        self.assigned[id(update[0])] = update[0]


def changes_its_state() -> ModelError:
    """The error of a loss that has a state."""
    return ModelError(
        "the loss changes a state of its own, also in validation",
        where="loss",
        cure="let a layer of the model hold the state, and change it only in training",
    )


def error_text(error: Exception) -> str:
    """The message of an error of Keras on one line, without the text that Keras adds before and after it."""
    text = re.sub(r"\x1b\[\d*m", "", str(error)).split("Arguments received by")[0]
    return " ".join(re.sub(r"^Exception encountered when calling .*\n*", "", text).split())


def described(model: keras.Model, outputs: Any) -> Outputs | None:
    """The outputs of a model, flat; None if their structure is nested. Outputs that are None are left out."""
    outputs = without_none(outputs)
    flat = flat_outputs(outputs)
    shapes = tuple((None, *tensor.shape[1:]) for tensor in flat)
    if isinstance(outputs, dict):
        return Outputs(shapes, tuple(sorted(outputs)), is_mapping=True) if len(outputs) == len(flat) else None
    if isinstance(outputs, list | tuple) and len(outputs) != len(flat):
        return None
    names = tuple(getattr(model, "output_names", None) or ())
    return Outputs(shapes, names if len(names) == len(flat) else ())


def flat_outputs(outputs: Any) -> list[Any]:
    """The tensors that a model returns, flat. Outputs that are None are left out."""
    return [tensor for tensor in keras.tree.flatten(outputs) if tensor is not None]


def without_none(outputs: Any) -> Any:
    """The outputs of a model in the same structure, without those that are None."""
    if type(outputs) in (list, tuple):
        return type(outputs)(output for output in outputs if output is not None)
    if isinstance(outputs, dict):
        return {name: output for name, output in outputs.items() if output is not None}
    return outputs
