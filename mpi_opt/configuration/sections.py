"""The sections of a ``space.yaml``. The whole file is in `configuration`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_serializer

from mpi_learn.settings.validation import InvalidValue, Section

MAX_DURATION_S = 1e9
"""About 30 years. Clocks of Python do not accept much longer durations."""
DURATION_CURE = "write a duration such as 90s, 30m or 2h, or remove the key"


def _refuse_others(value: object) -> object:
    """Refuses what is neither text nor number."""
    if not isinstance(value, str | int | float | None):
        raise InvalidValue(f"expected a duration, found {str(value).lower()}", DURATION_CURE)
    return value


def _check_duration(value: str | float | None) -> str | float | None:
    if value is not None and not 0 < seconds(value) <= MAX_DURATION_S:
        raise InvalidValue(f"must be more than 0 and at most {MAX_DURATION_S:.0f} seconds", DURATION_CURE)
    return value


Duration = Annotated[str | float | None, BeforeValidator(_refuse_others), AfterValidator(_check_duration)]


def _as_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Url = Annotated[str, BeforeValidator(_as_text)]
"""The URL of a store; in Python also the path of an SQLite file."""


class TransferSection(Section):
    """``search.transfer:``, an earlier study for a warm start; a text is its store."""

    equivalents: ClassVar[Mapping[str, str]] = {"learn": "remove it: only the best points are used"}

    store: Url | None = Field(
        None,
        description="The earlier study's store; a relative path is relative to the current directory. "
        "By default that of this study.",
    )
    study: str | None = Field(None, description="Its name; by default the only study of the store.")
    best: int = Field(5, ge=0, description="Number of its best points that are tried first.")


def _transfer_section(value: Any) -> Any:
    return {"store": value} if isinstance(value, str) else value


class NotifySection(Section):
    """``search.notify:``, a command that informs the user; a text is the command."""

    command: str = Field(
        min_length=1,
        description="A shell command. It receives the message as its standard input, and `MPI_OPT_EVENT`, "
        "`MPI_OPT_STUDY`, `MPI_OPT_STORE` and `MPI_OPT_MESSAGE` in its environment.",
    )
    stalled: float = Field(
        5.0,
        gt=0,
        description="Also run it if no trial has ended for this number of times the median duration of trials, and for "
        "at least a minute.",
    )
    timeout: Duration = Field("30s", description="The command is killed after this time, in seconds or as `30s`.")

    @property
    def timeout_s(self) -> float | None:
        """`timeout` in seconds."""
        return None if self.timeout is None else seconds(self.timeout)


def _notify_section(value: Any) -> Any:
    return {"command": value} if isinstance(value, str) else value


class SearchSection(Section):
    """``search:``, the search."""

    strategy: str = Field("bayesian", description="Name of a strategy, or `file.py:Class` for a strategy of the user.")
    trials: int = Field(50, ge=1, description="Number of trials of the study, including failed ones.")
    seed: int = Field(7, ge=0, lt=2**63, description="With one rank, the same seed gives the same trials.")
    options: dict[str, Any] = Field(default_factory=dict, description="The strategy's own options.")
    time_limit: Duration = Field(
        None,
        description="Time limit of a run, in seconds or as `2h`. Trials that would probably end later are not started; "
        "at the limit, running trials are stopped.",
    )
    target: float | list[float | None] | None = Field(
        None,
        description="The search stops when a trial is this good; with several figures of merit a list, in which `null` "
        "means any value. Running trials end at their next `trial.should_stop()`; others run to their end.",
    )

    extend: bool = Field(
        False,
        description="Continue a study whose space is extended: wider ranges, more categories, and new hyperparameters "
        "whose `default` is their value in the trials so far.",
    )
    confirm: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="At the end of the search, the three best points and the default configuration run again, this "
        "number of times each, with new seeds and all folds, in the study `STUDY.confirmN`.",
    )
    pruning: Literal["curves", "median", "none"] = Field(
        "none",
        description="With any strategy, trials are stopped at the end of an epoch or at a `trial.report`. `median`: if "
        "the best value so far is worse than the median of those of the complete trials. `curves`: if a model of "
        "learning curves expects more of a new trial.",
    )
    keep: Literal["best", "all"] | Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Models that are kept beside the store, in `STORE.models`: of the best trial (`best`; with several "
        "figures of merit of the Pareto front), of the N best trials, or of `all`. One model for each fold.",
    )
    transfer: Annotated[
        TransferSection | None,
        BeforeValidator(_transfer_section, json_schema_input_type=str | TransferSection | None),
    ] = Field(None, description="An earlier study for a warm start.")

    notify: Annotated[
        NotifySection | None,
        BeforeValidator(_notify_section, json_schema_input_type=str | NotifySection | None),
    ] = Field(
        None,
        description="A shell command, such as `mail -s search me@example.org`, that runs when the search ends, is "
        "started again, or stalls.",
    )
    metrics_file: str | None = Field(
        None,
        description="A text file in the format of Prometheus, which is rewritten every ten seconds. A relative path is "
        "relative to the directory in which the command runs.",
    )

    @property
    def time_limit_s(self) -> float | None:
        """`time_limit` in seconds."""
        return None if self.time_limit is None else seconds(self.time_limit)


class BlocksSection(Section):
    """``blocks:``, how the ranks are divided."""

    size: Annotated[int, Field(ge=1)] | Literal["auto", "measured"] = Field(
        1,
        description="Requested ranks per block; or `auto`, for about ten trials per block; or `measured`: the search "
        "first measures short trainings, and chooses the size with which it ends first. The N ranks other than rank "
        "0 and the spares form N / `size` blocks, rounded down, whose sizes differ by at most one; fewer ranks than "
        "`size` form one block. With `size: 5`, 16 ranks form blocks of 6, 5 and 5 ranks.",
    )
    elastic: bool | Literal["merit"] = Field(
        False,
        description="Idle ranks join running trials after an epoch, where the measured times say that it pays, and are "
        "given back when new trials start: the trials that end last get them, or with `merit` those with the best "
        "intermediate values. Results stay the same: it needs `batch_size: {total: …}`.",
    )
    spares: int = Field(0, ge=0, description="Number of idle ranks that replace lost ranks.")
    silence: Duration = Field(
        "30m",
        description="A rank without a sign of life for this time is given up, in seconds or as `30m`: its host or the "
        "network may have failed. It must be longer than any call of user code that holds Python's interpreter lock. "
        "`null`: no rank is given up.",
    )

    @property
    def silence_s(self) -> float | None:
        """`silence` in seconds."""
        return None if self.silence is None else seconds(self.silence)


class FoldsSection(Section):
    """``folds:``, the cross-validation of each trial; a number is K."""

    number: int = Field(1, ge=1, description="K of the K-fold cross-validation; 1: the validation data as given.")
    stop_early: bool = Field(
        False,
        description="A trial is `pruned` if its first folds are clearly worse than those of the best trial. Applies to "
        "blocks with fewer ranks than folds, which run the folds one after the other.",
    )

    @model_serializer
    def _as_written(self) -> int | dict[str, Any]:
        return {"number": self.number, "stop_early": True} if self.stop_early else self.number


def as_folds(value: Any) -> Any:
    """The value of ``folds:`` as a mapping; a number is K."""
    return value if isinstance(value, Mapping | FoldsSection) else {"number": value}


class TrialSection(Section):
    """``trial:``, the limits of one trial."""

    timeout: Duration = Field(None, description="Time limit of one trial, in seconds or as `30m`.")
    retries: int = Field(1, ge=0, description="How often a trial is run again after its ranks were lost.")

    @property
    def timeout_s(self) -> float | None:
        """`timeout` in seconds."""
        return None if self.timeout is None else seconds(self.timeout)


def seconds(duration: str | float) -> float:
    """Converts ``90``, ``"90s"``, ``"30m"``, ``"2h"``, ``"1d"``, ``"1h30m"`` or Slurm's ``"1-02:03:04"`` to seconds.

    Raises:
        ValueError: `duration` has none of these forms.
    """
    if isinstance(duration, int | float):
        return float(duration)
    text = duration.strip().lower()
    slurm = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?", text) or re.fullmatch(r"()(?:(\d+):)?(\d+):(\d+)", text)
    if slurm:  # days-hours[:minutes[:seconds]] or [hours:]minutes:seconds
        days, hours, minutes, rest = (int(part or 0) for part in slurm.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1, "": 1}
    if not re.fullmatch(r"(\d+(\.\d+)?[dhms])+|\d+(\.\d+)?", text):
        raise InvalidValue(
            f"expected a duration such as 90s, 30m or 2h, not {duration!r}", "write a number and d, h, m or s"
        )
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([dhms]?)", text))
