"""The commands around running a search: ``search`` and ``check``."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mpi_learn.cli.program_options import HostfileOption, RestartsOption
from mpi_learn.cli.run_command import print_if_possible
from mpi_learn.job.exit_status import FINISHED
from mpi_learn.job.launch import Launch, check_launch_options, without_launch_options
from mpi_learn.job.restarts import Restarts
from mpi_learn.job.started_by import check_allocation, check_not_launched, is_launched, restart_reason, typed_command
from mpi_learn.job.stop_request import StopRequest
from mpi_opt.cli.commands.plan_command import show_plan
from mpi_opt.cli.rank_logs import make_log_folder
from mpi_opt.cli.search_progress import SearchProgress
from mpi_opt.cli.store_options import Changes, SpaceFile, overriding
from mpi_opt.core.counted import counted
from mpi_opt.errors import ConfigurationError, MPILearnError, UserError, without_passwords

if TYPE_CHECKING:
    from mpi_opt.configuration.configuration import StudyConfiguration
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.study.progress import Progress
    from mpi_opt.views.following import Notices
    from mpi_opt.views.text.progress_counts import ProgressCounts
    from mpi_opt.views.text.progress_display import PlainProgress


@overriding
def search(
    context: typer.Context,
    space: SpaceFile,
    changes: Changes,
    n: Annotated[int | None, typer.Option("-n", help="Start mpirun with this number of ranks.", min=1)] = None,
    report: Annotated[bool, typer.Option("--report", help="Write the study's HTML report at the end.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another search that runs the study.")] = False,
    restarts: RestartsOption = None,
    hostfile: HostfileOption = None,
    log_json: Annotated[
        Path | None, typer.Option("--log-json", help="Also append each event as a JSON object to this file.")
    ] = None,
) -> Any:
    """Run a study, or continue it: under mpirun on all its ranks, otherwise in one process."""
    if n is not None:
        check_not_launched()  # on rank 0, so that the other ranks receive the exit status
        progress = SearchProgress(space, changes)
        again = None
        if restarts is not None:
            from mpi_opt.core.objective import CHECKPOINT_S

            again = Restarts(
                restarts,
                progress.work_done,
                progress.is_alive,
                progress.notify_given_up,
                progress.n_restarts,
                progresses_after_s=CHECKPOINT_S,  # trials that take hours have a checkpoint by then
            )
        return Launch(["mpi_opt", *without_launch_options(context.obj)], n, hostfile, again)
    check_launch_options(restarts, hostfile)
    check_allocation()
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.objectives.make_objective import make_objective

    configuration = _read(space, changes)
    if report:
        _check_remains(configuration.store, "--report", "the report is written")
    for key in ("notify", "metrics_file"):
        if getattr(configuration.search, key) is not None:
            _check_remains(configuration.store, f"search.{key}", "its status is read")
    n_ranks = _world_size()
    if n_ranks > 1:
        make_log_folder(configuration.file_name)
    directory = space.resolve().parent
    objective = make_objective(configuration, directory)
    reason = restart_reason() or ""
    wait = wait or bool(reason)  # ranks of the job before may not have ended yet
    return Plan(
        configuration,
        directory,
        objective,
        n_ranks,
        report,
        wait,
        command=typed_command(),
        restart_reason=reason,
        log=log_json,
    )


@overriding
def check(
    space: SpaceFile,
    changes: Changes,
    n: Annotated[int | None, typer.Option("-n", help="Also print the role of each of N ranks.", min=1)] = None,
) -> None:
    """Validate file, model, data and space, and print what would run. Needs no MPI."""
    from mpi_learn.mpi.library import use_one_process

    use_one_process()
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.store.errors import StoreOutdatedError
    from mpi_opt.strategies.points.exhaustion import notes_on_points
    from mpi_opt.study.opening.open_study import find_study

    configuration = _read(space, changes)
    plan = Plan(configuration, space.resolve().parent, n_ranks=n or 1)
    # The store first: a conflict with the study is found in milliseconds, and building the model takes seconds.
    found = find_study(plan)
    _print_study(configuration)
    if (error := found.unread) is not None:
        then = "; search migrates it" if isinstance(error, StoreOutdatedError) else ""
        print(f"note       the file was not compared with the study in {error.where}: {error.problem}{then}")
    n_ended = 0 if found.record is None else found.record.n_ended
    if found.record is not None:
        print(f"exists     {n_ended} of {counted(configuration.search.trials, 'trial')} have ended")
    if found.earlier and found.section is not None:
        n_earlier = counted(len(found.earlier), "trial")
        print(f"transfer   {n_earlier} of an earlier study, the best {found.section.best} first")
    for name, dimension in plan.space.items():
        print(f"  {name:<20} {dimension}")
    search = configuration.search
    for note in notes_on_points(plan.space, search.strategy, search.options, search.trials, n_ended):
        print(f"note       {note}")
    try:
        _check_one_batch(configuration, plan.directory)
    except UserError as error:
        raise error.at(str(space)) from error
    if n is not None:
        show_plan(configuration, n)
    print(f"{space}: valid")


def run_search(plan: Plan, request: StopRequest) -> int:
    """Runs a plan on rank 0, or in one process; shows progress and the table of the best trials.

    Returns:
        The exit status.
    """
    from mpi_opt.api import run_study
    from mpi_opt.messages.links import world_communicator
    from mpi_opt.views.following import following
    from mpi_opt.views.text.progress_counts import ProgressCounts
    from mpi_opt.views.text.search_summary import end_in_short, search_summary
    from mpi_opt.views.trackers import JsonLog

    configuration = plan.configuration
    counts = ProgressCounts.of(configuration)
    with ExitStack() as shown:
        notices: Notices | None = None

        def make_observer() -> Progress:
            nonlocal notices
            observer: Progress
            observer = display = shown.enter_context(closing(_progress(configuration, counts)))
            if plan.log is not None:
                observer = shown.enter_context(closing(JsonLog(plan.log, display)))
            notices = shown.enter_context(following(configuration, plan.restart_reason, observer.note))
            return observer

        try:
            study = run_study(plan, world_communicator(), make_observer, share_study=False, request=request)
        except Exception as error:
            # a search that is started again at once has not failed for the user
            is_temporary = isinstance(error, MPILearnError) and error.is_temporary
            if notices is not None and not (is_temporary and restart_reason() is not None):
                notices.send("failed", str(error) or type(error).__name__)
            raise
        assert study is not None, "rank 0 has the study"
        counts.take_result(study)
        if notices is not None:
            notices.send("finished" if study.is_finished else "stopped", end_in_short(study))
    print_if_possible(search_summary(study, configuration.store, configuration.search.trials))
    if plan.report:
        from mpi_opt.views.page.report import save_report

        path = Path(f"{configuration.file_name}.html")
        save_report(study, path)
        print_if_possible(f"report: {path.resolve()}")
    return FINISHED if study.is_finished else request.status


def _read(path: Path, changes: Changes) -> StudyConfiguration:
    """Reads the configuration and makes the checks that need no framework; `open_study` checks the strategy."""
    from mpi_opt.configuration.read_study import read_study
    from mpi_opt.objectives.make_objective import check_objective

    configuration = read_study(path, changes)
    check_objective(configuration, configuration.search_space(), path.resolve().parent, str(path))
    return configuration


def _check_remains(store: str, where: str, when: str) -> None:
    """Verifies that the store can be opened a second time.

    Raises:
        ConfigurationError: The store is in memory.
    """
    from mpi_opt.store.connecting import is_in_memory, parsed

    if is_in_memory(parsed(store)):
        raise ConfigurationError(
            f"the store is in memory, and cannot be opened again when {when}",
            where=where,
            cure="write --store results.db",
        )


def _world_size() -> int:
    if not is_launched():
        return 1
    from mpi_opt.messages.links import world_communicator

    world = world_communicator()
    return 1 if world is None else world.size


def _print_study(configuration: StudyConfiguration) -> None:
    print(f"study      {configuration.study} in {without_passwords(configuration.store)}")
    figures = configuration.figures_of_merit()
    named = figures.names if configuration.objective == "train" or figures.are_several else ("its return value",)
    shown = ", ".join(" ".join(pair) for pair in zip(figures.directions, named, strict=True))
    print(f"objective  {configuration.objective}, {shown}")
    search, folds = configuration.search, configuration.folds
    early = ", stopped early if clearly worse" if folds.stop_early else ""
    print(f"strategy   {search.strategy}, {counted(search.trials, 'trial')}, {counted(folds.number, 'fold')}{early}")
    if note := configuration.note_on_folds():
        print(f"note       {note}")
    if folds.number > 1 and configuration.selection != "mean":
        print(f"selection  {configuration.selection} of the folds")


def _check_one_batch(configuration: StudyConfiguration, directory: Path) -> None:
    """Checks the training at the centre of the space, or imports the user's function, in this process."""
    from mpi_learn.mpi.library import MPI
    from mpi_opt.configuration.configuration import EXTERNAL
    from mpi_opt.objectives.make_objective import make_objective
    from mpi_opt.objectives.training_objective import TrainingObjective
    from mpi_opt.study.presentation import with_null

    if configuration.objective == EXTERNAL:
        return
    objective, sample = make_objective(configuration, directory), configuration.search_space().centre()
    if not isinstance(objective, TrainingObjective):
        objective.prepare(MPI.COMM_SELF, sample)
        return
    shown = {name: f"{value:.6g}" if isinstance(value, float) else with_null(value) for name, value in sample.items()}
    of_fold = " of the first fold" if configuration.folds.number > 1 else ""
    print(f"one batch{of_fold} with " + ", ".join(f"{name} {value}" for name, value in shown.items()))
    print(objective.check(MPI.COMM_SELF, sample, configuration.figures_of_merit()))


def _progress(configuration: StudyConfiguration, counts: ProgressCounts) -> PlainProgress:
    """The progress display, which also records the trials elsewhere if the configuration says so."""
    from mpi_opt.views.text.progress_display import make_display
    from mpi_opt.views.trackers import make_tracker

    tracker = None if configuration.track is None else make_tracker(configuration.track, configuration.study)
    display = make_display(counts)
    display.tracker = tracker
    return display
