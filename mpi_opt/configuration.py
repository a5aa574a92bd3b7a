"""What a ``space.yaml`` may say. Pure: no MPI, no framework, no database.

The one place where every key's type, default and meaning stand. `training` is exactly a ``training.yaml`` in which a
value ``$name`` takes a hyperparameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_serializer

from mpi_learn.validation import nearest, place, read_yaml, validated
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.merits import Direction, Merits, Selection, Target, read_merits, read_target
from mpi_opt.space import DIMENSIONS, Dimension, Parameters, Space

EXTERNAL = "external"
"""The objective of a study whose trials others run, by ``mpi-opt ask`` and ``tell``."""

REFERENCE = re.compile(r"\$([A-Za-z_]\w*)")


class Section(BaseModel):
    """A part of the file: unknown keys are errors, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _duration(value: str | float | None) -> str | float | None:
    if value is not None and seconds(value) <= 0:
        raise ValueError("must be more than 0")
    return value


class TransferSection(Section):
    """``search.transfer:``, an earlier study to learn from; a text alone is its store."""

    store: str | None = Field(None, description="The earlier study's store; default: the study's own.")
    study: str | None = Field(None, description="Its name; default: the only one there.")
    best: int = Field(5, ge=0, description="So many of its best points are tried first.")
    learn: bool = Field(
        True,
        description="`bayesian` learns from all its trials, too, as far as they agree with those of this study.",
    )


def _transfer_section(value: Any) -> Any:
    return {"store": value} if isinstance(value, str) else value


def read_transfer(value: Any) -> TransferSection:
    """A ``search.transfer`` as it stands in a file."""
    return TransferSection.model_validate(_transfer_section(value))


class SearchSection(Section):
    """``search:``, how to look."""

    strategy: str = Field("bayesian", description="A strategy's name, or `file.py:Class` of the user's.")
    trials: int = Field(50, ge=1, description="How many trials the study gets in all, failed ones included.")
    seed: int = Field(7, ge=0, lt=2**63, description="The same seed and one rank give the same trials again.")
    options: dict[str, Any] = Field(default_factory=dict, description="The strategy's own options.")
    time_limit: str | float | None = Field(
        None, description="Seconds, or text such as `2h`: no trial is begun that would likely end later."
    )
    target: float | list[float | None] | None = Field(
        None,
        description="Stop as soon as a trial is this good; of several figures of merit a list, `null` for any value.",
    )

    transfer: Annotated[
        TransferSection | None,
        BeforeValidator(_transfer_section, json_schema_input_type=str | TransferSection | None),
    ] = Field(None, description="An earlier study, whose results this one begins with.")

    _is_duration = field_validator("time_limit")(_duration)

    @property
    def time_limit_s(self) -> float | None:
        """`time_limit` in seconds."""
        return None if self.time_limit is None else seconds(self.time_limit)


class BlocksSection(Section):
    """``blocks:``, how the ranks are cut."""

    size: int | Literal["auto"] = Field(1, description="Ranks a block, or `auto`: so that each block gets ten trials.")

    spares: int = Field(0, ge=0, description="Ranks that wait to take the place of lost ones.")

    @field_validator("size")
    @classmethod
    def _at_least_one(cls, size: int | str) -> int | str:
        if size != "auto" and int(size) < 1:
            raise ValueError("must be at least 1, or auto")
        return size


class FoldsSection(Section):
    """``folds:``, the cross-validation of each trial; a number alone is K."""

    number: int = Field(1, ge=1, description="K of the K-fold cross-validation; 1: the validation data as given.")
    stop_early: bool = Field(
        False,
        description="A trial whose first folds are clearly worse than the best trial's does not run the others; it is "
        "`pruned`. Where a block has fewer ranks than folds, and so runs them in turn.",
    )

    @model_serializer
    def _as_written(self) -> int | dict[str, Any]:
        return {"number": self.number, "stop_early": True} if self.stop_early else self.number


def _folds_section(value: Any) -> Any:
    return value if isinstance(value, Mapping | FoldsSection) else {"number": value}


class TrialSection(Section):
    """``trial:``, what one trial may cost."""

    timeout: str | float | None = Field(None, description="Seconds, or text such as `30m`, that one trial may take.")
    retries: int = Field(1, ge=0, description="How often a trial is run again after its ranks were lost.")

    _is_duration = field_validator("timeout")(_duration)

    @property
    def timeout_s(self) -> float | None:
        """`timeout` in seconds."""
        return None if self.timeout is None else seconds(self.timeout)


