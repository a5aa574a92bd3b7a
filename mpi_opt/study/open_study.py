"""Opens a study, new or in the store, for a search or for a workload system. Does not need MPI."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpi_opt.configuration.configuration import publishable
from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.sections import TransferSection
from mpi_opt.core.folds.fold_splits import number_of_folds
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.store.connecting import may_exist
from mpi_opt.store.errors import StoreConflictError
from mpi_opt.store.records import EarlierTrial, StudyRecord
from mpi_opt.strategies import REFITTING, Transfer, make_strategy
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.study.earlier_study import read_earlier
from mpi_opt.study.same_objective import check_same_objective, remember_objective

FIXED_KEYS = ("space", "direction", "objective", "figure_of_merit", "selection", "folds", "training", "seed")
"""Keys that cannot change during a study. The seed can if there are no folds, which depend on it."""

DEFAULTS = {"selection": "mean", "figure_of_merit": "val_loss"}
"""Values of keys that older studies do not have."""

AWAIT_EVERY_REFIT = {"await_refit_up_to": 10**9}
"""Option of a strategy that can refit its model in the background: every proposal waits for the refitted model."""


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


def open_study(plan: Plan, *, awaits_refit: bool = False) -> OpenStudy:
    """Opens the study of `plan`; creates the study and its store if necessary.

    The strategy is built first: if its options are invalid, no store and no study is created.

    With `awaits_refit` every proposal waits for the refitted model of the strategy: for a process that asks once.

    Raises:
        ConfigurationError: The study was created with another space, objective, …, or an option of the strategy is
            invalid.
        StoreError: The store cannot be opened, or there is no earlier study to transfer.
    """
    try:
        return _open(plan, awaits_refit)
    except StoreConflictError:  # another process has created the study since it was looked up
        return _open(plan, awaits_refit)


def _open(plan: Plan, awaits_refit: bool) -> OpenStudy:
    configuration = plan.configuration
    with ExitStack() as opened:
        store = Store.open(configuration.store) if may_exist(configuration.store) else None
        if store is not None:
            opened.callback(store.close)
        record = None if store is None else store.study(configuration.study)
        if store is None or record is None:
            earlier, section = read_earlier(configuration, plan.space), configuration.search.transfer
        else:
            earlier = store.earlier(record.id)
            knows_objective = _check_objective(plan, record, store)
            _check_unchanged(plan, record, store.url, has_earlier=bool(earlier), knows_objective=knows_objective)
            section = TransferSection.model_validate(record.configuration["search"]["transfer"]) if earlier else None
        new_strategy = partial(build_strategy, plan, earlier, section, awaits_refit=awaits_refit)
        strategy = new_strategy()
        if store is None:
            store = Store.open(configuration.store)
            opened.callback(store.close)
        record = record or _create(store, plan, earlier)
        if plan.definition is not None:
            remember_objective(plan.definition, record.name, store.url)
        opened.pop_all()
        return OpenStudy(store, record, strategy, new_strategy)


def build_strategy(
    plan: Plan,
    earlier: Sequence[EarlierTrial] = (),
    section: TransferSection | None = None,
    *,
    awaits_refit: bool = False,
) -> Strategy:
    """Builds the strategy of a study for `search`, `ask` and `check`, without any trials. It survives its exceptions.

    Args:
        plan: The configuration of the study.
        earlier: The trials of an earlier study that were transferred when this study was created.
        section: The section ``search.transfer`` at that time.
        awaits_refit: As in `open_study`.

    Raises:
        ConfigurationError: The strategy does not exist, or an option is invalid.
    """
    wanted, figures = plan.configuration.search, plan.configuration.figures_of_merit()
    options = plan.options | AWAIT_EVERY_REFIT if awaits_refit and wanted.strategy in REFITTING else plan.options
    transfer = None
    if earlier and section is not None:
        found = [(trial.parameters, figures.sign * trial.figure_of_merit) for trial in earlier]
        transfer = Transfer(found, section.best, section.learn)
    return make_strategy(
        wanted.strategy,
        plan.space,
        seed=wanted.seed,
        options=options,
        n_figures=len(figures.names),
        transfer=transfer,
        guarded=True,
    )


def _create(store: Store, plan: Plan, earlier: Sequence[EarlierTrial]) -> StudyRecord:
    configuration = plan.configuration
    return store.create_study(
        configuration.study,
        figures_of_merit=configuration.figures_of_merit(),
        strategy=configuration.search.strategy,
        seed=configuration.search.seed,
        configuration=publishable(plan.record),
        space=plan.space,
        earlier=earlier,
    )


def _check_objective(plan: Plan, record: StudyRecord, store: Store) -> bool:
    """Verifies that an objective of Python is that of the study; returns whether the study has recorded one.

    Raises:
        ConfigurationError: It is another objective.
    """
    codes = store.codes(record.id)
    if plan.definition is not None and not plan.resume:
        check_same_objective(plan.definition, record.name, codes, plan.configuration.store, store.url)
    return plan.definition is not None and any(code.objective is not None for code in codes)


def _check_unchanged(plan: Plan, record: StudyRecord, where: str, *, has_earlier: bool, knows_objective: bool) -> None:
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
    keys = [key for key in FIXED_KEYS if key != "objective" or not (plan.resume or knows_objective)]
    for key in keys:
        before, now = (_fixed_value(content, key) for content in contents)
        if before != now:
            raise ConfigurationError(
                f"the study {record.name!r} in {where} was created with another {key}: "
                f"{'; '.join(_differences(before, now))}",
                where="search.seed" if key == "seed" else key,
                cure="restore it, or start a new study: --study NAME",
            )


def _differences(before: object, now: object, key: str = "") -> Iterator[str]:
    """The differences, one per key: ``x.high: 2.0, now 3.0``."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*before, *now)):
            if before.get(name, ...) != now.get(name, ...):
                inner = f"{key}.{name}" if key else name
                yield from _differences(before.get(name, ...), now.get(name, ...), inner)
    else:
        was, is_now = ("nothing" if value is ... else repr(value) for value in (before, now))
        yield f"{f'{key}: ' if key else ''}{was}, now {is_now}"


def _fixed_value(content: Mapping[str, Any], key: str) -> Any:
    """The value at `key`: of ``folds`` the number, because ``stop_early`` may change; no seed without folds."""
    if key == "folds":
        return number_of_folds(content)
    if key == "seed":
        return content["search"]["seed"] if number_of_folds(content) > 1 else None
    return content.get(key, DEFAULTS.get(key))
