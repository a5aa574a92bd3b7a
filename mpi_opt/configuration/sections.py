"""The sections of a ``space.yaml``; `configuration` has the whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_serializer

from mpi_learn.settings.yaml_file import InvalidValue


class Section(BaseModel):
    """A part of the file: unknown keys are errors, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _duration(value: str | float | None) -> str | float | None:
    if value is not None and seconds(value) <= 0:
        raise InvalidValue("must be more than 0", "write a duration such as 90s, 30m or 2h, or take the key out")
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
            raise InvalidValue("must be at least 1, or auto", "write `size: 1` or `size: auto`")
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


def as_folds(value: Any) -> Any:
    """A ``folds:`` as keys; a number alone is K."""
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
        raise InvalidValue(
            f"expected a duration such as 90s, 30m or 2h, not {duration!r}", "write a number and d, h, m or s"
        )
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([dhms]?)", text))