class StudyConfiguration(Section):
    """A whole ``space.yaml``."""

    study: str = Field("study", min_length=1, description="The study's name in the store.")
    store: str = Field(
        "sqlite:///mpi_opt.db", description="Any SQLAlchemy URL; a relative path starts where one stands."
    )
    direction: Direction | list[Direction] = Field(
        "minimize", description="Which way is better; a list makes a search for the Pareto front of several figures."
    )
    figure_of_merit: str | list[str] = Field(
        "val_loss",
        description="A metric of the training, `seconds`, `samples_per_second`, or `file.py:function`, called with the "
        "training's result; or a list of these. Of a user's objective: what it returns is called so.",
    )
    selection: Selection = Field(
        "mean",
        description="What the folds of a trial come to: `mean+std` is the mean made worse by a standard deviation.",
    )
    objective: str = Field(
        "train",
        description="`train`, or `file.py:function`, called with the trial, or `external`: whoever runs `mpi-opt ask`.",
    )
    space: dict[str, dict[str, Any]] = Field(
        description="Hyperparameter: {type, low, high, prior, step, categories, when}."
    )
    search: SearchSection = Field(default_factory=SearchSection, description="How to look.")
    blocks: BlocksSection = Field(default_factory=BlocksSection, description="How the ranks are cut.")
    folds: Annotated[
        FoldsSection,
        BeforeValidator(_folds_section, json_schema_input_type=Annotated[int, Field(ge=1)] | FoldsSection),
    ] = Field(
        default_factory=FoldsSection,
        description="K of the K-fold cross-validation; 1: the validation data as given. Or keys.",
    )
    trial: TrialSection = Field(default_factory=TrialSection, description="What one trial may cost.")
    track: str | None = Field(None, description="`tensorboard:FOLDER` or `mlflow:URI`: trials appear there, too.")
    training: dict[str, Any] | None = Field(None, description="A training.yaml, `$name` for a hyperparameter.")

    def merits(self) -> Merits:
        """The figures of merit.

        Raises:
            ConfigurationError: There are more or fewer than directions.
        """
        return read_merits(self.figure_of_merit, self.direction, self.selection, is_training=self.objective == "train")

    def target(self) -> Target | None:
        """How good a trial ends the search.

        Raises:
            ConfigurationError: There are more or fewer targets than figures of merit.
        """
        return read_target(self.search.target, self.merits())

    def dimensions(self) -> Space:
        """The search space.

        Raises:
            SpaceError: It contradicts itself; names the key.
        """
        return read_space(self.space)


