"""A study goes on, whoever drives it: a search over MPI ranks, or a workload system that asks and tells.

What the store knows of a study becomes what a strategy must be told. Needs no MPI.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpi_opt.configuration.configuration import publishable
from mpi_opt.configuration.sections import read_transfer
from mpi_opt.core.cross_validation import number_of_folds
from mpi_opt.core.figures_of_merit import Merits
from mpi_opt.core.trial import FINISHED, Failed, Proposal, TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies import Transfer, make_strategy
from mpi_opt.study.earlier_study import read_earlier

if TYPE_CHECKING:
    from mpi_opt.configuration.configuration import StudyConfiguration
    from mpi_opt.core.fold_stopping import Yardsticks
    from mpi_opt.core.space import Space
    from mpi_opt.store import Store
    from mpi_opt.store.records import FoldRecord, StudyRecord
    from mpi_opt.strategies.strategy import Strategy

LASTING = ("space", "direction", "objective", "figure_of_merit", "selection", "folds", "training")
"""Keys that stay as they are as long as a study lasts."""

DEFAULTS = {"selection": "mean"}
"""What a study was begun with that does not know the key."""

OUTSIDE = "external"
"""What stands in the store as the ranks of a trial that a workload system runs."""


@dataclass(frozen=True)
class Past:
    """What was done of a study.

    Attributes:
        ended: The trials that ended, in this order.
        unfinished: Those that are queued or running, by number.
        merits: The study's figures of merit.
        folds: K.
        outside: The numbers of those that a workload system runs.
    """

    ended: list[TrialRecord]
    unfinished: list[TrialRecord]
    merits: Merits
    folds: int = 1
    outside: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.ended) + len(self.unfinished)

    def __str__(self) -> str:
        n_outside = f", {len(self.outside)} run by others" if self.outside else ""
        return f"{len(self.ended)} finished, {len(self.unfinished) - len(self.outside)} queued{n_outside}"

    @classmethod
    def read(cls, store: Store, study_id: int, merits: Merits, folds: int = 1) -> Past:
        """What the store knows."""
        unfinished = [record for record in store.trials(study_id) if record.state not in FINISHED]
        running = [record.number for record in unfinished if record.state == "running"]
        latest = {attempt.number: attempt.ranks for attempt in store.attempts(study_id, running)}
        outside = frozenset(number for number, ranks in latest.items() if ranks == OUTSIDE)
        return cls(store.told_order(study_id), unfinished, merits, folds, outside)

    def teach(self, strategy: Strategy) -> None:
        """Brings a new strategy to where the study stands."""
        told = [(proposal_of(record), self._value(record)) for record in self.ended]
        strategy.resume(told, [proposal_of(record) for record in self.unfinished])

    def measure(self, yardsticks: Yardsticks, folds: Iterable[FoldRecord]) -> None:
        """Tells `yardsticks` the folds of the complete trials."""
        by_trial: dict[int, list[FoldRecord]] = {}
        for fold in folds:
            by_trial.setdefault(fold.number, []).append(fold)
        for record in self.ended:
            if record.state == "complete":
                yardsticks.take(proposal_of(record), record.figure_of_merit, by_trial.get(record.number, []))

    def _value(self, record: TrialRecord) -> float | tuple[float, ...] | Failed:
        if record.figure_of_merit is None:
            return Failed(record.error or "failed")
        return self.merits.minimised(record, self.folds)


def proposal_of(record: TrialRecord) -> Proposal:
    """The proposal that became this trial."""
    return Proposal(record.number, record.parameters, record.budget, record.resume_from)


def opened_study(
    store: Store, configuration: StudyConfiguration, content: Mapping[str, Any], space: Space
) -> StudyRecord:
    """The study in the store: begun now, or before with the same configuration.

    Args:
        store: Open for writing.
        configuration: What the user wants.
        content: What the store keeps as the study's configuration.
        space: The search space.

    Raises:
        ConfigurationError: It was begun with another space, objective, …
        StoreError: The store cannot take it, or there is no earlier study to transfer.
    """
    record = store.study(configuration.study)
    if record is None:
        wanted, n_figures = configuration.search, len(configuration.merits().names)
        make_strategy(
            wanted.strategy, space, seed=wanted.seed, options=wanted.options, n_figures=n_figures
        )  # may refuse
        record = store.create_study(
            configuration.study,
            merits=configuration.merits(),
            strategy=configuration.search.strategy,
            seed=configuration.search.seed,
            configuration=publishable(content),
            space=space,
            earlier=read_earlier(configuration, space),
        )
    elif configuration.search.transfer is not None and not store.earlier(record.id):
        raise ConfigurationError(
            f"the study {configuration.study!r} was begun without it",
            where="search.transfer",
            cure="take it out, or begin a new study: --study NAME",
        )
    for key in LASTING:
        before, now = (_lasting(entries, key) for entries in (record.configuration, content))
        if before != now:
            raise ConfigurationError(
                f"the study {configuration.study!r} in {store.url} was begun with another {key}: "
                f"{'; '.join(_differences(before, now))}",
                where=key,
                cure="restore it, or begin a new study: --study NAME",
            )
    return record


def new_strategy(
    configuration: StudyConfiguration, space: Space, options: Mapping[str, Any], store: Store, study: StudyRecord
) -> Strategy:
    """The study's strategy, which knows of no trial of the study yet, but of what was transferred when it began.

    Args:
        configuration: What the user wants.
        space: The search space.
        options: The strategy's own.
        store: Where the study is.
        study: As it was begun.
    """
    wanted, merits, transfer = configuration.search, configuration.merits(), None
    earlier = store.earlier(study.id)
    if earlier:
        begun_with = read_transfer(study.configuration["search"]["transfer"])
        found = [(one.parameters, merits.sign * one.figure_of_merit) for one in earlier]
        transfer = Transfer(found, begun_with.best, begun_with.learn)
    return make_strategy(
        wanted.strategy, space, seed=wanted.seed, options=options, n_figures=len(merits.names), transfer=transfer
    )


def _differences(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """What differs, key by key: ``x.high: 2.0, now 3.0``."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*before, *now)):
            if before.get(name, _NOTHING) != now.get(name, _NOTHING):
                inner = f"{key}.{name}" if key else name
                yield from _differences(before.get(name, _NOTHING), now.get(name, _NOTHING), inner)
    else:
        yield f"{f'{key}: ' if key else ''}{before!r}, now {now!r}"


class _Nothing:
    """What stands where one of two has no such key."""

    def __repr__(self) -> str:
        return "nothing"


_NOTHING = _Nothing()


def _lasting(content: Mapping[str, Any], key: str) -> Any:
    """What stands at `key`; of the folds their number, since a study may begin to stop them early at any time."""
    return number_of_folds(content) if key == "folds" else content.get(key, DEFAULTS.get(key))
