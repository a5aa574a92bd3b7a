"""Makes the objective of a study, and checks it before a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mpi_learn.errors import MPILearnError
from mpi_learn.settings.paths import file_name
from mpi_learn.settings.user_code import is_function, signature_of
from mpi_learn.settings.validation import key_in_file
from mpi_learn.training.configuration import TrainingConfiguration, read_configuration
from mpi_opt.configuration.configuration import EXTERNAL, StudyConfiguration
from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.configuration.placeholders import filled, references
from mpi_opt.core.figures_of_merit import RESULT_FIGURES
from mpi_opt.core.objective import Objective
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.errors import ConfigurationError, UserError
from mpi_opt.objectives.function_objective import FunctionObjective
from mpi_opt.objectives.training_objective import TrainingObjective, in_section


def check_objective(configuration: StudyConfiguration, space: Space, directory: Path, where: str) -> None:
    """Checks the objective without a framework: files, functions, names and the shapes of data.

    Called on rank 0 before the search. Runs no user code.

    Raises:
        UserError: The objective is invalid; the message names file and key.
    """
    if configuration.objective == EXTERNAL:
        return
    if configuration.objective != "train":
        with _errors_at(key_in_file(where, "objective")):
            signature_of(configuration.objective, directory)
        return
    n_folds = configuration.folds.number
    objective = TrainingObjective(
        configuration.training or {}, configuration.figure_of_merit, directory, n_folds=n_folds
    )
    section = key_in_file(where, "training")
    _check_defaults(configuration, space, directory, section)
    with _errors_at(section):
        training = objective.configuration(space.centre(), where=section)
    if training.data is None:
        raise ConfigurationError(
            "this section is required", where=key_in_file(section, "data"), cure="say which files to train on"
        )
    _check_figure_of_merit(configuration, training, directory, where)
    _check_usage(configuration, space, directory, where)
    from mpi_learn.data.files.data_plan import count_samples

    try:
        n_training, _ = count_samples(training.data)
    except UserError as error:
        raise in_section(error, section) from None
    if configuration.folds.number > n_training:
        raise ConfigurationError(
            f"{n_training} samples cannot be split into {configuration.folds.number} folds",
            where=key_in_file(where, "folds"),
            cure=f"write folds: {min(5, n_training)}, or give more samples",
        )


def _check_figure_of_merit(
    configuration: StudyConfiguration, training: TrainingConfiguration, directory: Path, where: str
) -> None:
    key, wanted = key_in_file(where, "figure_of_merit"), configuration.figure_of_merit
    if configuration.folds.number > 1:  # every fold has validation data
        training = training.model_copy(update={"data": None})
    for name in [wanted] if isinstance(wanted, str) else wanted:
        if is_function(name):
            with _errors_at(key):
                signature_of(name, directory)
        elif name not in RESULT_FIGURES:
            training.check_metric(name, key)


def _check_usage(configuration: StudyConfiguration, space: Space, directory: Path, where: str) -> None:
    template = configuration.training or {}
    used = set(references(template))
    for dimension in space.values():
        used |= set(dimension.when or ())
    models = list(_models(configuration, space))
    for model in filter(is_function, models):
        with _errors_at(key_in_file(where, "training.model")):
            signature = signature_of(model, directory)
        used |= set(space) if signature.accepts_any else set(signature.names)
    for name in space:
        if name not in used:
            raise ConfigurationError(
                f"the hyperparameter {name} is not used",
                where=key_in_file(where, f"space.{name}"),
                cure=f"write ${name} somewhere in training:, name it in {models[0]}, or remove it from the space",
            )


def _check_defaults(configuration: StudyConfiguration, space: Space, directory: Path, section: str) -> None:
    """Raises ConfigurationError if the model's function needs a hyperparameter that does not exist in every trial."""
    own = (configuration.training or {}).get("parameters") or {}
    for model, given in _models(configuration, space).items():
        try:
            signature = signature_of(model, directory)
        except ConfigurationError:
            continue  # no function, or none that exists: this is reported later
        for argument in () if signature.is_decorated else signature.required:
            name = next(references(own[argument]), None) if argument in own else argument
            if name is not None and name in space and space.may_be_inactive(name, given):
                raise ConfigurationError(
                    f"{model} needs a value for {argument}, but the hyperparameter {name} exists only when "
                    f"{dict(space[name].when or {})}",
                    where=section,
                    cure=f"give the argument a default, which is used in the other trials: def …(…, {argument}=…)",
                )


def _models(configuration: StudyConfiguration, space: Space) -> dict[str, Parameters]:
    """The possible values of ``training.model``, each with the hyperparameter that selects it."""
    model = str((configuration.training or {}).get("model", ""))
    name = next(references(model), None)
    if name is None or name not in space:
        return {model: {}}
    return {str(value): {name: value} for value in space[name].all_values()}


@contextmanager
def _errors_at(where: str) -> Iterator[None]:
    """Adds the place `where`, a file and a key, to errors inside the ``with`` statement that do not name the file."""
    try:
        yield
    except ConfigurationError as error:
        raise error if where and where.split(": ")[0] in error.where else error.at(where) from None


def is_same_training(one: Any, other: Any, points: Iterable[tuple[Parameters, Parameters]]) -> bool:
    """Whether two sections give the same training, each at its own of two points. False if one of them is invalid."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return bool(one == other)
    try:
        return all(_read(filled(one, point)) == _read(filled(other, same)) for point, same in points)
    except (MPILearnError, KeyError):  # KeyError: a placeholder of a hyperparameter that the space does not have
        return False


def _read(content: dict[str, Any]) -> Any:
    return _short(read_configuration(content, directory=Path("/"), is_fold=True).model_dump())


def _short(value: Any) -> Any:
    """`value` with ``mse`` in place of its long form ``{name: mse}``."""
    if isinstance(value, Mapping):
        return value["name"] if list(value) == ["name"] else {key: _short(one) for key, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list | tuple) else value


def models_of(configuration: StudyConfiguration, directory: Path) -> ModelFolder:
    """The folder for the models of a study."""
    return ModelFolder.of(configuration.store, configuration.study, directory)


def make_objective(configuration: StudyConfiguration, directory: Path) -> Objective:
    """Builds the objective of a ``space.yaml``.

    Raises:
        ConfigurationError: A workload system runs the trials, not this program.
    """
    if configuration.objective == EXTERNAL:
        cure = "use mpi-opt ask and tell, or write objective: file.py:function"
        raise ConfigurationError("other programs run the trials of this study", where="objective", cure=cure)
    if configuration.objective == "train":
        checkpoints = Path.cwd() / f"{file_name(configuration.study)}.checkpoints"
        return TrainingObjective(
            configuration.training or {},
            configuration.figure_of_merit,
            directory,
            checkpoints,
            configuration.folds.number,
            models_of(configuration, directory) if configuration.search.keep is not None else None,
            is_elastic=bool(configuration.blocks.elastic),
        )
    return FunctionObjective(configuration.objective, directory, is_elastic=bool(configuration.blocks.elastic))
