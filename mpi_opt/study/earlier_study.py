"""What an earlier study teaches a new one: its trials, mapped to the hyperparameters that both have.

Pure but for `read_earlier`, which reads the earlier study's store. What is found is kept with the new study, which goes
on from there even when the earlier store is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpi_opt.core.space import Categorical, Dimension, Parameters, Space, Value
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.store.records import Earlier

if TYPE_CHECKING:
    from mpi_opt.configuration.configuration import StudyConfiguration
    from mpi_opt.study.study import Study

MOST = 300
"""So many of the earlier study's trials are taken: the best half of them, the others spread over the rest."""

WHERE = "search.transfer"


def read_earlier(configuration: StudyConfiguration, space: Space) -> list[Earlier]:
    """What the configuration wants to be transferred, best first; nothing if it wants nothing.

    Raises:
        StoreError: There is no such store or study.
        ConfigurationError: The earlier study is this one, or has nothing that this one could use.
    """
    wanted = configuration.search.transfer
    if wanted is None:
        return []
    from mpi_opt.store import Store
    from mpi_opt.study.study import Study

    url = wanted.store or configuration.store
    with Store.open(url, read_only=True) as store:
        names = [study.name for study in store.studies()]
        others = [name for name in names if wanted.store is not None or name != configuration.study]
        name = wanted.study or (others[0] if len(others) == 1 else None)
        if name is None:
            problem = f"which study of {store.url}?" if others else f"there is no other study in {store.url}"
            cure = f"study: with one of {', '.join(others)}" if others else "name another store"
            raise ConfigurationError(problem, where=f"{WHERE}.study", cure=cure)
        if name == configuration.study and (wanted.store is None or _is_same(url, configuration.store)):
            raise ConfigurationError(
                "a study cannot be transferred to itself", where=f"{WHERE}.study", cure="name another one"
            )
        earlier = Study.read(store, name)
    return mapped(earlier, space, configuration.merits().sign)


def mapped(earlier: Study, space: Space, sign: float) -> list[Earlier]:
    """The complete trials of `earlier` as points of `space`, best first, each point once.

    Args:
        earlier: The study.
        space: That of the new study.
        sign: -1 if more is better in the new study, else 1.

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
        raise ConfigurationError(f"{earlier.name} has no complete trial to learn from", where=WHERE, cure="take it out")
    return _thinned(list(found.values()))


def _mapped(parameters: Parameters, space: Space, common: Sequence[str]) -> Parameters:
    values = {name: _nearest(space[name], parameters[name]) for name in common if name in parameters}
    return {name: value for name, value in values.items() if value is not _NOWHERE}


def _nearest(dimension: Dimension, value: Value) -> Any:
    """The value of `dimension` that is nearest to `value`; `_NOWHERE` for a category that it does not have."""
    if isinstance(dimension, Categorical):
        try:
            return dimension.categories[dimension.index(value)]
        except SpaceError:
            return _NOWHERE
    return dimension.decode(dimension.encode(min(max(value, dimension.low), dimension.high)))


_NOWHERE = object()


def _is_alike(one: Dimension, other: Dimension) -> bool:
    return isinstance(one, Categorical) == isinstance(other, Categorical)


def _is_same(url: str, other: str) -> bool:
    from mpi_opt.store.connecting import parsed

    return parsed(url) == parsed(other)


def _thinned(found: list[Earlier]) -> list[Earlier]:
    if len(found) <= MOST:
        return found
    rest = found[MOST // 2 :]
    step = len(rest) / (MOST - MOST // 2)
    return found[: MOST // 2] + [rest[int(index * step)] for index in range(MOST - MOST // 2)]
