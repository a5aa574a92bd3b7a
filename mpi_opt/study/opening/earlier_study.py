"""Transfers the trials of an earlier study to a new one: maps them to the hyperparameters that both studies have.

Only `read_earlier` reads a store. The new study keeps the mapped trials, and continues without the earlier store.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter

from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Categorical, Dimension, Integer, Parameters, Real, Space, Value
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.store.connecting import is_same, may_exist
from mpi_opt.store.records import EarlierTrial, StudyRecord
from mpi_opt.study.reading import read_record
from mpi_opt.study.recommendation import ranked

MAX_TRANSFERRED = 300
"""The largest number of trials to transfer: the best ones."""

WHERE = "search.transfer"


def read_earlier(configuration: StudyConfiguration, space: Space) -> list[EarlierTrial]:
    """The trials to transfer according to ``search.transfer``, best first; an empty list without that key.

    Raises:
        StoreError: There is no such store or study.
        ConfigurationError: The earlier study is this study, or no trial of it can be used.
    """
    section = configuration.search.transfer
    if section is None:
        return []
    url = configuration.store if section.store is None else section.store
    own_name = configuration.study if is_same(url, configuration.store) else None
    if own_name is not None and section.study == own_name:
        raise ConfigurationError(
            "a study cannot be transferred to itself", where=f"{WHERE}.study", cure="name another one"
        )
    if section.store is None and not may_exist(url):
        raise _no_other_study(url)
    with Store.open(url, read_only=True) as store:
        earlier = read_record(store, section.study or _only_study(store, own_name))
        trials = store.trials(earlier.id, ("complete",))
    return mapped(earlier, trials, space, configuration.figures_of_merit())


def _only_study(store: Store, own_name: str | None) -> str:
    """The name of the only study in `store` except `own_name`."""
    names = [study.name for study in store.studies() if study.name != own_name]
    if not names:
        raise _no_other_study(store.url)
    if len(names) > 1:
        problem = f"expected the name of a study, found several in {store.url}: {', '.join(names)}"
        raise ConfigurationError(problem, where=f"{WHERE}.study", cure=f"add, for example, study: {names[0]}")
    return names[0]


def _no_other_study(url: str) -> ConfigurationError:
    return ConfigurationError(f"there is no other study in {url}", where=WHERE, cure="name another store")


def mapped(
    earlier: StudyRecord, trials: Sequence[TrialRecord], space: Space, figures: FiguresOfMerit
) -> list[EarlierTrial]:
    """Maps the complete ones of `trials` to points of the new study's `space`; duplicate points are left out.

    If only `earlier` has several figures of merit, its trials are ranked by the one that has the same name as that of
    the new study. If there is none, they are ranked by its first one. If the new study has several, the trials of the
    Pareto front of `earlier` are the best.

    Returns:
        The best trials first, with figures of merit in the direction of the new study.

    Raises:
        ConfigurationError: The studies have no hyperparameter in common, or no trial of `earlier` is complete.
    """
    is_category = {name: isinstance(dimension, Categorical) for name, dimension in earlier.space.items()}
    common = [name for name in space if is_category.get(name) == isinstance(space[name], Categorical)]
    if not common:
        raise ConfigurationError(
            f"{earlier.name} has no hyperparameter in common with this study: {', '.join(earlier.space)}",
            where=WHERE,
            cure=f"the hyperparameters of this study are {', '.join(space)}",
        )
    found: dict[str, EarlierTrial] = {}
    for trial, cost in _ranked(earlier, trials, figures):
        parameters = _mapped(trial.parameters, space, common)
        if parameters:
            found.setdefault(repr(parameters), EarlierTrial(parameters, figures.sign * cost))
    if not found:
        raise ConfigurationError(
            f"{earlier.name} has no complete trial to transfer", where=WHERE, cure="remove the key"
        )
    return list(found.values())[:MAX_TRANSFERRED]


def _ranked(
    earlier: StudyRecord, trials: Sequence[TrialRecord], figures: FiguresOfMerit
) -> list[tuple[TrialRecord, float]]:
    """The complete trials of `earlier`, best first, each with the cost that counts in the new study."""
    theirs, wanted = earlier.figures_of_merit, figures.names[0]
    index = theirs.names.index(wanted) if wanted in theirs.names else 0
    complete = filter(attrgetter("figures_of_merit"), ranked(trials, theirs, ("complete",)))
    found = [(trial, theirs.costs(trial.figures_of_merit)[index]) for trial in complete]
    return found if figures.are_several else sorted(found, key=itemgetter(1))


def _mapped(parameters: Parameters, space: Space, common: Sequence[str]) -> Parameters:
    """The values of the hyperparameters `common`, without those that are not among the new categories."""
    return {
        name: _nearest(space[name], parameters[name])
        for name in common
        if name in parameters and (not isinstance(space[name], Categorical) or parameters[name] in space[name])
    }


def _nearest(dimension: Dimension, value: Value) -> Value:
    """The value of `dimension` that is nearest to `value`; a category is unchanged."""
    if isinstance(dimension, Integer) and value in dimension:
        return value  # not all integers of 64 bits are decoded exactly
    if isinstance(dimension, Real | Integer) and isinstance(value, int | float):
        return dimension.decode(dimension.encode(min(max(value, dimension.low), dimension.high)))
    return value
