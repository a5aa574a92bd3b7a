"""An earlier study's results for a new one: its trials, mapped to the hyperparameters that both have.

Pure except for `read_earlier`, which reads the earlier study's store. The new study keeps what is found, and continues
with it even if the earlier store no longer exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpi_opt.core.space import Categorical, Dimension, Parameters, Space, Value
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.store import Store
from mpi_opt.store.connecting import is_same, may_exist
from mpi_opt.store.records import Earlier
from mpi_opt.study.study import Study

if TYPE_CHECKING:
    from mpi_opt.configuration.configuration import StudyConfiguration

MOST = 300
"""At most this many of the earlier study's trials are taken: half of them the best, half spread over the rest."""

WHERE = "search.transfer"


def read_earlier(configuration: StudyConfiguration, space: Space) -> list[Earlier]:
    """The trials that ``search.transfer`` asks for, best first; none without that key.

    Raises:
        StoreError: There is no such store or study.
        ConfigurationError: The earlier study is this one, or has no trial that this one can use.
    """
    wanted = configuration.search.transfer
    if wanted is None:
        return []
    url = configuration.store if wanted.store is None else wanted.store
    is_own = is_same(url, configuration.store)
    if is_own and wanted.study == configuration.study:
        raise ConfigurationError(
            "a study cannot be transferred to itself", where=f"{WHERE}.study", cure="name another one"
        )
    if wanted.store is None and not may_exist(url):
        raise _undecided(f"there is no other study in {url}", ())
    with Store.open(url, read_only=True) as store:
        names = [study.name for study in store.studies()]
        others = [name for name in names if not is_own or name != configuration.study]
        if wanted.study is None and len(others) != 1:
            raise _undecided(f"which study of {store.url}?" if others else f"no other study in {store.url}", others)
        earlier = Study.read(store, wanted.study or others[0])
    return mapped(earlier, space, configuration.merits().sign)


def _undecided(problem: str, others: Sequence[str]) -> ConfigurationError:
    cure = f"study: with one of {', '.join(others)}" if others else "name another store"
    return ConfigurationError(problem, where=f"{WHERE}.study", cure=cure)


def mapped(earlier: Study, space: Space, sign: float) -> list[Earlier]:
    """The complete trials of `earlier` as points of `space`, best first, each point once.

    Args:
        earlier: The earlier study.
        space: The new study's space.
        sign: -1 if the new study maximizes, else 1.

    Returns:
        With figures of merit in the new study's direction.

    Raises:
        ConfigurationError: The two have no hyperparameter in common, or no trial of `earlier` is complete.
    """
    common = [name for name in space if name in earlier.space and _is_alike(space[name], earlier.space[name])]
    if not common:
        raise ConfigurationError(
            f"{earlier.name} has no hyperparameter in common with this study: {', '.join(earlier.space)}",
            where=WHERE,
            cure=f"those of this study are {', '.join(space)}",
        )
    found: dict[str, Earlier] = {}
    for trial in earlier.ranked(("complete",)):
        parameters = _mapped(trial.parameters, space, common)
        value = sign * earlier.merits.sign * trial.figure_of_merit
        if parameters:
            found.setdefault(repr(parameters), Earlier(parameters, value))
    if not found:
        raise ConfigurationError(
            f"{earlier.name} has no complete trial to learn from", where=WHERE, cure="take the key out"
        )
    return _thinned(list(found.values()))


def _mapped(parameters: Parameters, space: Space, common: Sequence[str]) -> Parameters:
    values = {name: _nearest(space[name], parameters[name]) for name in common if name in parameters}
    return {name: value for name, value in values.items() if value is not _NOWHERE}


def _nearest(dimension: Dimension, value: Value) -> Any:
    """The value of `dimension` nearest to `value`; `_NOWHERE` for a category that it does not have."""
    if isinstance(dimension, Categorical):
        try:
            return dimension.categories[dimension.index(value)]
        except SpaceError:
            return _NOWHERE
    return dimension.decode(dimension.encode(min(max(value, dimension.low), dimension.high)))


_NOWHERE = object()


def _is_alike(one: Dimension, other: Dimension) -> bool:
    return isinstance(one, Categorical) == isinstance(other, Categorical)


def _thinned(found: list[Earlier]) -> list[Earlier]:
    if len(found) <= MOST:
        return found
    rest = found[MOST // 2 :]
    step = len(rest) / (MOST - MOST // 2)
    return found[: MOST // 2] + [rest[int(index * step)] for index in range(MOST - MOST // 2)]
