"""The smaller sections of a ``training.yaml``: batches, early stopping, target, checkpoints and validation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from mpi_learn.settings.paths import expanded
from mpi_learn.settings.suggestions import direction_of
from mpi_learn.settings.validation import InvalidValue, Section


class TotalBatch(Section):
    """``batch_size:`` as a mapping: the samples of a step, which all workers share, on any number of ranks."""

    total: int = Field(ge=1, description="Samples per step of all workers together, which share them evenly.")
    shards: int | None = Field(
        None,
        ge=1,
        description="A step consists of this number of equal parts, each with its own random numbers and batch "
        "statistics; a rank computes one or several of them. null: the share of each rank is one batch.",
    )
    balance: bool = Field(
        False,
        description="Shares follow the measured speeds of the ranks, and are renewed after each epoch; with shards, "
        "ranks compute different numbers of them. false: equal shares.",
    )

    @property
    def most_ranks(self) -> int:
        """The largest number of ranks that can share a step."""
        return self.shards or self.total

    @model_validator(mode="after")
    def _has_equal_shards(self) -> Self:
        if self.shards is not None and self.total % self.shards:
            raise InvalidValue(
                f"a step of {self.total} samples cannot be divided into {self.shards} equal shards",
                f"write a total that is a multiple of {self.shards}, or another number of shards",
            )
        return self


AUTO: Literal["auto"] = "auto"
"""The batch size that is chosen by timing steps; see `choose_batch_size`."""


def _tag(value: Any) -> str:
    """The tag of a batch size. Tags are in brackets, so that they differ from the keys of a file."""
    if isinstance(value, dict | TotalBatch):
        return "(section)"
    return "(auto)" if value == AUTO else "(number)"


BatchSize = Annotated[
    Annotated[Annotated[int, Field(ge=1)], Tag("(number)")]
    | Annotated[Literal["auto"], Tag("(auto)")]
    | Annotated[TotalBatch, Tag("(section)")],
    Discriminator(_tag),
]
"""Samples per worker and step, `AUTO`, or the section for those of all workers together."""


class EarlyStopping(Section):
    """``early_stopping:`` ends the training when a metric no longer improves."""

    metric: str = Field("val_loss", description="A metric of the training, with the prefix ``val_`` for validation.")
    patience: int = Field(
        3,
        ge=1,
        description="Epochs without improvement before the training ends; epochs without the metric do not count.",
    )
    mode: Literal["auto", "min", "max"] = Field(
        "auto", description="The better direction; auto: by the name of the metric, if it is a known one."
    )
    min_delta: float = Field(0.0, ge=0, description="A smaller change does not count as an improvement.")
    restore_best: bool = Field(
        True, description="End with the weights of the best epoch, also if `target` or a callback ends the training."
    )

    @property
    def direction(self) -> Literal["min", "max"] | None:
        """The better direction of the metric; None if the mode is ``auto`` and the metric is not a known one."""
        return direction_of(self.metric) if self.mode == "auto" else self.mode


class Target(Section):
    """``target:`` end as soon as a metric reaches a value."""

    metric: str = Field(description="A metric of the training.")
    above: float | None = Field(None, description="End when it is at least this.")
    below: float | None = Field(None, description="End when it is at most this.")

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise InvalidValue("give exactly one of above and below", "write `above: 0.99` or `below: 0.01`")
        return self


class Checkpoint(Section):
    """``checkpoint:`` from which an interrupted training continues."""

    path: Path = Field(description="A folder; it is created if missing.")
    every: int = Field(1, ge=1, description="Epochs between two checkpoints; another one is written at the end.")
    interval_s: float | None = Field(
        None,
        gt=0,
        description="Another one is written after an epoch if this time has passed since the last one or the start, in "
        "seconds.",
    )
    provisional: bool = Field(
        False,
        description="Checkpoints that only protect against an interruption: none is written at the end, the folder is "
        "created with the first one, and the training continues if one cannot be written.",
    )
    resume: bool = Field(True, description="Continue from the checkpoint in `path`, if there is one.")
    start_from: Path | None = Field(
        None,
        description="A folder with another training's checkpoint: start from its weights, optimizer and epoch. "
        "`epochs` includes its epochs.",
    )

    def with_absolute_paths(self, directory: Path) -> Checkpoint:
        """The same with absolute paths."""
        start = self.start_from and directory / expanded(self.start_from)
        return self.model_copy(update={"path": directory / expanded(self.path), "start_from": start})


class Validation(Section):
    """``validation:`` when, and by which ranks, the model is validated."""

    every: int = Field(1, ge=1, description="Epochs between two validations; the last epoch is always validated.")
    mode: Literal["distributed", "master", "thread"] = Field(
        "distributed",
        description="distributed: every worker validates a share. master: the first worker validates all samples. "
        "thread: a thread of each worker validates its share during the next epoch. Learning rates by plateau then "
        "change one epoch later. Early stopping, target and callbacks also act one epoch later, except after an epoch "
        "with a checkpoint, which waits for its validation. With `checkpoint: {every: 1}`, the default, every epoch "
        "waits, and thread saves no time.",
    )
    batch_size: int | None = Field(None, ge=1, description="Samples per batch; null: four training batches.")
