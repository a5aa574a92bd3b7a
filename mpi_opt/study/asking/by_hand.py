"""Studies, results and trials that a user gives from Python, and the results that Python functions return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mpi_learn.job.started_by import typed_command
from mpi_learn.settings.validation import validated
from mpi_opt.configuration.combinations import SETS_EPOCHS, check_combinations
from mpi_opt.configuration.configuration import EXTERNAL, StudyConfiguration
from mpi_opt.configuration.plan import Plan
from mpi_opt.core.counted import listed, plural
from mpi_opt.core.figures import real_number
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.folds.fold_splits import number_of_folds
from mpi_opt.core.search_space.space import Dimension, Parameters, Space, Value
from mpi_opt.core.search_space.values import python_value
from mpi_opt.core.trial import Proposal, TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.store.records import CHOSEN, StudyRecord
from mpi_opt.study.asking import ask_tell
from mpi_opt.study.asking.external_results import ExternalResult
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


@dataclass(frozen=True)
class ResultReader:
    """Reads the arguments of a call.

    Attributes:
        call: ``Study.tell()`` or ``Study.add_trial()``, for messages.
        figures: The figures of merit of the study.
    """

    call: str
    figures: FiguresOfMerit

    def read(self, number: Any, result: Mapping[str, Any]) -> ExternalResult:
        """The result of a trial: exactly one of value, failed and lost; uncertainty beside a value.

        Raises:
            ConfigurationError: An argument is of another type, a number is not finite, or arguments exclude each other.
        """
        number = self.whole_number("number", number)
        given = {key: value for key, value in result.items() if value is not None}
        stated = [key for key in ("value", "failed", "lost") if key in given]
        if len(stated) != 1:
            ways = f'study.tell({number}, {self._example}), study.tell({number}, failed="why")'
            self._refuse(
                f"expected exactly one of value, failed and lost; found {' and '.join(stated) or 'none of them'}",
                f'call {ways} or study.tell({number}, lost="why")' if self._tells else "give the value",
            )
        if "value" not in given and "uncertainty" in given:
            self._refuse("uncertainty: a trial without a value has none", "leave it out, or give a value")
        read: dict[str, Any] = {key: self._figures(key, given[key]) for key in ("value", "uncertainty") if key in given}
        read |= {key: self._reason(key, given[key]) for key in ("failed", "lost") if key in given}
        return ExternalResult(number=number, **read)

    def whole_number(self, name: str, value: Any) -> int:
        """An argument that is a whole number of 0 or more, also of NumPy.

        Raises:
            ConfigurationError: It is not.
        """
        plain = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(plain, int) or isinstance(plain, bool) or plain < 0:
            self._refuse(
                f"{name}: expected a whole number of 0 or more, found {value!r}",
                "give the number of the trial, such as trial.number" if name == "number" else f"give {name}=0",
            )
        return int(plain)

    @property
    def _tells(self) -> bool:
        return "tell" in self.call

    @property
    def _example(self) -> str:
        names = self.figures.names
        return "0.25" if len(names) == 1 else f"{{{', '.join(f'{name!r}: 0.25' for name in names)}}}"

    def _figures(self, key: str, value: Any) -> float | dict[str, float]:
        names = self.figures.names
        if len(names) == 1:
            return self._number(key, value)
        plain = value.tolist() if hasattr(value, "tolist") else value
        fits = isinstance(plain, list | tuple) and len(plain) == len(names)
        if isinstance(plain, Mapping):
            fits = set(plain) == set(names)
            plain = [plain.get(name) for name in names]
        if not fits:
            wanted = f"{len(names)} numbers, for {' and '.join(names)}"
            self._refuse(f"{key}: expected {wanted}; found {value!r}", f"give a list, or {self._example}")
        return {name: self._number(f"{key} of {name}", one) for name, one in zip(names, plain, strict=True)}

    def _number(self, key: str, value: Any) -> float:
        try:
            number = real_number(value)
        except TypeError:
            self._refuse(f"{key}: expected one number, found {value!r}", "give, for example, 0.25")
        is_spread = key.startswith("uncertainty")
        if not math.isfinite(number) or (is_spread and number < 0):
            wanted = "a finite number of 0 or more" if is_spread else "a finite number"
            reason = 'if the trial has no value, give the reason: failed="the loss is nan"'
            cure = "leave it out" if is_spread else reason if self._tells else "leave the trial out"
            self._refuse(f"{key}: expected {wanted}, found {value!r}", cure)
        return number

    def _reason(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            self._refuse(f"{key}: expected the reason as a text, found {value!r}", f'give, for example, {key}="why"')
        return str(value)

    def _refuse(self, problem: str, cure: str) -> NoReturn:
        raise ConfigurationError(problem, where=self.call, cure=cure)
