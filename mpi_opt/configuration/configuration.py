"""The keys of a ``space.yaml`` with their types, defaults and meanings. No MPI, framework or database.

`training` is a ``training.yaml`` in which ``$name`` is replaced by the value of a hyperparameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from mpi_learn.settings.paths import file_name
from mpi_learn.settings.suggestions import nearest, suggestion
from mpi_learn.settings.validation import InvalidValue, Section
from mpi_opt.configuration.sections import BlocksSection, FoldsSection, SearchSection, TrialSection, Url, as_folds
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.figures_of_merit import (
    Direction,
    FiguresOfMerit,
    Selection,
    Target,
    read_figures_of_merit,
    read_target,
)
from mpi_opt.core.search_space.space import DIMENSIONS, Dimension, Space
from mpi_opt.errors import ConfigurationError, SpaceError, without_passwords

EXTERNAL = "external"
"""The objective of a study whose trials are run by another program, with ``mpi-opt ask`` and ``mpi-opt tell``."""

MAX_STUDY_NAME = 255
"""The largest number of characters in the name of a study: the column of the store has this length."""


def _check_length(name: str) -> str:
    if len(name) > MAX_STUDY_NAME:
        raise InvalidValue(f"expected at most {MAX_STUDY_NAME} characters, found {len(name)}", "write a shorter name")
    return name


class StudyConfiguration(Section):
    """A whole ``space.yaml``."""

    study: Annotated[str, AfterValidator(_check_length)] = Field(
        "study", min_length=1, description="The study's name in the store: one line, at most 255 characters."
    )
    store: Url = Field(
        "sqlite:///mpi_opt.db",
        description="Any SQLAlchemy URL. A relative path, as in `sqlite:///digits.db`, is relative to the directory in "
        "which the command runs, not to this file; an absolute path begins with a fourth slash.",
    )
    direction: Direction | list[Direction] = Field(
        "minimize",
        description="`minimize` or `maximize`; a list searches the Pareto front of several figures.",
    )
    figure_of_merit: str | list[str] = Field(
        "val_loss",
        description="A metric of the training, `seconds`, `samples_per_second`, or `file.py:function`, called with the "
        "training's result; or a list of these. With a function as `objective`: the name of its return value.",
    )
    selection: Selection = Field(
        "mean",
        description="How a trial's folds are aggregated: `mean+std` is the mean made worse by one standard deviation.",
    )
    objective: str = Field(
        "train",
        description="`train`; or `file.py:function`, called with the trial; or `external`, for trials that another "
        "program runs with `mpi-opt ask` and `mpi-opt tell`.",
    )
    space: dict[str, dict[str, Any]] = Field(
        description="Hyperparameter: {type, low, high, prior, step, categories, when, default}."
    )
    search: SearchSection = Field(default_factory=SearchSection, description="The search.")
    blocks: BlocksSection = Field(default_factory=BlocksSection, description="How the ranks are divided.")
    folds: Annotated[
        FoldsSection,
        BeforeValidator(as_folds, json_schema_input_type=Annotated[int, Field(ge=1)] | FoldsSection),
    ] = Field(
        default_factory=FoldsSection,
        description="K of the K-fold cross-validation; 1: the validation data as given. Or a mapping, see below.",
    )
    trial: TrialSection = Field(default_factory=TrialSection, description="The limits of one trial.")
    track: str | None = Field(
        None,
        description="Also record the trials with `tensorboard:FOLDER` or `mlflow:URI`. A relative folder is relative "
        "to the current directory.",
    )
    training: dict[str, Any] | None = Field(
        None, description="A training.yaml, in which `$name` is replaced by the value of a hyperparameter."
    )

    @property
    def file_name(self) -> str:
        """The name of files and folders of the study."""
        return file_name(self.study)

    def figures_of_merit(self) -> FiguresOfMerit:
        """The figures of merit.

        Raises:
            ConfigurationError: The numbers of figures and directions differ.
        """
        is_training = self.objective == "train"
        return read_figures_of_merit(self.figure_of_merit, self.direction, self.selection, is_training=is_training)

    def target(self) -> Target | None:
        """The figure of merit, or figures, at which the search ends; None without a target.

        Raises:
            ConfigurationError: The numbers of targets and figures of merit differ.
        """
        return read_target(self.search.target, self.figures_of_merit())

    def note_on_folds(self) -> str:
        """Which samples no fold uses, because folds divide the training samples alone; empty if all are used."""
        data = (self.training or {}).get("data")
        if self.folds.number == 1 or self.objective != "train" or not isinstance(data, Mapping):
            return ""
        key = next((key for key in ("validation_fraction", "validation") if data.get(key)), None)
        if key is None:
            return ""
        which = f"{key}: {data[key]}" if key == "validation_fraction" else key
        return f"no fold uses the samples of `data.{which}`; without this key, folds divide all samples"

    def layout(self, n_ranks: int) -> BlockLayout:
        """The roles of `n_ranks` ranks."""
        blocks, n_folds = self.blocks, self.folds.number
        return BlockLayout.of(n_ranks, blocks.size, n_folds, self.search.trials, blocks.spares, self.n_stages)

    @property
    def n_stages(self) -> int:
        """The number of ranks that hold one model: ``pipeline.stages`` of a training.

        Raises:
            ConfigurationError: It is a hyperparameter.
        """
        section = (self.training or {}).get("pipeline") if self.objective == "train" else None
        stages = section.get("stages", 1) if isinstance(section, Mapping) else 1
        if isinstance(stages, str) and stages.startswith("$"):
            raise ConfigurationError(
                f"found {stages}: the size of the blocks, which all trials share, depends on the number of stages",
                where="training.pipeline.stages",
                cure="write a number",
            )
        return stages if isinstance(stages, int) else 1

    @property
    def has_total_batch(self) -> bool:
        """Whether the steps of a training are the same for any number of ranks: ``batch_size: {total: …}``."""
        return self.objective == "train" and isinstance((self.training or {}).get("batch_size"), Mapping)

    def search_space(self) -> Space:
        """The search space.

        Raises:
            SpaceError: The space is inconsistent; the message names the key.
        """
        return Space({name: _dimension(name, entry) for name, entry in self.space.items()})


def publishable(content: Any) -> Any:
    """A study's configuration without the passwords in its URLs, for its store and for reports."""
    match content:
        case str():
            return without_passwords(content)
        case Mapping():
            return {key: publishable(value) for key, value in content.items()}
        case list() | tuple():
            return [publishable(value) for value in content]
    return content


