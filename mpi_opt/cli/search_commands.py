"""The commands around running a search: ``search`` and ``check``."""

from __future__ import annotations

import io
import os
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mpi_learn.cli.exit_status import FINISHED
from mpi_learn.cli.launch import Launch
from mpi_learn.cli.launchers import check_allocation, check_not_launched, is_launched
from mpi_learn.cli.stop_request import StopRequest
from mpi_learn.settings.paths import file_name
from mpi_opt.cli.plan_command import plan
from mpi_opt.cli.space_options import (
    BlockSize,
    Folds,
    Ranks,
    Seed,
    SpaceFile,
    StoreUrl,
    StrategyName,
    StudyName,
    TimeLimit,
    Trials,
    overrides,
)
from mpi_opt.errors import ConfigurationError, without_passwords

if TYPE_CHECKING:
    from mpi_opt.configuration.configuration import StudyConfiguration
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.study.study import Study
    from mpi_opt.views.text.progress_display import PlainProgress


def register(app: typer.Typer) -> None:
    """Adds the commands to `app`."""
    for command in (search, check):
        app.command()(command)


def search(
    space: SpaceFile,
    n: Annotated[int | None, typer.Option("-n", help="Start mpirun with this number of ranks.", min=1)] = None,
    trials: Trials = None,
    strategy: StrategyName = None,
    block_size: BlockSize = None,
    folds: Folds = None,
    seed: Seed = None,
    study: StudyName = None,
    store: StoreUrl = None,
    time_limit: TimeLimit = None,
    report: Annotated[bool, typer.Option("--report", help="Write the study's HTML report at the end.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another search that runs the study.")] = False,
) -> Any:
    """Run a study, or continue it: under mpirun on all its ranks, otherwise in one process."""
    if n is not None:
        check_not_launched()  # here: the other ranks must learn of it
        return Launch(["mpi_opt", *_without_n(sys.argv[1:])], n)
    check_allocation()
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.worker.objective import make_objective

    configuration = _read(space, overrides(trials, strategy, block_size, folds, seed, study, store, time_limit))
    n_ranks = _world_size()
    if n_ranks > 1:
        _make_log_folder(configuration)
    directory = space.resolve().parent
    return Plan.of(
        configuration, directory, make_objective(configuration, directory), n_ranks, report=report, wait=wait
    )


def check(
    space: SpaceFile,
    n: Ranks = None,
    trials: Trials = None,
    strategy: StrategyName = None,
    block_size: BlockSize = None,
    folds: Folds = None,
    seed: Seed = None,
) -> None:
    """Validate file, model, data and space, and print what would run. Needs no MPI."""
    from mpi_learn.mpi.library import do_without_mpi

    do_without_mpi()
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.study.earlier_study import read_earlier
    from mpi_opt.study.open_study import build_strategy

    configuration = _read(space, overrides(trials, strategy, block_size, folds, seed))
    search_space = configuration.dimensions()
    earlier = read_earlier(configuration, search_space)
    build_strategy(
        Plan.of(configuration, space.resolve().parent, n_ranks=n or 1), earlier, configuration.search.transfer
    )
    _print_study(configuration)
    transfer = configuration.search.transfer
    if earlier and transfer is not None:
        print(f"transfer   {len(earlier)} trials of an earlier study, the best {transfer.best} first")
    for name, dimension in search_space.items():
        print(f"  {name:<20} {dimension}")
    _rehearse(configuration, space.resolve().parent)
    if n is not None:
        plan(space, n, trials, strategy, block_size, folds)
    print(f"{space}: all is well")


def run_search(plan: Plan, request: StopRequest) -> int:
    """Runs a plan on this rank; rank 0 shows progress and the table of the best trials.

    Collective over the world, if there is one.

    Returns:
        The exit status.
    """
    from mpi_opt.api import run_study, the_world

    world = the_world()
    if world is not None and world.rank > 0:
        _log_to_file(plan, world.rank)
        run_study(plan, world, everywhere=False)
        return FINISHED
    with ExitStack() as shown:
        show = lambda: shown.enter_context(closing(_progress(plan)))  # noqa: E731 - as an argument the line is too long
        study = run_study(plan, world, show, everywhere=False, request=request)
    assert study is not None, "rank 0 has the study"
    print(_closing_words(plan, study), flush=True)
    if plan.report:
        from mpi_opt.views.page.report import save_report

        path = Path(f"{file_name(plan.configuration.study)}.html")
        save_report(study, path)
        print(f"report: {path.resolve()}", flush=True)
    return FINISHED if study.is_finished else request.status


def _read(path: Path, changes: dict[str, Any]) -> StudyConfiguration:
    """The configuration, checked as far as no framework and no strategy is needed; `open_study` builds the strategy."""
    from mpi_opt.configuration.configuration import read_study
    from mpi_opt.worker.objective import check_objective

    configuration = read_study(path, changes)
    check_objective(configuration, configuration.dimensions(), path.resolve().parent, str(path))
    return configuration


