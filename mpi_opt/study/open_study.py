"""Opens a study for a search or for a workload system, and replays its trials to the strategy. Does not need MPI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mpi_opt.configuration.configuration import publishable
from mpi_opt.configuration.sections import read_transfer
from mpi_opt.core.figures_of_merit import Merits
from mpi_opt.core.fold_splits import number_of_folds
from mpi_opt.core.trial import UNFINISHED, Failed, TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreConflictError
from mpi_opt.strategies import REFITTING, Transfer, make_strategy
from mpi_opt.study.earlier_study import read_earlier

if TYPE_CHECKING:
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.configuration.sections import TransferSection
    from mpi_opt.core.fold_stopping import Yardsticks
    from mpi_opt.store.records import Earlier, FoldRecord, StudyRecord
    from mpi_opt.strategies.strategy import Strategy

LASTING = ("space", "direction", "objective", "figure_of_merit", "selection", "folds", "training")
"""Keys that cannot change during a study."""

DEFAULTS = {"selection": "mean", "figure_of_merit": "val_loss"}
"""Values of keys that older studies do not have."""

EXTERNAL_RANKS = "external"
"""The value of ``attempts.ranks`` in the store for a trial that a workload system runs."""

AT_ONCE = {"await_refit_up_to": 10**9}
"""Option of a strategy that refits its model in the background: every proposal waits for the refitted model."""


@dataclass(frozen=True)
class Past:
    """The trials of a study so far.

    Attributes:
        ended: The finished trials, in the order in which they ended.
        unfinished: The trials that are queued or running, by number.
        merits: The figures of merit of the study.
        folds: The number of folds, K.
        external: The numbers of the trials that a workload system runs.
    """

    ended: list[TrialRecord]
    unfinished: list[TrialRecord]
    merits: Merits
    folds: int
    external: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.ended) + len(self.unfinished)

    def __str__(self) -> str:
        n_queued, n_external = len(self.unfinished) - len(self.external), len(self.external)
        return f"{len(self.ended)} finished, {n_queued} queued" + f", {n_external} run externally" * bool(n_external)

    @classmethod
    def read(cls, store: Store, study_id: int, merits: Merits, folds: int) -> Past:
        """Reads the trials of a study from the store."""
        unfinished = store.trials(study_id, UNFINISHED)
        running = [record.number for record in unfinished if record.state == "running"]
        latest = {attempt.number: attempt.ranks for attempt in store.attempts(study_id, running)}
        external = frozenset(number for number, ranks in latest.items() if ranks == EXTERNAL_RANKS)
        ended = store.ended_trials(study_id)
        numbers = {record.number for record in ended}  # a workload system may have reported one between the two queries
        unfinished = [record for record in unfinished if record.number not in numbers]
        return cls(ended, unfinished, merits, folds, external - numbers)

    def replay(self, strategy: Strategy) -> None:
        """Passes all trials to a new strategy."""
        ended = [(record.proposal, self._value(record)) for record in self.ended]
        strategy.resume(ended, [record.proposal for record in self.unfinished])

    def measure(self, yardsticks: Yardsticks, folds: Iterable[FoldRecord]) -> None:
        """Passes the folds of the complete trials to `yardsticks`."""
        by_trial: dict[int, list[FoldRecord]] = {}
        for fold in folds:
            by_trial.setdefault(fold.number, []).append(fold)
        for record in self.ended:
            if record.state == "complete" and record.figure_of_merit is not None:
                yardsticks.take(record.proposal, record.figure_of_merit, by_trial.get(record.number, []))

    def _value(self, record: TrialRecord) -> float | tuple[float, ...] | Failed:
        if record.figure_of_merit is None:
            return Failed(record.error or "failed")
        return self.merits.minimised(record, self.folds)


@dataclass(frozen=True)
class OpenStudy:
    """A study in its store, which is open for writing. A context manager that closes the store.

    Attributes:
        store: The store.
        record: The study.
        strategy: A new strategy, to which no trial has been passed.
        new_strategy: Builds another new strategy, for a study that other processes have changed meanwhile.
    """

    store: Store
    record: StudyRecord
    strategy: Strategy
    new_strategy: Callable[[], Strategy]

    def __enter__(self) -> OpenStudy:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()


def open_study(plan: Plan, *, at_once: bool = False) -> OpenStudy:
    """Opens the study of `plan`; creates the study and its store if necessary.

    The strategy is built first: if its options are invalid, no store and no study is created.

    Args:
        plan: The configuration of the study.
        at_once: Whether every proposal waits for the refitted model of the strategy. For a process that asks once.

    Raises:
        ConfigurationError: The study was created with another space, objective, …, or an option of the strategy is
            invalid.
        StoreError: The store cannot be opened, or there is no earlier study to transfer.
    """
    try:
        return _opened(plan, at_once)
    except StoreConflictError:  # another process has created the study since it was looked up
        return _opened(plan, at_once)


def _opened(plan: Plan, at_once: bool) -> OpenStudy:
    configuration = plan.configuration
    with ExitStack() as opened:
        store = Store.open_existing(configuration.store)
        if store is not None:
            opened.callback(store.close)
        record = None if store is None else store.study(configuration.study)
        if store is None or record is None:
            earlier, section = read_earlier(configuration, plan.space), configuration.search.transfer
        else:
            earlier = store.earlier(record.id)
            _check_unchanged(plan, record, store.url, bool(earlier))
            section = read_transfer(record.configuration["search"]["transfer"]) if earlier else None
        new_strategy = partial(build_strategy, plan, earlier, section, at_once=at_once)
        strategy = new_strategy()
        if store is None:
            store = Store.open(configuration.store)
            opened.callback(store.close)
        record = record or _created(store, plan, earlier)
        opened.pop_all()
        return OpenStudy(store, record, strategy, new_strategy)


def build_strategy(
    plan: Plan, earlier: Sequence[Earlier] = (), section: TransferSection | None = None, *, at_once: bool = False
) -> Strategy:
    """Builds the strategy of a study for `search`, `ask` and `check`, without any trials.

    Args:
        plan: The configuration of the study.
        earlier: The trials of an earlier study that were transferred when this study was created.
        section: The section ``search.transfer`` at that time.
        at_once: Whether every proposal waits for the refitted model of the strategy.

    Raises:
        ConfigurationError: The strategy does not exist, or an option is invalid.
    """
    wanted, merits = plan.configuration.search, plan.configuration.merits()
    options = AT_ONCE | plan.options if at_once and wanted.strategy in REFITTING else plan.options
    transfer = None
    if earlier and section is not None:
        found = [(one.parameters, merits.sign * one.figure_of_merit) for one in earlier]
        transfer = Transfer(found, section.best, section.learn)
    return make_strategy(
        wanted.strategy, plan.space, seed=wanted.seed, options=options, n_figures=len(merits.names), transfer=transfer
    )


def _created(store: Store, plan: Plan, earlier: Sequence[Earlier]) -> StudyRecord:
    configuration = plan.configuration
    return store.create_study(
        configuration.study,
        merits=configuration.merits(),
        strategy=configuration.search.strategy,
        seed=configuration.search.seed,
        configuration=publishable(plan.record),
        space=plan.space,
        earlier=earlier,
    )


def _check_unchanged(plan: Plan, record: StudyRecord, where: str, has_earlier: bool) -> None:
    """Verifies that a study can continue with `plan`.

    Raises:
        ConfigurationError: The study was created with another space, objective, …
    """
    if plan.configuration.search.transfer is not None and not has_earlier:
        raise ConfigurationError(
            f"the study {record.name!r} was created without this key",
            where="search.transfer",
            cure="remove the key, or start a new study: --study NAME",
        )
    contents = publishable(record.configuration), publishable(plan.record)
    for key in LASTING:
        before, now = (_lasting(content, key) for content in contents)
        if before != now:
            raise ConfigurationError(
                f"the study {record.name!r} in {where} was created with another {key}: "
                f"{'; '.join(_differences(before, now))}",
                where=key,
                cure="restore it, or start a new study: --study NAME",
            )


def _differences(before: object, now: object, key: str = "") -> Iterator[str]:
    """The differences, one per key: ``x.high: 2.0, now 3.0``."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*before, *now)):
            if before.get(name, _NOTHING) != now.get(name, _NOTHING):
                inner = f"{key}.{name}" if key else name
                yield from _differences(before.get(name, _NOTHING), now.get(name, _NOTHING), inner)
    else:
        yield f"{f'{key}: ' if key else ''}{before!r}, now {now!r}"


class _Nothing:
    """The value of a missing key."""

    def __repr__(self) -> str:
        return "nothing"


_NOTHING = _Nothing()


def _lasting(content: Mapping[str, Any], key: str) -> Any:
    """The value at `key`; of ``folds`` only the number, because ``stop_early`` may change during a study."""
    return number_of_folds(content) if key == "folds" else content.get(key, DEFAULTS.get(key))
