"""Settings of models: function and arguments, losses and metrics, and precision."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mpi_learn.settings.component import Named, shown_arguments
from mpi_learn.settings.validation import Section, listed, without_numpy

Framework = Literal["auto", "keras", "torch"]
Device = Literal["auto", "cpu", "cuda"]
Losses = Annotated[Named | list[Named | None] | dict[str, Named | None] | None, Field(union_mode="left_to_right")]
Metrics = list[Named] | dict[str, list[Named]]
LossWeights = list[float] | dict[str, float] | None


def _listed_by_output(value: Any) -> Any:
    """``metrics: accuracy`` is short for ``metrics: [accuracy]``, and the same for each output in a mapping."""
    if isinstance(value, dict) and "name" not in value:
        return {name: listed(entry) for name, entry in value.items()}
    return listed(value)


class ModelConfiguration(Section):
    """The keys of a ``training.yaml`` from which the model is built."""

    model: str = Field(
        description="file.py:function or package.module:function that returns a model; or .keras, .json."
    )
    parameters: Annotated[dict[str, Any], BeforeValidator(without_numpy)] = Field(
        {}, description="Arguments of the function."
    )
    framework: Framework = Field(
        "auto", description="auto: the framework of the model. keras, torch: a model of the other framework is refused."
    )
    loss: Losses = Field(
        None,
        description="A loss of the framework, {name: huber, delta: 2.0} with arguments, or file.py:function; for "
        "several outputs a list, or a mapping from the names of the outputs (PyTorch: from any names, in the order of "
        "the outputs). null for an output without a loss, or for a Keras model that computes its own or is compiled.",
    )
    metrics: Annotated[Metrics, BeforeValidator(_listed_by_output)] = Field(
        [],
        description="Metrics of Keras, or for PyTorch models accuracy, mae, mse and those of torchmetrics; with "
        "arguments as for loss; or file.py:function. For several outputs a mapping. They are not weighted.",
    )
    weighted_metrics: Annotated[Metrics, BeforeValidator(_listed_by_output)] = Field(
        [], description="Keras: metrics that are weighted with data.weights and data.class_weight."
    )
    loss_weights: LossWeights = Field(
        None, description="Factors of the losses of several outputs, a list or a mapping; null is 1 for all."
    )
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = Field(
        "float32",
        description="mixed_bfloat16: the framework computes in 16 bits where this is safe; weights are float32. "
        "mixed_float16: the same in float16, for PyTorch with allreduce; the loss is scaled.",
    )
    device: Device = Field(
        "auto",
        description="PyTorch: where the model is trained. auto: on the GPU of the rank if PyTorch finds one.",
    )
    compile: bool = Field(
        False,
        description="PyTorch: whether `torch.compile` compiles the module. This may take a minute, needs a C++ "
        "compiler on a CPU, and changes the last digits of results.",
    )
    gradient_checkpointing: bool = Field(
        False,
        description="Activation checkpointing: the backward pass computes activations again, which needs less memory.",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="Seed of initial weights, shuffling and dropout.")

    @property
    def call(self) -> str:
        """The lines of Python that build the model: ``model = build_model(units=64)``."""
        source, _, name = self.model.rpartition(":")
        module = Path(source).stem if source.endswith(".py") else source
        return f"from {module} import {name}\nmodel = {name}({shown_arguments(dict(self.parameters))})"