def _dimension(name: str, entry: Mapping[str, Any]) -> Dimension:
    """The hyperparameter `name` from its entry in the section ``space:``."""
    where, keys = f"space.{name}", dict(entry)
    kind = keys.pop("type", None)
    if not isinstance(kind, str) or kind not in DIMENSIONS:
        near = nearest(str(kind), DIMENSIONS) or next(iter(DIMENSIONS))
        problem = f"type must be one of {', '.join(DIMENSIONS)}, not {kind!r}"
        raise SpaceError(problem, where=f"{where}.type", cure=f"write, for example, type: {near}")
    known = [field.name for field in fields(DIMENSIONS[kind])]
    for key in keys:
        if key not in known:
            raise SpaceError(f"unknown key {key!r}", where=where, cure=suggestion(key, known))
    try:
        return DIMENSIONS[kind](**keys)
    except SpaceError as error:
        raise SpaceError(error.problem, where=".".join(filter(None, (where, error.where))), cure=error.cure) from None
    except TypeError:
        # the constructor of the dataclass names one missing argument, and without the words of the file
        optional = ("prior", "step", "when", "default", "expect")
        missing = [key for key in known if key not in keys and key not in optional]
        cure = f"add {', '.join(f'{key}: …' for key in missing)}"
        raise SpaceError(f"{', '.join(missing)} missing", where=where, cure=cure) from None
