"""Whether a study can continue with a configuration: what must not change, and an extension of its space."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_opt.configuration.configuration import publishable
from mpi_opt.configuration.plan import Plan
from mpi_opt.core.folds.fold_splits import number_of_folds
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.search_space.space_changes import extended, means_the_same, with_defaults
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.store import Store
from mpi_opt.store.records import StudyRecord
from mpi_opt.study.user_code import check_same_objective

FIXED_KEYS = ("direction", "objective", "figure_of_merit", "selection", "folds", "seed")
"""Keys that cannot change during a study, besides space and training. Without folds, the seed can."""

DEFAULTS = {"selection": "mean", "figure_of_merit": "val_loss"}
"""Values of keys that older studies do not have."""

N_POINTS = 8
"""Trainings are compared at this number of random points, where a placeholder and a number differ."""


@dataclass(frozen=True)
class Extension:
    """A space that extends the one of a study.

    Attributes:
        space: The new space.
        configuration: The configuration of the study with the new space and training.
        changed: Number of a trial -> its hyperparameters with the defaults of new ones.
        detail: What differs, for an event.
    """

    space: Space
    configuration: dict[str, Any]
    changed: dict[int, Parameters]
    detail: str


def check_unchanged(plan: Plan, record: StudyRecord, store: Store, *, has_earlier: bool) -> Extension | None:
    """Verifies that a study can continue with `plan`; returns the extension of its space, None without one.

    Raises:
        ConfigurationError: The study was created with another space, objective, …
    """
    if plan.configuration.search.transfer is not None and not has_earlier:
        raise ConfigurationError(
            f"the study {record.name!r} was created without this key",
            where="search.transfer",
            cure="remove the key, or start a new study: --study NAME",
        )
    before, now = publishable(record.configuration), publishable(plan.record)
    is_same_space = means_the_same(record.space, plan.space)
    changed = {} if is_same_space else _check_extension(plan, record, store, before["space"], now["space"])
    for key in _fixed_keys(plan, record, store):
        _check_equal(record, store, key, *(_fixed_value(content, key) for content in (before, now)))
    trainings = before.get("training"), now.get("training")
    if trainings[0] != trainings[1]:
        # late: it imports the configuration of trainings, a fifth of the start of a search without one
        from mpi_opt.objectives.make_objective import is_same_training

        if not is_same_training(*trainings, _points(record.space, plan.space)):
            _check_equal(record, store, "training", *trainings)
    if is_same_space:
        return None
    configuration = record.configuration | {key: plan.record[key] for key in ("space", "training")}
    detail = "; ".join(differences(before["space"], now["space"]))
    return Extension(plan.space, publishable(configuration), changed, detail)


def _check_extension(plan: Plan, record: StudyRecord, store: Store, before: Any, now: Any) -> dict[int, Parameters]:
    """The trials that an extension of the space changes.

    Raises:
        ConfigurationError: The space is not to be extended, or cannot be.
    """
    transfer = f"start a new study from its best points: --study NAME, search: {{transfer: {{study: {record.name}}}}}"
    try:
        changed = extended(record.space, plan.space, store.trials(record.id))
    except SpaceError as error:
        if plan.configuration.search.extend:
            raise SpaceError(error.problem, where=error.where, cure=f"{error.cure}, or {transfer}") from None
        changed, cure = {}, f"restore it, or {transfer}"
    else:
        cure = f"restore it; write search: {{extend: true}} to continue the study with this space; or {transfer}"
    if not plan.configuration.search.extend:
        raise _other(record, store, "space", before, now, cure)
    return changed


def _fixed_keys(plan: Plan, record: StudyRecord, store: Store) -> list[str]:
    """The keys to compare. An objective of Python is compared by its definition, if the study has one.

    Raises:
        ConfigurationError: It is another objective.
    """
    if plan.definition is None:
        return [*FIXED_KEYS]
    codes = store.codes(record.id)
    if not plan.resume:
        check_same_objective(plan.definition, record.name, codes, plan.configuration.store, store.url)
    is_known = plan.resume or any(code.objective is not None for code in codes)
    return [key for key in FIXED_KEYS if key != "objective" or not is_known]


def _points(before: Space, now: Space) -> list[tuple[Parameters, Parameters]]:
    """Points of the space of the study, and the same points in the space of the plan."""
    rng = np.random.default_rng(0)
    points = [before.centre(), *(before.sample(rng) for _ in range(N_POINTS))]
    return [(point, with_defaults(point, before, now)) for point in points]


def _check_equal(record: StudyRecord, store: Store, key: str, before: object, now: object) -> None:
    if before != now:
        raise _other(record, store, key, before, now, "restore it, or start a new study: --study NAME")


def _other(record: StudyRecord, store: Store, key: str, before: object, now: object, cure: str) -> ConfigurationError:
    return ConfigurationError(
        f"the study {record.name!r} in {store.url} was created with another {key}: "
        f"{'; '.join(differences(before, now))}",
        where="search.seed" if key == "seed" else key,
        cure=cure,
    )


def differences(before: object, now: object, key: str = "") -> Iterator[str]:
    """The differences, one per key: ``x.high: 2.0, now 3.0``."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*before, *now)):
            if before.get(name, ...) != now.get(name, ...):
                inner = f"{key}.{name}" if key else name
                yield from differences(before.get(name, ...), now.get(name, ...), inner)
    else:
        was, is_now = ("nothing" if value is ... else repr(value) for value in (before, now))
        yield f"{f'{key}: ' if key else ''}{was}, now {is_now}"


def _fixed_value(content: Mapping[str, Any], key: str) -> Any:
    """The value at `key`: of ``folds`` the number, because ``stop_early`` may change; no seed without folds."""
    if key == "folds":
        return number_of_folds(content)
    if key == "seed":
        return content["search"]["seed"] if number_of_folds(content) > 1 else None
    value = content.get(key, DEFAULTS.get(key))
    if key == "objective":
        source, colon, name = str(value).rpartition(":")
        return f"{os.path.normpath(source)}:{name}" if colon else value
    return value[0] if isinstance(value, list) and len(value) == 1 else value
