"""Runs a study on rank 0: opens it, takes its lease and runs the coordinator."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from mpi_learn.job.stop_request import StopRequest
from mpi_learn.job.time_limits import job_end_s
from mpi_learn.settings.user_files import SourceCode, fixed
from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.configuration.plan import Plan
from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.coordinator import Coordinator
from mpi_opt.coordinator.measuring import choose_size
from mpi_opt.coordinator.pruning.median_rule import MedianRule
from mpi_opt.coordinator.pruning.pruning_rule import PruningRule
from mpi_opt.coordinator.retrying_store import PAUSE_S
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.stop_condition import StopCondition
from mpi_opt.coordinator.trials.kept_models import KeptModels
from mpi_opt.core.counted import counted
from mpi_opt.core.objective import Choice
from mpi_opt.core.trial import REPORTED
from mpi_opt.errors import RanksLost, SearchFailed
from mpi_opt.messages.messages import CoordinatorLink
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreNotReadyError
from mpi_opt.store.events import CODE_CHANGED, SEARCH_RESTARTED
from mpi_opt.strategies.make_strategy import load_library
from mpi_opt.strategies.points.exhaustion import notes_on_points
from mpi_opt.study.confirmation import confirmation, confirmation_plan, has_ended, is_confirmed
from mpi_opt.study.opening.announcement import announcement, n_to_run
from mpi_opt.study.opening.lease import Lease, leased
from mpi_opt.study.opening.open_study import OpenStudy, open_study
from mpi_opt.study.progress import NotesOnly, Progress
from mpi_opt.study.reading import is_finished, read_record
from mpi_opt.study.study import Study
from mpi_opt.study.user_code import changes, code_record, use_code

UNPROTECTED = (
    "a lost rank would end this search (the same command would continue it); "
    "mpirun --with-ft ulfm of Open MPI 5.0.11 or newer protects against this"
)
UNRELIABLE = "this search may hang after the loss of a rank; protection against this needs Open MPI 5.0.11 or newer"


def run_coordinator(
    plan: Plan,
    link: CoordinatorLink,
    request: StopRequest,
    block_indices: Iterator[int],
    make_observer: Callable[[], Progress] | None,
) -> Study:
    """Runs the coordinator of a search and returns the study after it. Always dismisses the workers.

    Args:
        plan: The plan of the study.
        link: To the workers.
        request: Receives the signals that end the search.
        block_indices: The indices of the blocks, ascending, none of which was used before.
        make_observer: Builds the observer of the search; None for no output.

    Raises:
        UserError: The study, its store or an option of the strategy is invalid, or another search runs the study.
        SearchFailed: The first trials or all trials of the study have failed, no block of ranks could be formed, or all
            ranks that run trials were lost (`RanksLost`).
    """
    may_shrink = plan.objective is not None and plan.objective.continues_on_fewer_ranks
    pool = BlockPool(link, BlockMembership.of(plan.layout, block_indices, may_shrink=may_shrink))
    with ExitStack() as stack:
        stack.callback(pool.dismiss)  # first: the workers wait, also if the study cannot be opened
        progress = Progress() if make_observer is None else make_observer()
        code = plan.read_code()
        stack.enter_context(fixed(code))
        study = stack.enter_context(_opened(plan, request, progress.note))
        lease = stack.enter_context(
            leased(
                study.store,
                study.record,
                wait=plan.wait,
                note=progress.note,
                is_ending=lambda: request.signal_name is not None,
            )
        )
        if lease is None:
            progress.note(f"the search ends before its first trial: {request.reason}")
        else:
            for reason in plan.restart_reason.splitlines():
                progress.note(f"search restarted: {reason}")
                study.store.event(study.record.id, SEARCH_RESTARTED, reason)
            study.extend()
            request.job_end_s = job_end_s()
            number = _use_code(plan, study, progress, code)
            if number is not None:  # trials will run
                _use_settings(plan, study, progress)
                if plan.is_measured:
                    choose_size(plan, study.store, study.record, pool, code, request, progress.note)
            if study.record.chosen:  # before blocks are formed: then none of them measures again
                pool.choose(Choice(study.record.chosen))
            settings = _settings(plan, study, lease, progress, request, code, number)
            coordinator = Coordinator(pool, study.strategy, study.store, study.record.id, settings)
            if make_observer is not None and number is not None:
                _announce_points(plan, study, progress)
                _announce(progress, link, request.job_end_s)
                if settings.kept_models is not None:
                    progress.note(f"models of trials are in {settings.kept_models.folder.path}")
            with _frozen_objects():
                coordinator.run(keeps_blocks=plan.configuration.search.confirm is not None)
        found = Study.read(study.store, study.record.name)
        if lease is not None and found.is_finished and found.best is not None and request.signal_name is None:
            found = _confirmed(plan, found, study.store, pool, settings, progress, code)
        return found


def _opened(plan: Plan, request: StopRequest, note: Callable[[str], None]) -> OpenStudy:
    """Opens the study. A search that waits for another one also waits for its transaction: it may be frozen in one."""
    is_noted = False
    while True:
        try:
            return open_study(plan)
        except StoreNotReadyError as error:
            if not plan.wait or request.signal_name is not None:
                raise
            if not is_noted:
                note(f"the search waits for its store: {error}")
            is_noted = True
            time.sleep(PAUSE_S)


def _confirmed(
    plan: Plan,
    study: Study,
    store: Store,
    pool: BlockPool,
    settings: SearchSettings,
    progress: Progress,
    code: SourceCode,
) -> Study:
    """Runs the best points of a finished study again, unless this is not wanted or done; returns the study after that.

    The study is not finished if the new runs are not.
    """
    if is_confirmed(store, study.record):
        return study
    confirming = confirmation_plan(plan, study.record, study.trials, store)
    of_plan = confirming.configuration.search
    points = counted(len(of_plan.options["points"]), "point")
    notes = NotesOnly(progress)
    default = "and the default configuration" if of_plan.options["default"] else "without the default configuration"
    why = "" if of_plan.options["default"] else ", which violates the constraints"
    notes.note(f"confirm: {points}, the best ones {default}{why}, run {of_plan.options['times']} times")
    with (
        open_study(confirming) as again,
        leased(again.store, again.record, wait=plan.wait, note=notes.note, is_ending=lambda: False) as lease,
    ):
        assert lease is not None, "only a search that ends gets none"
        number = use_code(again.store, again.record.id, code_record(plan, code))
        own = _settings(confirming, again, lease, notes, settings.stop_condition.request, code, number)
        try:
            Coordinator(
                pool,
                again.strategy,
                again.store,
                again.record.id,
                replace(own, stop_condition=settings.stop_condition, repeats_points=True),
            ).run()
        except SearchFailed as error:
            if isinstance(error, RanksLost):
                raise
            progress.note(f"the best points could not run again: {error}")
        ended = Study.read(again.store, again.record.name)
        if plan.configuration.search.keep is not None:  # models of new runs are not those of trials
            folder = ModelFolder.of(plan.configuration.store, plan.configuration.study, plan.directory)
            folder.remove_written(again.record.unique_name, {trial.number for trial in ended.trials})
        found = confirmation(study.record, study.trials, again.record, ended.trials)
        return replace(study, is_finished=has_ended(again.store, ended.record), confirmation=found)


@contextmanager
def _frozen_objects() -> Iterator[None]:
    """Exempts the objects that exist now from garbage collection.

    A full collection visits every object, most of which belong to imported modules. During a search whose trials take
    no time, it took 10 % of the time of rank 0.

    With a framework in this process, nothing changes. `mpi_learn.models.building.frameworks` has exempted the million
    objects of its import, and ``unfreeze`` would end that: each later training would visit them.
    """
    if {"tensorflow", "torch"} & sys.modules.keys():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _use_code(plan: Plan, study: OpenStudy, progress: Progress, source: SourceCode) -> int | None:
    """Announces the search, and records its code unless no trial will run; returns the number of the code."""
    store, code = study.store, code_record(plan, source)
    before = read_record(store, study.record.name)
    n_new, differences = n_to_run(plan, before, store), changes(store, before.id, code)
    progress.begins(announcement(plan, before, n_new, store.missing(before.id), differences))
    if n_new == 0:
        return None
    if differences:
        store.event(before.id, CODE_CHANGED, "; ".join(differences))
    return use_code(store, before.id, code)


def _use_settings(plan: Plan, study: OpenStudy, progress: Progress) -> None:
    """Records the command and the settings of a search that will run trials."""
    study.store.add_command(study.record, plan.command)
    if changed := study.use_settings(plan):
        progress.note(f"the study continues with other settings: {changed}")


def _settings(
    plan: Plan,
    study: OpenStudy,
    lease: Lease,
    progress: Progress,
    request: StopRequest,
    code: SourceCode,
    code_number: int | None,
) -> SearchSettings:
    assert plan.objective is not None, "other programs run the trials of this study"
    return SearchSettings(
        plan.limits,
        n_folds=plan.configuration.folds.number,
        complete_trials=plan.new_complete_trials(),
        progress=progress,
        stop_condition=StopCondition(request, plan.configuration.search.time_limit_s, request.job_end_s),
        new_strategy=study.new_strategy,
        # in one process, the thread of the trials imports the user's code meanwhile: imports of one library in two
        # threads may find it incomplete
        load_library=partial(load_library, plan.configuration.search.strategy if plan.n_ranks > 1 else ""),
        check_lease=lease.check,
        study=study.record.unique_name,
        seed=study.record.seed,
        kept_models=_kept_models(plan, study),
        discard=plan.objective.discard,
        pruning_rule=_pruning_rule(plan, study),
        code=code,
        code_number=code_number,
        continues_on_fewer_ranks=plan.objective.continues_on_fewer_ranks,
        is_elastic=bool(plan.configuration.blocks.elastic),
        is_by_merit=plan.configuration.blocks.elastic == "merit",
        silence_s=plan.configuration.blocks.silence_s,
        died_at=lease.died_at,
        was_finished=is_finished(study.store, study.record),
        space=study.space,
    )


def _pruning_rule(plan: Plan, study: OpenStudy) -> PruningRule | None:
    configuration = plan.configuration
    figures, pruning = configuration.figures_of_merit(), configuration.search.pruning
    metric = figures.names[0] if configuration.objective == "train" else REPORTED
    if pruning == "curves":
        from mpi_opt.coordinator.pruning.curve_rule import CurveRule  # imports SciPy, which takes 0.3 s

        return CurveRule(metric, figures.sign, study.space)
    return MedianRule(metric, figures.sign) if pruning == "median" else None


def _kept_models(plan: Plan, study: OpenStudy) -> KeptModels | None:
    configuration = plan.configuration
    if (keep := configuration.search.keep) is None:
        return None
    folder = ModelFolder.of(configuration.store, configuration.study, plan.directory)
    figures, strategy = configuration.figures_of_merit(), configuration.search.strategy
    return KeptModels(keep, figures, folder, study.record.unique_name, strategy)


def _announce_points(plan: Plan, study: OpenStudy, progress: Progress) -> None:
    """Shows notes at the start: on folds, and on the points that the strategy will propose."""
    if note := plan.configuration.note_on_folds():
        progress.note(f"note: {note}")
    search = plan.configuration.search
    for of_points in notes_on_points(plan.space, search.strategy, search.options, search.trials, study.record.n_ended):
        progress.note(f"note: {of_points}")


def _announce(progress: Progress, link: CoordinatorLink, job_end_s: float | None) -> None:
    """Shows notes at the start: what the loss of a rank does, and when the batch job ends."""
    if not link.is_protected:
        progress.note(UNPROTECTED)
    elif link.unreliable_version:
        progress.note(f"{UNRELIABLE}; this one is {link.unreliable_version}")
    if job_end_s is not None:
        left_min = (job_end_s - time.time()) / 60
        progress.note(
            f"this batch job ends in {left_min:.0f} min; trials that would probably end later are not started"
        )