def _without_n(arguments: list[str]) -> list[str]:
    kept, skip = [], False
    for argument in arguments:
        if skip or argument == "-n":
            skip = not skip
        elif not (argument.startswith("-n") and argument[2:].isdigit()):
            kept.append(argument)
    return kept


def _world_size() -> int:
    if not is_launched():
        return 1
    from mpi_opt.api import the_world

    world = the_world()
    return 1 if world is None else world.size


def _print_study(configuration: StudyConfiguration) -> None:
    print(f"study      {configuration.study} in {without_passwords(configuration.store)}")
    merits = configuration.merits()
    named = merits.names if configuration.objective == "train" or merits.are_several else ("its return value",)
    shown = ", ".join(" ".join(pair) for pair in zip(merits.directions, named, strict=True))
    print(f"objective  {configuration.objective}, {shown}")
    search, folds = configuration.search, configuration.folds
    early = ", stopped early where clearly worse" if folds.stop_early else ""
    print(f"strategy   {search.strategy}, {search.trials} trials, {folds.number} fold(s){early}")
    if folds.number > 1 and configuration.selection != "mean":
        print(f"selection  {configuration.selection} of the folds")


def _rehearse(configuration: StudyConfiguration, directory: Path) -> None:
    """Trains one batch with the middle of the space, or imports the user's function, in this process."""
    from mpi_learn.mpi.library import MPI
    from mpi_opt.configuration.configuration import EXTERNAL
    from mpi_opt.worker.objective import TrainingObjective, make_objective

    if configuration.objective == EXTERNAL:
        return
    objective, sample = make_objective(configuration, directory), configuration.dimensions().centre()
    if not isinstance(objective, TrainingObjective):
        objective.prepare(MPI.COMM_SELF, sample)
        return
    print("one batch with " + ", ".join(f"{name} {value}" for name, value in sample.items()))
    print(objective.check(MPI.COMM_SELF, sample))


def _progress(plan: Plan) -> PlainProgress:
    from mpi_opt.views.text.progress_display import Counts, make_progress
    from mpi_opt.views.text.trackers import make_tracker

    configuration = plan.configuration
    track = configuration.track
    tracker = None if track is None else make_tracker(track, configuration.study)
    return make_progress(Counts(configuration.search.trials, configuration.merits().sign < 0), tracker)


def _log_folder(configuration: StudyConfiguration) -> Path:
    return Path(f"{file_name(configuration.study)}.logs")


def _make_log_folder(configuration: StudyConfiguration) -> None:
    """Creates the folder of the log files; only rank 0 does, so that an error is reported once."""
    folder = _log_folder(configuration)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the folder for the logs of the other ranks cannot be created: {error.strerror}",
            where=str(folder.absolute()),
            cure="start the search where you may write",
        ) from None


def _log_to_file(plan: Plan, rank: int) -> None:
    """Redirects the output of this rank, including that of its libraries, to a file."""
    folder = _log_folder(plan.configuration)
    try:
        folder.mkdir(exist_ok=True)  # on this host
        descriptor = os.open(folder / f"rank-{rank:04d}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        print(f"rank {rank} has no log: {error}", file=sys.stderr, flush=True)
        return
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(_Log(standard, "w", closefd=False)), errors="replace", line_buffering=True)
        for standard in (1, 2)
    )


class _Log(io.FileIO):
    """A log file whose write errors, e.g. on a full disk, are ignored: they must not fail a trial that prints."""

    def write(self, data: Any) -> int:
        """Writes as much as possible; returns the size of `data`."""
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def _closing_words(plan: Plan, study: Study) -> str:
    """The text at the end of a search: the best trials, the store and the next commands."""
    from mpi_opt.views.text.schedule import schedule_text
    from mpi_opt.views.text.tables import trials_table

    store, trials = without_passwords(plan.configuration.store), plan.configuration.search.trials
    shown = study.pareto()[:20] if study.merits.are_several else study.ranked(("complete",))[:5]
    lines = [
        "",
        "the Pareto front:" if study.merits.are_several else "the best trials:",
        trials_table(study, shown),
        "",
    ]
    if study.best is not None and (changes := schedule_text(study, study.best)):
        lines += ["hyperparameters of the best trial that changed during its training:", changes, ""]
    n_ended = sum(study.record.counts.get(state, 0) for state in ("complete", "pruned", "failed"))
    if n_ended < trials and plan.configuration.search.target is None:
        lines.append(f"{n_ended} of {trials} trials have ended; to resume, run the same command again")
    if ":memory:" in store or store.rstrip("/") == "sqlite:":
        return "\n".join(lines)
    columns = ", ".join(["number", *study.space, "figure_of_merit"])
    order = "DESC" if study.record.maximize else "ASC"
    query = f"SELECT {columns} FROM {study.view} WHERE state = 'complete' ORDER BY figure_of_merit {order} LIMIT 5"
    if study.merits.are_several:
        query = f"SELECT * FROM {study.view} WHERE pareto = 1 ORDER BY figure_of_merit {order}"
    lines += [f"all trials are in {store}; try", f'  mpi-opt results --store {store} --sql "{query}"']
    return "\n".join(lines)
