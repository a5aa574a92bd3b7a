"""Reads a ``space.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpi_learn.settings.validation import Section, validated
from mpi_learn.settings.yaml_file import read_yaml
from mpi_opt.configuration.combinations import check_combinations, check_references
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.sections import BlocksSection, SearchSection, TrialSection
from mpi_opt.errors import ConfigurationError


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
        check_references(configuration, configuration.search_space())
    except ConfigurationError as error:
        raise error.at(where) from None
    return configuration


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


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    """Sets the value of a dotted key. A section of the caller's content is copied before it changes."""
    first, _, rest = key.partition(".")
    if not rest:
        values[first] = value
        return
    section = values.get(first)
    values[first] = dict(section) if isinstance(section, Mapping) else {}
    _set(values[first], rest, value)
