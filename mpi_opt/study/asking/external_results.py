"""Validates the results of trials that a workload system reports as JSON."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mpi_learn.settings.validation import Section, validated
from mpi_opt.core.trial import TRIALS_PER_STUDY
from mpi_opt.errors import ConfigurationError

Figure = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Uncertainty = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]


class ExternalResult(Section):
    """The result of a trial: a value, the reason of its failure, or the reason why it must run again."""

    number: int = Field(ge=0, lt=TRIALS_PER_STUDY, strict=True, description="The trial.")
    attempt: int | None = Field(None, ge=1, strict=True, description="Its attempt, as `ask` printed it.")
    study: str | None = Field(None, description="Its study, as `ask` printed it.")
    value: Figure | list[Figure] | dict[str, Figure] | None = Field(
        None, description="The figure of merit; for several, a list, or an object by name."
    )
    uncertainty: Uncertainty | list[Uncertainty] | dict[str, Uncertainty] | None = Field(
        None, description="Standard deviation of the value, in the same form."
    )
    failed: str | None = Field(None, min_length=1, description="Why there is no value.")
    lost: str | None = Field(None, min_length=1, description="Why the trial has not ended and must run again.")
    parameters: dict[str, Any] | None = Field(None, description="Its hyperparameters, as `ask` printed them.")


def read_results(content: object) -> list[ExternalResult]:
    """Validates one result or a list of results. Results may contain the keys of their proposal.

    Args:
        content: A JSON value: an object such as ``{"number": 3, "value": 0.1}``, or a list of objects.

    Raises:
        ConfigurationError: Names the wrong result and key.
    """
    entries = content if isinstance(content, list) else [content]
    results = [_read_result(entry, f"result {index + 1}") for index, entry in enumerate(entries)]
    seen: set[int] = set()
    for number in (result.number for result in results):
        if number in seen:
            raise ConfigurationError(
                f"trial {number} has two results", where="tell", cure="give one result for each trial"
            )
        seen.add(number)
    return results


def _read_result(entry: object, where: str) -> ExternalResult:
    if not isinstance(entry, dict):
        raise ConfigurationError(
            f"expected an object, found {entry!r}", where=where, cure='write {"number": 3, "value": 0.1}'
        )
    proposed = ("seed", "budget", "resume_from")  # keys that only a proposal has
    result = validated(ExternalResult, {key: value for key, value in entry.items() if key not in proposed}, where)
    if sum(entry is not None for entry in (result.value, result.failed, result.lost)) != 1:
        raise ConfigurationError(
            'expected exactly one of "value", "failed" and "lost"',
            where=where,
            cure='write one of "value": 0.1, "failed": "why" and "lost": "why"',
        )
    if result.value is None and result.uncertainty is not None:
        raise ConfigurationError(
            "a trial without a value has no uncertainty", where=where, cure='remove "uncertainty", or add "value"'
        )
    return result
