"""The keys of a ``space.yaml`` with their types, defaults and meanings. No MPI, framework or database.

`training` is a ``training.yaml`` in which ``$name`` is replaced by the value of a hyperparameter.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from mpi_learn.settings.paths import file_name
from mpi_learn.settings.suggestions import nearest, suggestion
from mpi_learn.settings.validation import InvalidValue, Section, validated
from mpi_learn.settings.yaml_file import read_yaml
from mpi_opt.configuration.placeholders import references
from mpi_opt.configuration.sections import BlocksSection, FoldsSection, SearchSection, TrialSection, Url, as_folds
from mpi_opt.core.block_layout import MEASURED, BlockLayout
from mpi_opt.core.figures_of_merit import (
    RESULT_FIGURES,
    Direction,
    FiguresOfMerit,
    Selection,
    Target,
    read_figures_of_merit,
    read_target,
)
from mpi_opt.core.objective import NOT_MEASURED, NUMBER_OF_RANKS
from mpi_opt.core.search_space.space import DIMENSIONS, Dimension, Space
from mpi_opt.errors import ConfigurationError, SpaceError, without_passwords

EXTERNAL = "external"
"""The objective of a study whose trials are run by another program, with ``mpi-opt ask`` and ``mpi-opt tell``."""

SETS_EPOCHS = ("halving", "population")
"""The strategies that choose the number of epochs of each trial."""


MAX_STUDY_NAME = 255
"""The largest number of characters in the name of a study: the column of the store has this length."""


def _check_length(name: str) -> str:
    if len(name) > MAX_STUDY_NAME:
        raise InvalidValue(f"expected at most {MAX_STUDY_NAME} characters, found {len(name)}", "write a shorter name")
    return name


class StudyConfiguration(Section):
    """A whole ``space.yaml``."""

    study: Annotated[str, AfterValidator(_check_length)] = Field(
        "study", min_length=1, description="The study's name in the store, at most 255 characters."
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


def read_study(source: Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> StudyConfiguration:
    """Reads a ``space.yaml`` and validates it as far as possible without data and models.

    Args:
        source: The file, or its contents.
        overrides: Dotted key -> value in place of the file's, such as ``{"search.trials": 9}``; None keeps the file's.

    Raises:
        ConfigurationError: A value is invalid; the message names the file, the key and what was expected.
    """
    where = str(source) if isinstance(source, Path) else ""
    values = read_yaml(source) if isinstance(source, Path) else dict(source)
    for key, value in (overrides or {}).items():
        if value is not None:
            _set(values, key, value)
    try:
        _check_places(values)
    except ConfigurationError as error:
        raise error.at(where) from None
    configuration = validated(StudyConfiguration, values, where)
    try:
        check_combinations(configuration)
        _check_references(configuration, configuration.search_space())
    except ConfigurationError as error:
        raise error.at(where) from None
    return configuration


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


def _check_places(values: Mapping[str, Any]) -> None:
    """Verifies that no key at the top level belongs into a section."""
    unknown = [key for key in values if key not in StudyConfiguration.model_fields]
    if not unknown:
        return
    from mpi_learn.training.configuration import TrainingConfiguration  # takes 0.1 s

    if not set(values) & {"space", "search", "training", "study"} and {"model", "data"} <= set(unknown):
        raise ConfigurationError(
            "this is the configuration of a training, not of a search",
            cure="use it with mpi-learn, or put it under `training:` of a file that `mpi-opt new` writes",
        )
    sections: dict[str, type[Section]] = {
        "training": TrainingConfiguration,
        "search": SearchSection,
        "blocks": BlocksSection,
        "trial": TrialSection,
    }
    for key in unknown:
        places = [f"`{name}:`" for name, section in sections.items() if key in section.model_fields]
        if places:
            raise ConfigurationError("unknown key", where=key, cure=f"move it under {' or '.join(places)}")


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


def _check_names(names: Iterable[str]) -> None:
    """Verifies that a function can receive each hyperparameter by its name."""
    for name in names:
        where = f"space.{name}"
        if not name.isidentifier():
            cure = "start with a letter; write 2x as x2, for example"
            problem = "the name of a hyperparameter must consist of letters, digits and _"
            raise SpaceError(problem, where=where, cure=cure)
        # Python normalises names in code (PEP 3131): a parameter `µ` (U+00B5) of a function is called `μ` (U+03BC)
        if (in_code := unicodedata.normalize("NFKC", name)) != name:
            problem = f"Python changes this name in code, from {_code_points(name)} to {_code_points(in_code)}"
            raise SpaceError(problem, where=where, cure=f"write {in_code}, or a name of plain letters such as mu")


def _code_points(name: str) -> str:
    """``µ (U+00B5)``: the characters of a name outside of ASCII may look like others."""
    return f"{name} ({' '.join(f'U+{ord(letter):04X}' for letter in name if not letter.isascii()) or 'ASCII'})"


def _check_references(configuration: StudyConfiguration, space: Space) -> None:
    if configuration.objective == "train" and configuration.training is None:
        raise ConfigurationError(
            "this section is missing; `objective: train` needs it",
            where="training",
            cure="write a training: section, or objective: file.py:function, or objective: external",
        )
    training = configuration.training or {}
    for name in references(training):
        if name not in space:
            raise ConfigurationError(
                f"${name} is not a hyperparameter of the space", where="training", cure=suggestion(name, space)
            )
    if seeds := list(references(training.get("seed"))):
        raise ConfigurationError(
            f"expected a number, found ${seeds[0]}: all trials must have the same validation samples",
            where="training.seed",
            cure="write a number, or remove this key; each trial has a seed of its own for its weights",
        )
    strategy = configuration.search.strategy
    if strategy in SETS_EPOCHS and (epochs := list(references(training.get("epochs")))):
        raise ConfigurationError(
            f"${epochs[0]} has no effect: {strategy} chooses the epochs of each trial",
            where="training.epochs",
            cure=f"write the epochs of a full training, and remove {epochs[0]} from the space",
        )


def check_combinations(configuration: StudyConfiguration) -> None:
    """Verifies the names of hyperparameters, and the keys that depend on one another.

    These are figures of merit, directions and targets, and ``stop_early``.

    Raises:
        ConfigurationError: A name is invalid, or keys do not agree; the message names the key.
    """
    _check_names(configuration.space)
    configuration.target()
    _check_keep(configuration)
    _check_confirm(configuration)
    _check_pruning(configuration)
    _check_elastic(configuration)
    if configuration.blocks.size == MEASURED:
        check_measurable(configuration, "blocks.size")
    if not configuration.folds.stop_early:
        return
    strategy, options = configuration.search.strategy, configuration.search.options
    if strategy == "population" or (strategy == "halving" and options.get("resume", True)):
        raise ConfigurationError(
            f"trials of {strategy} resume from one another, and need all of their folds",
            where="folds.stop_early",
            cure="remove it, or use another strategy",
        )
    if configuration.figures_of_merit().are_several or configuration.selection != "mean":
        raise ConfigurationError(
            "folds are compared by the mean of one figure of merit",
            where="folds.stop_early",
            cure="remove it, or use one figure of merit and selection: mean",
        )
    if configuration.objective == EXTERNAL:
        raise ConfigurationError(
            "the program that runs the trials of this study also runs their folds",
            where="folds.stop_early",
            cure="remove it",
        )


def _check_keep(configuration: StudyConfiguration) -> None:
    keep = configuration.search.keep
    if keep is not None and configuration.objective != "train":
        raise ConfigurationError(
            "the search keeps models of trainings only",
            where="search.keep",
            cure="remove it, and save the model in your function",
        )
    if isinstance(keep, int) and configuration.figures_of_merit().are_several:
        raise ConfigurationError(
            "several figures of merit have no N best trials",
            where="search.keep",
            cure="write best, for the Pareto front, or all",
        )


def _check_confirm(configuration: StudyConfiguration) -> None:
    """Verifies that the best trials of a study can run again.

    Raises:
        ConfigurationError: They cannot.
    """
    if configuration.search.confirm is None:
        return
    reasons = {
        "several figures of merit have no best trial": configuration.figures_of_merit().are_several,
        "another program runs the trials of this study": configuration.objective == EXTERNAL,
        "the hyperparameters of population change during a training": configuration.search.strategy == "population",
    }
    for reason, applies in reasons.items():
        if applies:
            raise ConfigurationError(reason, where="search.confirm", cure="remove it")


def _check_pruning(configuration: StudyConfiguration) -> None:
    """Verifies that trials have intermediate values that can be compared, and may be stopped.

    Raises:
        ConfigurationError: They have none, or the search is reproducible.
    """
    if configuration.search.pruning == "none":
        return
    figures, strategy = configuration.figures_of_merit(), configuration.search.strategy
    is_metric = isinstance(configuration.figure_of_merit, str) and ":" not in configuration.figure_of_merit
    is_curve = configuration.objective != "train" or (is_metric and figures.names[0] not in RESULT_FIGURES)
    is_reproducible = bool(configuration.search.options.get("reproducible"))
    reasons = {
        "trials are compared by one figure of merit": figures.are_several,
        f"{strategy} chooses itself how long each trial is trained": strategy in SETS_EPOCHS,
        "another program runs the trials of this study": configuration.objective == EXTERNAL,
        "which trials are stopped depends on timing, and the search is reproducible": is_reproducible,
        f"the figure of merit {figures.names[0]} is not a metric with a value per epoch": not is_curve,
    }
    for reason, applies in reasons.items():
        if applies:
            raise ConfigurationError(reason, where="search.pruning", cure="remove it, or write pruning: none")


def check_measurable(configuration: StudyConfiguration, where: str) -> None:
    """Verifies that the times of trainings can be measured on different numbers of ranks.

    Raises:
        ConfigurationError: Trials are no trainings, or have another batch size on each number of ranks.
    """
    if configuration.objective != "train":
        raise ConfigurationError(NOT_MEASURED, where=where, cure=NUMBER_OF_RANKS)
    if (configuration.training or {}).get("batch_size") == "auto":
        raise ConfigurationError(
            "training.batch_size: auto depends on the number of ranks, which is to be measured",
            where=where,
            cure="write training.batch_size: {total: …}, or the number of samples per rank",
        )


def _check_elastic(configuration: StudyConfiguration) -> None:
    """Verifies that the results of trials do not depend on their number of ranks.

    Raises:
        ConfigurationError: They do, or the number is fixed.
    """
    if not configuration.blocks.elastic:
        return
    is_training = configuration.objective == "train"
    reasons = {
        ("the steps of a training depend on its number of ranks", "write training.batch_size: {total: …}"): is_training
        and not configuration.has_total_batch,
        ("the stages of a pipeline have a fixed number of ranks", "remove it"): configuration.n_stages > 1,
        ("the folds of a trial have fixed ranks", "remove it, or folds"): configuration.folds.number > 1,
        ("another program runs the trials of this study", "remove it"): configuration.objective == EXTERNAL,
        ("the duration of a training depends on its number of ranks", "remove it, or this figure of merit"): is_training
        and not set(RESULT_FIGURES).isdisjoint(configuration.figures_of_merit().names),
    }
    for (reason, cure), applies in reasons.items():
        if applies:
            raise ConfigurationError(reason, where="blocks.elastic", cure=cure)


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    first, _, rest = key.partition(".")
    if not rest:
        values[first] = value
        return
    section = values.get(first)
    values[first] = dict(section) if isinstance(section, Mapping) else {}
    _set(values[first], rest, value)
