"""Studies, results and trials that a user gives from Python, instead of a ``space.yaml`` and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpi_learn.job.launchers import typed_command
from mpi_learn.settings.validation import validated
from mpi_opt.configuration.configuration import EXTERNAL, SETS_EPOCHS, StudyConfiguration, check_combinations
from mpi_opt.configuration.plan import Plan
from mpi_opt.core.counted import listed, plural
from mpi_opt.core.folds.fold_splits import number_of_folds
from mpi_opt.core.search_space.dimension import python_value
from mpi_opt.core.search_space.space import Dimension, Parameters, Space, Value
from mpi_opt.core.trial import Proposal, TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.store.records import CHOSEN, StudyRecord
from mpi_opt.study.asking import ask_tell
from mpi_opt.study.asking.external_results import ExternalResult
from mpi_opt.study.asking.result_in_python import ResultReader
from mpi_opt.study.opening.open_study import open_study
from mpi_opt.study.reading import EXTERNAL_RANKS, read_record


def create_study(content: Mapping[str, Any], space: Mapping[str, Dimension]) -> None:
    """Creates a study whose trials other programs run, unless the store has it.

    Args:
        content: The keys of a ``space.yaml`` without ``space`` and ``objective``.
        space: The search space.

    Raises:
        UserError: As for `Study.create`.
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
    directory, _ = content.pop("directory", None), content.pop(CHOSEN, None)
    if transfer := content.get("search", {}).get("transfer"):  # earlier versions had the key `learn`
        kept = {key: value for key, value in transfer.items() if key != "learn"}
        content["search"] = content["search"] | {"transfer": kept}
    configuration = validated(StudyConfiguration, content, f"study {record.name}")
    return Plan(configuration, Path.cwd() if directory is None else Path(directory), command=typed_command())


def add_trial(study: StudyRecord, url: str, parameters: Mapping[str, Value], value: Any, uncertainty: Any) -> int:
    """Adds a complete trial that was run elsewhere, unless the study has it; returns its number.

    Raises:
        UserError: As for `Study.add_trial`.
    """
    reader = ResultReader("Study.add_trial()", study.figures_of_merit)
    checked = reader.read(0, {"value": value, "uncertainty": uncertainty})
    return ask_tell.retried(lambda: _add(url, study.name, parameters, checked))


def _add(url: str, name: str, parameters: Mapping[str, Value], result: ExternalResult) -> int:
    """Records a new trial with its result in one transaction, unless the study has it; returns its number."""
    with Store.open(url) as store:
        study = read_record(store, name)
        _check_accepts(study)
        if not isinstance(parameters, Mapping):
            problem = f"parameters: expected a mapping from names to values, found {parameters!r}"
            raise ConfigurationError(problem, where="Study.add_trial()", cure='give, for example, {"x": 0.5}')
        point = {key: python_value(value) for key, value in parameters.items()}
        study.space.check(point)
        exact = {key: study.space[key].exact(value) for key, value in study.space.active(point).items()}
        if (known := _same_trial(store, study, exact, result)) is not None:  # a script that runs again
            return known
        proposal = Proposal(_next_number(store, study), exact)
        n_folds = number_of_folds(study.configuration)
        running = TrialRecord(proposal.number, "running", exact, attempts=1)
        numbered = result.model_copy(update={"number": proposal.number})
        ended = ask_tell.finish(running, numbered, study.figures_of_merit, n_folds)
        store.record(study.id, [ended], [ended])
        return proposal.number


def _next_number(store: Store, study: StudyRecord) -> int:
    """The number after the largest one: rows of trials may have been deleted."""
    return max((trial.number for trial in store.trials(study.id)), default=-1) + 1


def _same_trial(store: Store, study: StudyRecord, point: Parameters, result: ExternalResult) -> int | None:
    """The number of a complete trial that no search has run, with this point and result; None if there is none."""
    expected = ask_tell.finish(TrialRecord(0, "running", point), result, study.figures_of_merit, 1).result
    figures = expected.figures_of_merit
    same = [
        trial.number
        for trial in store.trials(study.id, ("complete",))
        if _is_same(trial.parameters, point)
        and (trial.figures_of_merit, trial.uncertainties) == (figures, figures.uncertainties)
    ]
    external = {one.number for one in store.attempts(study.id, same) if one.ranks == EXTERNAL_RANKS} if same else set()
    return next((number for number in same if number in external), None)


def _is_same(one: Parameters, other: Parameters) -> bool:
    """Whether two points are the same; the categories 1, 1.0 and True are different ones."""
    return one == other and all(type(value) is type(other[name]) for name, value in one.items())


def note_on_running(numbers: list[int]) -> str:
    """A sentence about running trials that this program has not asked for, for example before it was interrupted."""
    are = "is" if len(numbers) == 1 else "are"
    which = f"{plural('trial', len(numbers))} {listed(numbers)} {are} still running"
    cure = f'if no program runs {"it" if len(numbers) == 1 else "them"} any more: study.tell({numbers[0]}, lost="why")'
    return f"there are no more trials now, but {which}; {cure}, and then study.ask() returns it again"


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
