"""Opens a study, new or in the store, for a search or for a workload system. Does not need MPI."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from mpi_opt.configuration.configuration import publishable
from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.sections import TransferSection
from mpi_opt.core.counted import listed, plural
from mpi_opt.core.search_space.space import Space
from mpi_opt.core.search_space.space_changes import with_beliefs
from mpi_opt.errors import ConfigurationError, StoreError
from mpi_opt.store import Store
from mpi_opt.store.connecting import may_exist
from mpi_opt.store.errors import StoreConflictError, StoreEmptyError, StoreOutdatedError, StoreUnreachableError
from mpi_opt.store.events import SEARCH_CHANGED, SPACE_EXTENDED
from mpi_opt.store.records import EarlierTrial, StudyRecord
from mpi_opt.strategies import REFITTING, Transfer, make_strategy
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.study.opening.earlier_study import read_earlier
from mpi_opt.study.opening.unchanged import Extension, check_unchanged, differences
from mpi_opt.study.user_code import remember_objective

STRATEGY_KEYS = ("strategy", "options", "pruning")
"""Keys of the section ``search:`` on which the trials depend, besides the seed."""

AWAIT_EVERY_REFIT = {"await_refit_up_to": 10**9}
"""Option of a strategy that may propose without a model of all results: every proposal waits for one."""


@dataclass(frozen=True)
class OpenStudy:
    """A study in its store, which is open for writing. A context manager that closes the store.

    Attributes:
        store: The store.
        record: The study.
        space: The space of the strategy, after the extension.
        strategy: A new strategy, to which no trial has been passed.
        new_strategy: Builds another new strategy, for a study that other processes have changed meanwhile.
        extension: An extension of the space that `extend` writes; None without one.
    """

    store: Store
    record: StudyRecord
    space: Space
    strategy: Strategy
    new_strategy: Callable[[], Strategy]
    extension: Extension | None = None

    def extend(self) -> None:
        """Writes an extended space to the store. Called by the search that owns the study, or if no search does."""
        if self.extension is not None:
            self.store.extend(self.record, self.extension.space, self.extension.configuration, self.extension.changed)
            self.store.event(self.record.id, SPACE_EXTENDED, self.extension.detail)

    def use_settings(self, plan: Plan) -> str:
        """Records the section ``search:`` of a search that will run trials.

        Returns:
            How strategy, options and pruning differ from those before; empty if they do not.
        """
        before, now = self.record.configuration["search"], publishable(plan.record)["search"]
        # the seeds of all trials follow from the seed with which the study was created
        self.store.set_search(self.record, {key: now[key] for key in now if key not in ("seed", "transfer")})
        known = [key for key in STRATEGY_KEYS if key in before]
        was, is_now = ({key: content[key] for key in known} for content in (before, now))
        detail = "; ".join(differences(was, is_now))
        if detail:
            self.store.event(self.record.id, SEARCH_CHANGED, detail)
        return detail

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


@dataclass(frozen=True)
class FoundStudy:
    """What a search would continue or create.

    Attributes:
        record: The study in its store; None if it is new.
        earlier: The trials that were, or will be, transferred to it.
        section: The section ``search.transfer`` with which it was created.
        space: The space of its strategy: after the extension, as it was first written, with the beliefs of the plan.
        extension: The extension of the space; None without one.
        unread: Why the store could not be read, although a search may open it.
    """

    record: StudyRecord | None
    earlier: Sequence[EarlierTrial]
    section: TransferSection | None
    space: Space
    extension: Extension | None = None
    unread: StoreError | None = None


def find_study(plan: Plan) -> FoundStudy:
    """Makes the checks of `open_study`, and builds the strategy, without a change of the store.

    Raises:
        ConfigurationError: The study cannot continue with `plan`, or an option of the strategy is invalid.
        StoreError: The store cannot be read, or there is no earlier study to transfer.
    """
    url = plan.configuration.store
    with ExitStack() as opened:
        try:
            store = opened.enter_context(Store.open(url, read_only=True)) if may_exist(url) else None
        except StoreEmptyError:
            store = None
        except (StoreOutdatedError, StoreUnreachableError) as error:
            build_strategy(plan)
            return FoundStudy(None, (), None, plan.space, unread=error)
        found = _found(plan, store)
    build_strategy(plan, found.earlier, found.section, space=found.space)
    return found


def _found(plan: Plan, store: Store | None) -> FoundStudy:
    configuration = plan.configuration
    record = None if store is None else store.study(configuration.study)
    if store is None or record is None:
        _check_name(configuration.study)
        return FoundStudy(None, read_earlier(configuration, plan.space), configuration.search.transfer, plan.space)
    _check_not_deleted(store, record)
    earlier = store.earlier(record.id)
    extension = check_unchanged(plan, record, store, has_earlier=bool(earlier))
    space = with_beliefs(record.space, plan.space) if extension is None else extension.space
    return FoundStudy(record, earlier, _transfer_of(record) if earlier else None, space, extension)


def _check_name(name: str) -> None:
    """Verifies that a new study has a name of one line. A block of YAML, ``study: |``, ends with a line break.

    Raises:
        ConfigurationError: The name has line breaks, tabs or other control characters.
    """
    if re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", name):
        problem = f"expected a name without line breaks, tabs and other control characters, found {name!r}"
        raise ConfigurationError(problem, where="study", cure="write the name on one line")


def _open(plan: Plan, awaits_refit: bool) -> OpenStudy:
    url = plan.configuration.store
    with ExitStack() as opened:
        store = opened.enter_context(Store.open(url)) if may_exist(url) else None
        found = _found(plan, store)
        new_strategy = partial(
            build_strategy, plan, found.earlier, found.section, awaits_refit=awaits_refit, space=found.space
        )
        strategy = new_strategy()
        if store is None:
            store = opened.enter_context(Store.open(url))
        record = found.record or _create(store, plan, found.earlier)
        if plan.definition is not None:
            remember_objective(plan.definition, record.name, store.url)
        opened.pop_all()
        return OpenStudy(store, record, found.space, strategy, new_strategy, found.extension)


def _transfer_of(record: StudyRecord) -> TransferSection:
    """The section with which a study was created; earlier versions had the key ``learn``."""
    written = record.configuration["search"]["transfer"]
    return TransferSection.model_validate({key: value for key, value in written.items() if key != "learn"})


def _check_not_deleted(store: Store, record: StudyRecord) -> None:
    """Verifies that the next trials do not have numbers of trials of which a part was deleted.

    Raises:
        StoreError: They have: the store refuses to record them.
    """
    if not (left_over := store.left_over(record.id)):
        return
    last = max((trial.number for trial in store.trials(record.id)), default=-1)
    if beyond := [number for number in left_over if number > last]:
        which = f"{plural('trial', len(beyond))} {listed(beyond)}"
        raise StoreError(
            f"rows of {which} were deleted from the table trials, but not from the other tables",
            where=f"study {record.name} in {store.url}",
            cure="restore a copy of the store, or delete the rows of attempts, folds, metrics, figures_of_merit and "
            "fold_figures_of_merit whose trial_id is not in trials",
        )


def build_strategy(
    plan: Plan,
    earlier: Sequence[EarlierTrial] = (),
    section: TransferSection | None = None,
    *,
    awaits_refit: bool = False,
    space: Space | None = None,
) -> Strategy:
    """Builds the strategy of a study for `search`, `ask` and `check`, without any trials. It survives its exceptions.

    Args:
        plan: The configuration of the study.
        earlier: The trials of an earlier study that were transferred when this study was created.
        section: The section ``search.transfer`` at that time.
        awaits_refit: As in `open_study`.
        space: The space of the study, if that of the plan is written in another way.

    Raises:
        ConfigurationError: The strategy does not exist, or an option is invalid.
    """
    wanted = plan.configuration.search
    options = plan.options | AWAIT_EVERY_REFIT if awaits_refit and wanted.strategy in REFITTING else plan.options
    transfer = None
    if earlier and section is not None:
        transfer = Transfer([trial.parameters for trial in earlier], section.best)
    return make_strategy(
        wanted.strategy,
        space or plan.space,
        seed=wanted.seed,
        options=options,
        n_figures=len(plan.configuration.figures_of_merit().names),
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
