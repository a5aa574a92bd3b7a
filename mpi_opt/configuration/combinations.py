"""Checks of a ``space.yaml`` that concern several of its keys, or the names of hyperparameters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from mpi_learn.settings.suggestions import suggestion
from mpi_opt.configuration.configuration import EXTERNAL, StudyConfiguration
from mpi_opt.configuration.placeholders import references
from mpi_opt.core.block_layout import MEASURED
from mpi_opt.core.figures_of_merit import RESULT_FIGURES
from mpi_opt.core.objective import NOT_MEASURED, NUMBER_OF_RANKS
from mpi_opt.core.search_space.space import Space
from mpi_opt.errors import ConfigurationError, SpaceError

SETS_EPOCHS = ("halving", "population")
"""The strategies that choose the number of epochs of each trial."""


def check_combinations(configuration: StudyConfiguration) -> None:
    """Verifies the names of hyperparameters, and the keys that depend on one another.

    Raises:
        ConfigurationError: A name is invalid, or keys do not agree; the message names the key.
    """
    _check_names(configuration.space)
    configuration.target()
    if configuration.search.keep is not None:
        _check_keep(configuration)
    if configuration.search.confirm is not None:
        _check_confirm(configuration)
    if configuration.search.pruning != "none":
        _check_pruning(configuration)
    if configuration.blocks.elastic:
        _check_elastic(configuration)
    if configuration.blocks.size == MEASURED:
        check_measurable(configuration, "blocks.size")
    if configuration.folds.stop_early:
        _check_stop_early(configuration)


def _refuse(where: str, *reasons: tuple[bool, str, str]) -> None:
    """Raises ConfigurationError for the first of `reasons` that applies: (whether it does, problem, cure)."""
    for applies, problem, cure in reasons:
        if applies:
            raise ConfigurationError(problem, where=where, cure=cure)


def _check_keep(configuration: StudyConfiguration) -> None:
    has_best = not (isinstance(configuration.search.keep, int) and configuration.figures_of_merit().are_several)
    _refuse(
        "search.keep",
        (
            configuration.objective != "train",
            "the search keeps models of trainings only",
            "remove it, and save the model in your function",
        ),
        (not has_best, "several figures of merit have no N best trials", "write best, for the Pareto front, or all"),
    )


def _check_confirm(configuration: StudyConfiguration) -> None:
    """Verifies that the best trials of a study can run again."""
    is_several, is_external = configuration.figures_of_merit().are_several, configuration.objective == EXTERNAL
    changes = configuration.search.strategy == "population"
    _refuse(
        "search.confirm",
        (is_several, "several figures of merit have no best trial", "remove it"),
        (is_external, "another program runs the trials of this study", "remove it"),
        (changes, "the hyperparameters of population change during a training", "remove it"),
    )


def _check_pruning(configuration: StudyConfiguration) -> None:
    """Verifies that trials have intermediate values that can be compared, and may be stopped."""
    figures, strategy = configuration.figures_of_merit(), configuration.search.strategy
    is_metric = isinstance(configuration.figure_of_merit, str) and ":" not in configuration.figure_of_merit
    is_curve = configuration.objective != "train" or (is_metric and figures.names[0] not in RESULT_FIGURES)
    is_reproducible = bool(configuration.search.options.get("reproducible"))
    cure = "remove it, or write pruning: none"
    _refuse(
        "search.pruning",
        (figures.are_several, "trials are compared by one figure of merit", cure),
        (strategy in SETS_EPOCHS, f"{strategy} chooses itself how long each trial is trained", cure),
        (configuration.objective == EXTERNAL, "another program runs the trials of this study", cure),
        (is_reproducible, "which trials are stopped depends on timing, and the search is reproducible", cure),
        (not is_curve, f"the figure of merit {figures.names[0]} is not a metric with a value per epoch", cure),
    )


def check_measurable(configuration: StudyConfiguration, where: str) -> None:
    """Verifies that the times of trainings can be measured on different numbers of ranks.

    Raises:
        ConfigurationError: Trials are no trainings, or have another batch size on each number of ranks.
    """
    _refuse(
        where,
        (configuration.objective != "train", NOT_MEASURED, NUMBER_OF_RANKS),
        (
            (configuration.training or {}).get("batch_size") == "auto",
            "training.batch_size: auto depends on the number of ranks, which is to be measured",
            "write training.batch_size: {total: …}, or the number of samples per rank",
        ),
    )


def _check_elastic(configuration: StudyConfiguration) -> None:
    """Verifies that the results of trials do not depend on their number of ranks, which can change."""
    is_training, folds = configuration.objective == "train", configuration.folds
    measures_time = not set(RESULT_FIGURES).isdisjoint(configuration.figures_of_merit().names)
    _refuse(
        "blocks.elastic",
        (
            is_training and not configuration.has_total_batch,
            "the steps of a training depend on its number of ranks",
            "write training.batch_size: {total: …}",
        ),
        (configuration.n_stages > 1, "the stages of a pipeline have a fixed number of ranks", "remove it"),
        (
            not is_training and folds.number > 1,
            "a function of several folds would begin again on other ranks",
            "remove it, or folds",
        ),
        (folds.stop_early, "stop_early needs folds that run one after the other", "remove it, or folds.stop_early"),
        (configuration.objective == EXTERNAL, "another program runs the trials of this study", "remove it"),
        (
            is_training and measures_time,
            "the duration of a training depends on its number of ranks",
            "remove it, or this figure of merit",
        ),
    )


def _check_stop_early(configuration: StudyConfiguration) -> None:
    """Verifies that the folds of a trial can be compared with those of another one."""
    strategy, options = configuration.search.strategy, configuration.search.options
    resumes = strategy == "population" or (strategy == "halving" and options.get("resume", True))
    is_mean = configuration.selection == "mean" and not configuration.figures_of_merit().are_several
    _refuse(
        "folds.stop_early",
        (
            resumes,
            f"trials of {strategy} resume from one another, and need all of their folds",
            "remove it, or use another strategy",
        ),
        (
            not is_mean,
            "folds are compared by the mean of one figure of merit",
            "remove it, or use one figure of merit and selection: mean",
        ),
        (
            configuration.objective == EXTERNAL,
            "the program that runs the trials of this study also runs their folds",
            "remove it",
        ),
    )


def _check_names(names: Iterable[str]) -> None:
    """Verifies that a function can receive each hyperparameter by its name."""
    for name in names:
        where = f"space.{name}"
        if not name.isidentifier():
            cure = "start with a letter; write 2x as x2, for example"
            problem = "the name of a hyperparameter must consist of letters, digits and _"
            raise SpaceError(problem, where=where, cure=cure)
        # Python normalises names in code (PEP 3131): a parameter `µ` (U+00B5) of a function is called `μ` (U+03BC)
        if (in_code := unicodedata.normalize("NFKC", name)) != name:
            problem = f"Python changes this name in code, from {_code_points(name)} to {_code_points(in_code)}"
            raise SpaceError(problem, where=where, cure=f"write {in_code}, or a name of plain letters such as mu")


def _code_points(name: str) -> str:
    """``µ (U+00B5)``: the characters of a name outside of ASCII may look like others."""
    return f"{name} ({' '.join(f'U+{ord(letter):04X}' for letter in name if not letter.isascii()) or 'ASCII'})"


def check_references(configuration: StudyConfiguration, space: Space) -> None:
    """Verifies that ``training:`` exists where it is needed, and that each ``$name`` in it can be replaced.

    Raises:
        ConfigurationError: It is missing, or a name is no hyperparameter or has no effect.
    """
    if configuration.objective == "train" and configuration.training is None:
        raise ConfigurationError(
            "this section is missing; `objective: train` needs it",
            where="training",
            cure="write a training: section, or objective: file.py:function, or objective: external",
        )
    training = configuration.training or {}
    for name in references(training):
        if name not in space:
            raise ConfigurationError(
                f"${name} is not a hyperparameter of the space", where="training", cure=suggestion(name, space)
            )
    if seeds := list(references(training.get("seed"))):
        raise ConfigurationError(
            f"expected a number, found ${seeds[0]}: all trials must have the same validation samples",
            where="training.seed",
            cure="write a number, or remove this key; each trial has a seed of its own for its weights",
        )
    strategy = configuration.search.strategy
    if strategy in SETS_EPOCHS and (epochs := list(references(training.get("epochs")))):
        raise ConfigurationError(
            f"${epochs[0]} has no effect: {strategy} chooses the epochs of each trial",
            where="training.epochs",
            cure=f"write the epochs of a full training, and remove {epochs[0]} from the space",
        )
