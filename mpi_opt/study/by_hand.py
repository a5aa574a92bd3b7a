"""Studies, results and trials that a user gives from Python, instead of a ``space.yaml`` and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpi_learn.job.typed_command import typed_command
from mpi_learn.settings.validation import validated
from mpi_opt.configuration.configuration import EXTERNAL, SETS_EPOCHS, StudyConfiguration, check_combinations
from mpi_opt.configuration.plan import Plan
from mpi_opt.core.dimension import python_value
from mpi_opt.core.space import Dimension, Space, Value
from mpi_opt.core.trial import Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.store.records import Start, StudyRecord
from mpi_opt.study import ask_tell
from mpi_opt.study.external_results import ExternalResult, read_results
from mpi_opt.study.open_study import open_study
from mpi_opt.study.past_trials import EXTERNAL_BLOCK, EXTERNAL_RANKS
from mpi_opt.study.reading import read_record


def create_study(content: Mapping[str, Any], space: Mapping[str, Dimension]) -> None:
    """Creates a study whose trials other programs run, unless the store has it.

    Args:
        content: The keys of a ``space.yaml`` without ``space`` and ``objective``.
        space: The search space.

    Raises:
        UserError: A key is invalid, or the study in the store has another space, direction, …
    """
    entries = {name: dimension.entry() for name, dimension in Space(space).items()}
    whole = {**content, "objective": EXTERNAL, "space": entries}
    configuration = validated(StudyConfiguration, whole, "Study.create()")
    check_combinations(configuration)
    ask_tell.check_shared(configuration.store)
    open_study(Plan(configuration, Path.cwd())).store.close()


def plan_of(record: StudyRecord, url: str) -> Plan:
    """The plan of a study in the store at `url`, from its configuration there."""
    content = {**record.configuration, "store": url}
    directory = content.pop("directory", None)
    configuration = validated(StudyConfiguration, content, f"study {record.name}")
    return Plan(configuration, Path.cwd() if directory is None else Path(directory), command=typed_command())


def read_result(number: int, result: Mapping[str, Any]) -> list[ExternalResult]:
    """The result of a trial, for `ask_tell.tell`; numbers may be those of NumPy.

    Raises:
        ConfigurationError: A value is not a finite number, or not exactly one of value, failed and lost is given.
    """
    known = {key: _plain(value) for key, value in result.items() if value is not None}
    return read_results({"number": _plain(number)} | known)


def add_trial(url: str, name: str, parameters: Mapping[str, Value], value: Any, uncertainty: Any) -> int:
    """Adds a complete trial that was run elsewhere; returns its number.

    Raises:
        UserError: As for `Study.add_trial`.
    """
    (checked,) = read_result(0, {"value": value, "uncertainty": uncertainty})
    number = ask_tell.retried(lambda: _start(url, name, parameters, checked))
    ask_tell.tell(url, name, [checked.model_copy(update={"number": number})])
    return number


def _start(url: str, name: str, parameters: Mapping[str, Value], result: ExternalResult) -> int:
    """Records a new trial as running in a workload system; returns its number."""
    with Store.open(url) as store:
        study = read_record(store, name)
        _check_accepts(study)
        point = {key: python_value(value) for key, value in parameters.items()}
        study.space.check(point)
        exact = {key: study.space[key].exact(value) for key, value in study.space.active(point).items()}
        ask_tell.check_figures(result, study.figures_of_merit)  # before the trial is recorded
        proposal = Proposal(study.n_trials, exact)
        store.start(study.id, [Start(proposal, 1, EXTERNAL_BLOCK, EXTERNAL_RANKS, hosts="")])
        return proposal.number


def _check_accepts(study: StudyRecord) -> None:
    """Verifies that the strategy of a study can learn from trials that it has not proposed.

    Raises:
        ConfigurationError: It cannot.
    """
    options = study.configuration.get("search", {}).get("options", {})
    if study.strategy in SETS_EPOCHS or options.get("reproducible"):
        which = study.strategy if study.strategy in SETS_EPOCHS else "reproducible: true"
        raise ConfigurationError(
            f"{which} learns from its own trials only",
            where=f"study {study.name}",
            cure="start a study with another strategy, such as bayesian",
        )


def _plain(value: Any) -> Any:
    """`value` with the numbers and arrays of NumPy as those of Python."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
