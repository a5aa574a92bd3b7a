"""The `data` section of a training.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from mpi_learn.data.files.finding import absolute, absolute_pattern
from mpi_learn.settings import suggestions
from mpi_learn.settings.user_code import absolute_specification
from mpi_learn.settings.validation import InvalidValue, Section, as_list

Names = str | list[str | list[str]] | dict[str, str | list[str]]
"""Names of arrays: a name, a list of names, a list of lists (columns of a table), or a mapping by input name."""

Dtype = Literal[
    "float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"
]

Locations = Annotated[list[str], BeforeValidator(as_list), Field(min_length=1)]


class Transform(Section):
    """Arrays that a user's function computes from the arrays in the files."""

    names: Names = Field(description="The arrays to read, as without a function.")
    function: str = Field(
        description="file.py:function or package.module:function. Called with the arrays that would be the inputs "
        "without it, for some consecutive samples. Returns one array with the same number of samples, a tuple for "
        "several inputs, or a mapping by input name."
    )


class DataConfiguration(Section):
    """The training and validation samples: files, and the arrays to read from them."""

    equivalents: ClassVar[Mapping[str, str]] = suggestions.DATA

    train: Locations = Field(
        description="Files, globs or URLs of the training samples: .h5 .npz .npy .root .parquet .csv .tsv (.gz). Files "
        "of a glob are sorted."
    )
    validation: Locations | None = Field(
        default=None, description="Files of the validation samples, as for train. Excludes validation_fraction."
    )
    validation_fraction: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="The random fraction of the training samples for validation.",
    )
    validation_seed: int | None = Field(
        default=None,
        ge=0,
        lt=2**31,
        description="Seed of the random selection by validation_fraction; default: the seed of the training, without "
        "that of the trial in a search.",
    )
    features: Transform | Names = Field(
        union_mode="left_to_right",
        description="Arrays (HDF5, NPZ): a dataset, a list of datasets, each an input of the model, or a group, whose "
        "datasets are matched with the inputs by name. Tables (ROOT, Parquet, CSV): columns, stacked in this order to "
        "one input; a list of lists for several inputs. A mapping by the names of the inputs: {age: a, income: [b, c]}."
        " Globs are allowed and leave the labels out. `name[4]`: four values of each row, cut or filled with zeros. Or "
        "{names: …, function: file.py:f}.",
    )
    labels: Transform | Names | None = Field(
        union_mode="left_to_right",
        description="The labels, written like features; null for a model that learns from the features alone.",
    )
    weights: str | dict[str, str] | None = Field(
        default=None,
        description="A dataset or column with one weight per sample, for the loss and weighted_metrics; or a mapping "
        "by the names of the outputs, {label: w1, domain: w2}. Outputs that it leaves out have no weights.",
    )
    class_weight: dict[int, float] | Literal["balanced"] | None = Field(
        default=None,
        description="A weight for the training samples of each class, {0: 1.0, 1: 5.0}; other classes have 1. "
        "balanced: samples / (classes × samples of the class).",
    )
    dtype: Dtype | dict[str, Dtype] | None = Field(
        default=None,
        description="dtype of the features, or a mapping by the names of features and labels. null: real numbers "
        "become float32, integers stay integers.",
    )
    shuffle: bool = Field(default=True, description="A new order every epoch, from the training's seed.")
    drop_last: bool = Field(
        default=False,
        description="Leave out the samples at the end of an epoch that do not fill a batch of each worker.",
    )
    share: Literal["static", "dynamic"] = Field(
        default="static",
        description="static: each worker has a fixed part of every epoch. dynamic: free workers request chunks, for "
        "asynchronous algorithms.",
    )
    memory: Literal["auto", "hold", "stream"] = Field(
        default="auto",
        description="hold: the samples are read once and stay in memory, once per host. stream: they are read from the "
        "files during the training, ahead and in the background, and shuffled in blocks. auto: the training samples, "
        "then the validation samples, are held if all held samples fit into half of a host's memory.",
    )
    window_bytes: int = Field(
        default=64 * 2**20,
        ge=1,
        description="stream: the size of the window that is read and shuffled at once. Each worker holds two windows. "
        "A window has at least four row groups (Parquet), chunks (HDF5) or baskets (ROOT), whatever their size.",
    )
    cache: str | None = Field(
        default=None, description="A folder for copies of remote files, preferably on each host's local disk."
    )
    keep_cache: bool = Field(default=True, description="Whether to keep the copies in `cache` after the training.")

    @field_validator("features", "labels")
    @classmethod
    def _check_names(cls, names: Transform | Names | None) -> Transform | Names | None:
        given = names.names if isinstance(names, Transform) else names
        if isinstance(given, list | dict) and (
            not given or [] in (given.values() if isinstance(given, dict) else given)
        ):
            raise InvalidValue("an empty list names no array", "name at least one")
        return names

    @model_validator(mode="after")
    def _check_validation(self) -> DataConfiguration:
        if self.validation is not None and self.validation_fraction is not None:
            raise InvalidValue("validation and validation_fraction exclude each other", "leave one of them out")
        return self

    def with_absolute_paths(self, directory: Path) -> DataConfiguration:
        """The configuration with relative paths resolved against `directory`. URLs do not change."""
        return self.model_copy(
            update={
                "train": [absolute_pattern(place, directory) for place in self.train],
                "validation": self.validation and [absolute_pattern(place, directory) for place in self.validation],
                "cache": self.cache and absolute(self.cache, directory),
                "features": _with_absolute_path(self.features, directory),
                "labels": _with_absolute_path(self.labels, directory),
            }
        )


def _with_absolute_path(names: Names | Transform | None, directory: Path) -> Names | Transform | None:
    if not isinstance(names, Transform):
        return names
    return names.model_copy(update={"function": absolute_specification(names.function, directory)})
