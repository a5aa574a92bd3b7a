"""The section ``pipeline:`` of a ``training.yaml``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mpi_learn.settings.validation import Section


class PipelineSection(Section):
    """``pipeline:`` the layers of the model are divided over ranks (Huang et al. 2019, "GPipe")."""

    stages: int = Field(ge=1, description="Ranks that hold one model together; the number of ranks is a multiple.")
    micro_batches: int = Field(
        4,
        ge=1,
        description="Parts of a batch that pass from stage to stage. With S stages and M parts, a rank is idle for "
        "(S − 1) / (M + S − 1) of a step.",
    )
    schedule: Literal["gpipe", "1f1b"] = Field(
        "1f1b",
        description="The order of forward and backward passes. gpipe: all forward passes first. 1f1b: alternating, so "
        "that a stage keeps the activations of at most `stages` micro-batches (Narayanan et al. 2019).",
    )
    split: Literal["balanced", "parameters", "time"] | list[Annotated[int, Field(ge=1)]] = Field(
        "balanced",
        description="Where one sequential model is divided. balanced: equal numbers of operations, estimated from the "
        "layers. parameters: equal numbers of parameters. time: equal times of a forward and a backward pass, which "
        "the first rank measures before the training. A list: the number of layers of each stage. Without effect if "
        "the function returns a list of stages.",
    )
    # not 2-bit: without error feedback, which activations of other samples cannot have, too much is lost
    compression: Literal["none", "bfloat16", "float16", "int8"] = Field(
        "none",
        description="How activations and their gradients are sent between stages in training: unchanged, or in 16 or "
        "8 bits per element. Validation and predictions use unchanged ones.",
    )
