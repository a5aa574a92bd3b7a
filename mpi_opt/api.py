"""The Python interface: `search` runs a study on all ranks of the world and returns it on each.

`run_study` runs a planned study on a given communicator; the command line uses it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from mpi_learn.job.exit_status import INTERRUPTED
from mpi_learn.job.started_by import typed_command
from mpi_learn.job.stop_request import StopRequest
from mpi_learn.mpi import communicators
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.settings.validation import validated
from mpi_opt.configuration.combinations import check_combinations
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.definition import Definition, calling_script
from mpi_opt.configuration.plan import Plan
from mpi_opt.core.search_space.space import Dimension, Space
from mpi_opt.core.trial import Trial
from mpi_opt.errors import ConfigurationError, MPILearnError, SearchFailed
from mpi_opt.messages.links import MPICoordinatorLink, SerialCoordinatorLink, SerialWorkerLink, world_communicator
from mpi_opt.objectives.function_objective import FunctionObjective
from mpi_opt.worker.watchdog import is_interactive, is_main_thread
from mpi_opt.worker.worker import Worker, serve, serve_search

if TYPE_CHECKING:
    from mpi_opt.core.scalability import ScalingCurve
    from mpi_opt.study.progress import Progress
    from mpi_opt.study.study import Study
    from mpi_opt.views.text.progress_display import PlainProgress

Found = TypeVar("Found")

QUIET_INTERVAL_S = 30.0
"""The interval between the lines of a search that was not asked for its progress, in seconds."""

_BLOCK_INDICES = itertools.count()
"""Block indices. No index is used twice in the searches of one script, so that late messages are recognised."""


def search(
    objective: Callable[[Trial], float | Sequence[float] | Mapping[str, float]] | str,
    *,
    space: Mapping[str, Dimension],
    trials: int = 50,
    strategy: str = "bayesian",
    direction: str | Sequence[str] = "minimize",
    figure_of_merit: str | Sequence[str] | None = None,
    selection: str = "mean",
    seed: int = 7,
    block_size: int | str = 1,
    elastic: bool | Literal["merit"] = False,
    folds: int | Mapping[str, Any] = 1,
    study: str | None = None,
    store: str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    target: float | Sequence[float | None] | None = None,
    retries: int = 1,
    timeout: str | float | None = None,
    time_limit: str | float | None = None,
    transfer: str | Mapping[str, Any] | None = None,
    spares: int = 0,
    wait: bool = False,
    progress: bool | None = None,
    resume: bool = False,
    extend: bool = False,
    confirm: int | None = None,
    pruning: str = "none",
) -> Study:
    """Searches for the hyperparameters with the best figure of merit; continues the study if the store has it.

    Before the first trial, one line says which study runs, in which store, how many trials exist and how many will run.

    Collective over ``MPI.COMM_WORLD``. Rank 0 coordinates, and the other ranks form blocks that run `objective`. In a
    single ``python`` process the trials run one after the other.

    Args:
        objective: A function, or ``file.py:function``. Called with a `Trial` on every rank of a block; the return value
            of rank 0 of ``trial.comm`` is used.
        space: Hyperparameter -> `Real`, `Integer` or `Categorical`.
        trials: Number of trials of the study, including failed ones.
        strategy: A name of `mpi_opt.strategies.STRATEGIES`, or ``file.py:Class``.
        direction: ``minimize`` or ``maximize``; a list for several figures of merit.
        figure_of_merit: The name of the value that `objective` returns; a list for several values.
        selection: How the folds of a trial are aggregated: ``mean``, ``median``, or ``mean+std``, the mean plus (if
            maximised, minus) one standard deviation.
        seed: The seed of the study. In one process, the same seed gives the same trials.
        block_size: Number of ranks per block, or ``auto``. Functions cannot be measured (``measured``).
        elastic: Whether idle ranks join running trials that call `Trial.resize`; ``"merit"``: the best ones first.
        folds: K of the K-fold cross-validation (see `Trial.split`), or ``{"number": K, "stop_early": True}``.
        study: The study's name in the store. Default: the name of the calling script; in a notebook that of the
            function.
        store: A SQLAlchemy URL, or the path of a file that ends in ``.db``; ``sqlite://`` is in memory. Default: the
            SQLite file ``mpi_opt.db`` beside the calling script; in a notebook in the current directory.
        options: The options of the strategy.
        target: The search stops when a trial is this good; a list for several figures of merit, None for any value.
        retries: How often a trial is run again after its ranks were lost.
        timeout: Time limit of a trial: seconds, or text such as ``30m``.
        time_limit: Time limit of the search: seconds, or text such as ``2h``. No trial starts that would likely end
            later.
        transfer: The store of an earlier study for a warm start, or ``{"store": …, "study": …, "best": …}``.
        spares: Number of ranks that wait to replace lost ones.
        wait: Whether to wait for another search that runs the study, instead of raising `UserError`.
        progress: True shows a panel on a terminal and in a notebook; elsewhere it prints a line when the search begins
            and ends, and at most one per second between, on standard error. None (the default) is the same with at
            most one line per 30 seconds. False shows nothing.
        resume: Whether to continue a study that was made with another objective. An objective whose file was edited
            since is the same; the changes are printed and recorded as the event ``code_changed``.
        extend: Whether to continue a study whose space is extended: wider ranges, more categories, and new
            hyperparameters whose ``default`` is their value in the trials so far.
        confirm: How often the three best points and the default configuration run again at the end, with new seeds
            (see `Study.confirmation`).
        pruning: ``median`` stops a trial whose reported values are worse than the median of the complete trials, and
            ``curves`` one of which a model of learning curves expects less than of a new one: then
            `Trial.should_stop` is True.

    Returns:
        The study after the search, the same on every rank. It is not finished at a time limit, or if ``mpirun`` was
        asked to end.

    Raises:
        UserError: An argument, the space, the store or the preparation of the objective is invalid, the study was made
            with another objective, or another search runs it. Raised on every rank. A script that does not catch it
            ends with its message, without a traceback, and exit status 2.
        SearchFailed: The first trials or all trials of the study have failed, no block of ranks could be formed, or all
            ranks that run trials were lost (`RanksLost`). Raised on every rank. A script that does not catch it ends
            with its message, and the exit status of ``mpi-opt search``: 1, or 75 if the same command continues.
        KeyboardInterrupt, SystemExit: In one process, after Ctrl-C or SIGTERM, when the search has ended in order: the
            request is for the whole program. `Study.open` reads the study; the same call continues it.
    """
    if not (callable(objective) or isinstance(objective, str)):
        raise ConfigurationError(
            f"expected a function, found {objective!r}",
            where="search(): objective",
            cure="write search(objective, …), not search(objective(trial), …)",
        )
    definition = None if isinstance(objective, str) else Definition.of(objective)
    name = definition.name if definition is not None else str(objective)
    script = calling_script()
    content = {
        "study": study or _default_name(script, name),
        "store": store or f"sqlite:///{'mpi_opt.db' if script is None else script.with_name('mpi_opt.db')}",
        "direction": direction,
        "selection": selection,
        "objective": name,
        "space": {name: dimension.entry() for name, dimension in Space(space).items()},
        "search": {
            "strategy": strategy,
            "trials": trials,
            "seed": seed,
            "options": options or {},
            "target": target,
            "time_limit": time_limit,
            "transfer": transfer,
            "extend": extend,
            "confirm": confirm,
            "pruning": pruning,
        },
        "blocks": {"size": block_size, "spares": spares, "elastic": elastic},
        "folds": folds,
        "trial": {"retries": retries, "timeout": timeout},
    }
    named = {} if figure_of_merit is None else {"figure_of_merit": figure_of_merit}
    configuration = validated(StudyConfiguration, content | named, "search()")
    check_combinations(configuration)
    world = world_communicator()
    n_ranks = 1 if world is None else world.size
    # everything that depends on arguments alone is checked above: on all ranks, before the first message
    run = FunctionObjective(objective, is_elastic=bool(elastic))
    plan = Plan(
        configuration,
        Path.cwd(),
        run,
        n_ranks,
        wait=wait,
        definition=definition,
        resume=resume,
        command=typed_command(),
    )
    display = None if progress is False or (world is not None and world.rank > 0) else _display(configuration, progress)
    # under mpirun, `run_study` makes one that listens on rank 0 alone
    request = StopRequest() if world is None else None
    with contextlib.ExitStack() as stack:
        if display is not None:
            stack.enter_context(contextlib.closing(display))
        if request is not None and is_main_thread():
            stack.enter_context(request.listening())
        found = run_study(plan, world, None if display is None else lambda: display, request=request)
        assert found is not None, "every rank receives the study"
        if display is not None:
            display.counts.take_result(found)
    if request is not None and request.signal_name is not None:
        raise KeyboardInterrupt if request.status == INTERRUPTED else SystemExit(request.status)
    return found


def _display(configuration: StudyConfiguration, progress: bool | None) -> PlainProgress:
    """The progress display of rank 0, made in the thread that calls `search`."""
    from mpi_opt.views.text.progress_counts import ProgressCounts
    from mpi_opt.views.text.progress_display import LINE_INTERVAL_S, make_display

    interval_s = LINE_INTERVAL_S if progress else QUIET_INTERVAL_S
    return make_display(ProgressCounts.of(configuration), in_python=True, interval_s=interval_s)


def _default_name(script: Path | None, objective: str) -> str:
    """The name of a study: that of the script; without one, that of the objective, such as ``lambda``."""
    return re.split(r"[.:]", objective)[-1].strip("<>") if script is None else script.stem


def run_study(
    plan: Plan,
    world: Communicator | None,
    make_observer: Callable[[], Progress] | None = None,
    *,
    share_study: bool = True,
    request: StopRequest | None = None,
) -> Study | None:
    """Runs a planned study. Collective over `world`.

    Args:
        plan: The plan, the same on every rank.
        world: All ranks; None to run everything in this process.
        make_observer: Builds the observer of the search on rank 0; may raise the same errors as `search`.
        share_study: Whether all ranks receive the study, because the program continues after the search.
        request: Receives the signals of rank 0; None for one that listens while the search runs.

    Returns:
        The study; None on other ranks unless `share_study`.

    Raises:
        UserError: As for `search`; the same on every rank.
        SearchFailed: As for `search`; the same on every rank.
    """
    if world is None:
        return _run_serially(plan, make_observer, request)
    world = communicators.duplicate(world)
    if world.rank > 0:
        return serve_search(plan.worker_plan, world)

    def coordinate(link: MPICoordinatorLink, listening: StopRequest) -> Study:
        from mpi_opt.coordinator.run_coordinator import run_coordinator  # other ranks do not load it

        return run_coordinator(plan, link, listening, _BLOCK_INDICES, make_observer)

    return _coordinated(MPICoordinatorLink(world, processes_continue=share_study), request, coordinate)


def measure_study(
    plan: Plan, world: Communicator, request: StopRequest, note: Callable[[str], None]
) -> list[ScalingCurve]:
    """Measures the trainings of a study; called on rank 0, while the other ranks of `world` call `serve_search`.

    Raises:
        UserError, SearchFailed: As for `run_measurement`.
    """
    from mpi_opt.coordinator.measuring import run_measurement

    def coordinate(link: MPICoordinatorLink, listening: StopRequest) -> list[ScalingCurve]:
        return run_measurement(plan, link, listening, _BLOCK_INDICES, note)

    return _coordinated(MPICoordinatorLink(communicators.duplicate(world)), request, coordinate)


def _coordinated(
    link: MPICoordinatorLink,
    request: StopRequest | None,
    coordinate: Callable[[MPICoordinatorLink, StopRequest], Found],
) -> Found:
    """Runs `coordinate` on rank 0 and sends its result to the other ranks."""
    found: Found | None = None
    error: MPILearnError | None = None
    try:
        with _listening(request) as listening:
            found = coordinate(link, listening)
            return found
    except MPILearnError as failure:
        error = failure
        raise
    except BaseException as bug:
        error = SearchFailed(f"the coordinator failed: {bug!r}")
        raise
    finally:
        # processes continue after a search only, whose result is the study
        link.send_result(cast("Study | None", found) if link.processes_continue else None, error)


def _run_serially(plan: Plan, make_observer: Callable[[], Progress] | None, request: StopRequest | None) -> Study:
    """Runs the coordinator in a second thread and trials in the calling thread, where signals can interrupt them."""
    from mpi_learn.mpi.library import MPI
    from mpi_opt.coordinator.run_coordinator import run_coordinator

    coordinator = SerialCoordinatorLink()
    worker = SerialWorkerLink(coordinator, MPI.COMM_SELF)
    done: Future[Study] = Future()

    def coordinate() -> None:
        try:
            done.set_result(run_coordinator(plan, coordinator, listening, itertools.count(), make_observer))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            done.set_exception(error)
        finally:
            coordinator.close()

    with _listening(request) as listening:
        thread = threading.Thread(target=coordinate, name="coordinator")
        thread.start()
        try:
            serve(plan.worker_plan, worker, Worker.serve, may_end_process=is_main_thread() and not is_interactive())
        except BaseException as error:
            worker.fail(error)
            raise
        finally:
            thread.join()
    return done.result()


@contextlib.contextmanager
def _listening(request: StopRequest | None) -> Iterator[StopRequest]:
    """Yields `request`; for None a new one, which listens to signals if this thread can handle them."""
    if request is not None:
        yield request
        return
    request = StopRequest()
    with request.listening() if is_main_thread() else contextlib.nullcontext():
        yield request