def read_study(source: Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> StudyConfiguration:
    """Reads a ``space.yaml`` and checks all of it that can be checked without touching data or models.

    Args:
        source: The file, or what stands in it.
        overrides: Values that come before the file's, by dotted key: ``{"search.trials": 9}``; None: as the file.

    Raises:
        ConfigurationError: Names file, key, what was expected and what came.
    """
    where = str(source) if isinstance(source, Path) else ""
    values = read_yaml(source) if isinstance(source, Path) else dict(source)
    for key, value in (overrides or {}).items():
        if value is not None:
            _set(values, key, value)
    configuration = validated(StudyConfiguration, values, where)
    try:
        configuration.target()
        space = configuration.dimensions()
        _check_references(configuration, space)
        _check_folds(configuration)
    except ConfigurationError as error:
        raise type(error)(error.problem, where=place(where, error.where), cure=error.cure) from None
    return configuration


def read_space(entries: Mapping[str, Mapping[str, Any]]) -> Space:
    """The space of a file's ``space:`` section.

    Raises:
        SpaceError: Names the hyperparameter and the key.
    """
    dimensions: dict[str, Dimension] = {}
    for name, entry in entries.items():
        where = f"space.{name}"
        if not str(name).isidentifier():
            raise SpaceError("a hyperparameter's name must be letters, digits and _", where=where)
        keys = dict(entry)
        kind = keys.pop("type", None)
        if kind not in DIMENSIONS:
            raise SpaceError(f"type must be one of {', '.join(DIMENSIONS)}, not {kind!r}", where=f"{where}.type")
        dimensions[name] = _dimension(DIMENSIONS[kind], keys, where)
    return Space(dimensions)


def _dimension(kind: type[Dimension], keys: dict[str, Any], where: str) -> Dimension:
    known = list(kind.__dataclass_fields__)
    for key in keys:
        if key not in known:
            raise SpaceError(f"unknown key {key!r}", where=where, cure=_did_you_mean(key, known))
    try:
        return kind(**keys)
    except SpaceError as error:
        raise error.at(f"{where}.") if not error.where else error.at(where) from None
    except TypeError:
        missing = [name for name in known if name not in keys and name not in ("prior", "step", "when")]
        raise SpaceError(f"{', '.join(missing)} missing", where=where) from None


def references(value: Any) -> Iterator[str]:
    """The hyperparameters that `value`, a part of ``training:``, takes by ``$name``."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)
    elif isinstance(value, str) and (match := REFERENCE.fullmatch(value)):
        yield match[1]


def filled(value: Any, parameters: Parameters) -> Any:
    """`value`, a part of ``training:``, with each ``$name`` replaced; keys and items of inactive ones are left out."""
    if isinstance(value, Mapping):
        return {key: filled(item, parameters) for key, item in value.items() if not _is_inactive(item, parameters)}
    if isinstance(value, list | tuple):
        return [filled(item, parameters) for item in value if not _is_inactive(item, parameters)]
    if isinstance(value, str) and (match := REFERENCE.fullmatch(value)):
        return parameters[match[1]]
    return value


def read_epochs(training: Mapping[str, Any]) -> int:
    """The epochs of a full training."""
    epochs = training.get("epochs", 1)
    return epochs if isinstance(epochs, int) else 1


def seconds(duration: str | float) -> float:
    """``90``, ``"90s"``, ``"30m"``, ``"2h"``, ``"1d"``, ``"1h30m"`` or Slurm's ``"1-02:03:04"`` in seconds.

    Raises:
        ValueError: It is none of these.
    """
    if isinstance(duration, int | float):
        return float(duration)
    text = duration.strip().lower()
    if match := re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1, "": 1}
    if not re.fullmatch(r"(\d+(\.\d+)?[dhms])+|\d+(\.\d+)?", text):
        raise ValueError(f"expected a duration such as 90s, 30m or 2h, not {duration!r}")
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([dhms]?)", text))


def _is_inactive(item: Any, parameters: Parameters) -> bool:
    match = REFERENCE.fullmatch(item) if isinstance(item, str) else None
    return match is not None and match[1] not in parameters


def _check_references(configuration: StudyConfiguration, space: Space) -> None:
    if configuration.objective == "train" and configuration.training is None:
        raise ConfigurationError(
            "missing: `objective: train` needs to know what to train",
            where="training",
            cure="write a training: section, or objective: file.py:function, or objective: external",
        )
    for name in references(configuration.training or {}):
        if name not in space:
            raise ConfigurationError(
                f"${name} is not a hyperparameter of the space", where="training", cure=_did_you_mean(name, list(space))
            )


def _check_folds(configuration: StudyConfiguration) -> None:
    strategy, options = configuration.search.strategy, configuration.search.options
    if not configuration.folds.stop_early:
        return
    if strategy == "population" or (strategy == "halving" and options.get("resume", True)):
        raise ConfigurationError(
            f"the trials of {strategy} go on from one another, and for that each needs all its folds",
            where="folds.stop_early",
            cure="take it out, or take another strategy",
        )
    if configuration.merits().are_several or configuration.selection != "mean":
        raise ConfigurationError(
            "what folds are compared by is the mean of one figure of merit",
            where="folds.stop_early",
            cure="take it out, or take one figure of merit and selection: mean",
        )
    if configuration.objective == EXTERNAL:
        raise ConfigurationError(
            "whoever runs the trials of this study decides about their folds",
            where="folds.stop_early",
            cure="take it out",
        )


def _did_you_mean(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    return f"did you mean {near}?" if near else f"known: {', '.join(known)}"


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    first, _, rest = key.partition(".")
    if not rest:
        values[first] = value
        return
    section = values.get(first)
    values[first] = dict(section) if isinstance(section, Mapping) else {}
    _set(values[first], rest, value)
