"""The public way in: `search` runs a study on all ranks of the world and returns its summary on each.

`run_study` is the same for whoever has a communicator already: the command line and tests.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpi_learn.cli.launchers import check_world, is_launched
from mpi_learn.cli.slurm import job_end_s
from mpi_learn.cli.stop_request import StopRequest, ignored_requests
from mpi_learn.mpi import communicators as communication
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.settings.yaml_file import validated
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.plan import Plan
from mpi_opt.coordinator.block_membership import BlockMembership
from mpi_opt.core.space import Dimension, Space
from mpi_opt.core.trial import Trial
from mpi_opt.errors import MPILearnError, SearchFailed
from mpi_opt.messages.link import CoordinatorLink, WorkerLink
from mpi_opt.messages.mpi_link import MPICoordinatorLink, MPIWorkerLink
from mpi_opt.messages.serial_link import SerialCoordinatorLink, SerialWorkerLink
from mpi_opt.worker.block import Block
from mpi_opt.worker.objective import FunctionObjective
from mpi_opt.worker.watchdog import Watchdog, end_unfinished, is_interactive, is_main_thread
from mpi_opt.worker.worker import LinkReporter, Worker

if TYPE_CHECKING:
    from mpi_opt.study.progress import Progress
    from mpi_opt.study.study import Study


UNPROTECTED = (
    "a lost rank would end this search (the same command would go on from there); "
    "to survive it: mpirun --with-ft ulfm, with Open MPI 5 or newer"
)

_BLOCKS = itertools.count()
"""Block numbers: none is used twice in the searches of one script, so that late messages are recognised."""


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
    folds: int | Mapping[str, Any] = 1,
    study: str = "study",
    store: str = "sqlite:///mpi_opt.db",
    options: Mapping[str, Any] | None = None,
    target: float | Sequence[float | None] | None = None,
    retries: int = 1,
    timeout: str | float | None = None,
    time_limit: str | float | None = None,
    transfer: str | Mapping[str, Any] | None = None,
    spares: int = 0,
    wait: bool = False,
) -> Study:
    """Searches for the hyperparameters with the best figure of merit; continues the study if the store has it.

    Collective over ``MPI.COMM_WORLD``: every rank calls it. Rank 0 coordinates, the others are blocks that run
    `objective`; in a plain ``python`` process everything runs in it, one trial after the other.

    Args:
        objective: Called with a `Trial` on every rank of a block; the value of the block's (the fold's) rank 0 counts.
            A function, or ``file.py:function``.
        space: Hyperparameter -> `Real`, `Integer` or `Categorical`.
        trials: How many the study gets in all, failed ones included.
        strategy: A name of `mpi_opt.strategies.STRATEGIES`, or ``file.py:Class``.
        direction: ``minimize`` or ``maximize``; of several figures of merit a list.
        figure_of_merit: What the value that `objective` returns is called; of several values a list.
        selection: What the folds of a trial come to: ``mean``, ``median``, or ``mean+std``, the mean made worse by one
            standard deviation.
        seed: The same seed and one process give the same trials again.
        block_size: Ranks a block, or ``auto``.
        folds: K of the K-fold cross-validation (see `Trial.split`), or ``{"number": K, "stop_early": True}``.
        study: The study's name in the store.
        store: A SQLAlchemy URL; ``sqlite://`` is in memory.
        options: The strategy's own.
        target: Stop as soon as a trial is this good; of several figures of merit a list, None for any value.
        retries: How often a trial is run again after its ranks were lost.
        timeout: Seconds, or text such as ``30m``, that one trial may take.
        time_limit: Seconds, or text such as ``2h``: no trial is begun that would likely end later.
        transfer: The store of an earlier study to learn from, or ``{"store": …, "study": …, "best": …, "learn": …}``.
        spares: Ranks that wait to take the place of lost ones.
        wait: Wait for another search that runs the study; otherwise this one raises `UserError`.

    Returns:
        The finished study, the same on every rank.

    Raises:
        UserError: An argument, the space, the store or the objective's preparation is wrong, or another search runs the
            study; on every rank.
        SearchFailed: The first trials all failed; on every rank.
    """
    dimensions = Space(space)
    content = {
        "study": study,
        "store": store,
        "direction": _listed(direction),
        "selection": selection,
        "objective": objective if isinstance(objective, str) else getattr(objective, "__qualname__", repr(objective)),
        "space": {name: dimension.entry() for name, dimension in dimensions.items()},
        "search": {
            "strategy": strategy,
            "trials": trials,
            "seed": seed,
            "options": dict(options or {}),
            "target": _listed(target),
            "time_limit": time_limit,
            "transfer": dict(transfer) if isinstance(transfer, Mapping) else transfer,
        },
        "blocks": {"size": block_size, "spares": spares},
        "folds": dict(folds) if isinstance(folds, Mapping) else folds,
        "trial": {"retries": retries, "timeout": timeout},
    }
    if figure_of_merit is not None:
        content["figure_of_merit"] = _listed(figure_of_merit)
    configuration = validated(StudyConfiguration, content, "search()")
    configuration.target()
    world = the_world()
    layout = configuration.layout(1 if world is None else world.size)
    plan = Plan(configuration, dimensions, FunctionObjective(objective), layout, Path.cwd(), content, wait=wait)
    return run_study(plan, world)


def the_world() -> Communicator | None:
    """All ranks of this job; None in a process that no MPI launcher started.

    Raises:
        UserError: A launcher started several processes, which MPI did not connect.
    """
    if not is_launched():
        return None
    from mpi4py import MPI

    check_world(MPI.COMM_WORLD.size, MPI.Get_library_version().split(",")[0].split("\n")[0])
    return MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None


def run_study(
    plan: Plan,
    world: Communicator | None,
    show: Callable[[], Progress] | None = None,
    *,
    everywhere: bool = True,
    request: StopRequest | None = None,
) -> Study | None:
    """Runs a planned study. Collective over `world`.

    Args:
        plan: The same on every rank.
        world: All ranks; None to do everything in this process.
        show: Makes the observer of the search, on rank 0; may raise as `search`.
        everywhere: Whether the other ranks get the study, too.
        request: Listens to the signals of rank 0; None: one that listens as long as the search runs.

    Returns:
        The study; None on other ranks unless `everywhere`.

    Raises:
        UserError, SearchFailed: As `search`; the same on every rank.
    """
    if world is None:
        return _run_serially(plan, show, request)
    world = communication.duplicate(world)
    if world.rank == 0:
        return _run_coordinator(plan, MPICoordinatorLink(world), show, request, everywhere=everywhere)
    link = MPIWorkerLink(world)
    with ignored_requests() if is_main_thread() else contextlib.nullcontext():
        _serve(plan, link, Worker.serve_or_die, may_end_process=communication.is_protected())
    try:
        study, error = link.part()
    except communication.FAILURES:
        end_unfinished("the coordinator was lost")
    if error is not None:
        raise error
    return study


def _run_coordinator(
    plan: Plan,
    link: MPICoordinatorLink,
    show: Callable[[], Progress] | None,
    request: StopRequest | None,
    *,
    everywhere: bool,
) -> Study:
    """Rank 0's part of `run_study`."""
    study, error = None, None
    try:
        with _listening(request) as listening:
            study = _coordinate(plan, link, show, listening, _BLOCKS)
    except MPILearnError as mine:
        error = mine
    except BaseException as bug:
        link.part((None, SearchFailed(f"the coordinator failed: {bug!r}")), may_finalize=everywhere)
        raise
    link.part((study if everywhere else None, error), may_finalize=everywhere)
    if error is not None:
        raise error
    return study


def _run_serially(plan: Plan, show: Callable[[], Progress] | None, request: StopRequest | None) -> Study:
    """Runs the coordinator in a thread, and trials in the calling thread, where signals can interrupt them."""
    from mpi4py import MPI

    coordinator = SerialCoordinatorLink()
    worker = SerialWorkerLink(coordinator, MPI.COMM_SELF)
    done: Future[Study] = Future()

    def coordinate() -> None:
        try:
            done.set_result(_coordinate(plan, coordinator, show, listening, itertools.count()))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            done.set_exception(error)
        finally:
            coordinator.close()

    with _listening(request) as listening:
        thread = threading.Thread(target=coordinate, name="coordinator")
        thread.start()
        try:
            _serve(plan, worker, Worker.serve, may_end_process=is_main_thread() and not is_interactive())
        except BaseException as error:
            worker.fail(error)
            raise
        finally:
            thread.join()
    return done.result()


def _serve(plan: Plan, link: WorkerLink, serve: Callable[[Worker], None], *, may_end_process: bool) -> None:
    """A worker's part: runs trials until it is dismissed."""
    watchdog, reporter = Watchdog(link, may_end_process=may_end_process), LinkReporter(link)

    def make_block(comm: Communicator, index: int) -> Block:
        return Block(comm, index, plan.objective, plan.terms, reporter=reporter, watchdog=watchdog)

    watchdog.open()
    try:
        serve(Worker(link, make_block, watchdog))
    finally:
        watchdog.close()


@contextlib.contextmanager
def _listening(request: StopRequest | None) -> Iterator[StopRequest]:
    """`request`; None: a new one that listens during the block, if this thread can handle signals."""
    if request is not None:
        yield request
        return
    request = StopRequest()
    with request.listening() if is_main_thread() else contextlib.nullcontext():
        yield request


def _coordinate(
    plan: Plan,
    link: CoordinatorLink,
    show: Callable[[], Progress] | None,
    request: StopRequest,
    block_numbers: Iterator[int],
) -> Study:
    """Opens the study, takes its lease and runs the coordinator. Dismisses the workers in any case."""
    from mpi_opt.coordinator.block_pool import BlockPool
    from mpi_opt.coordinator.coordinator import Coordinator
    from mpi_opt.coordinator.stopping import StopCondition
    from mpi_opt.study.lease import leased
    from mpi_opt.study.open_study import open_study
    from mpi_opt.study.progress import Silence
    from mpi_opt.study.study import Study

    configuration = plan.configuration
    pool = BlockPool(link, BlockMembership.of(plan.layout, block_numbers))
    with contextlib.ExitStack() as stack:
        stack.callback(pool.dismiss)
        progress = Silence() if show is None else show()
        study = stack.enter_context(open_study(plan))
        lease = stack.enter_context(
            leased(
                study.store,
                study.record,
                wait=plan.wait,
                note=progress.note,
                is_ending=lambda: request.reason is not None,
            )
        )
        if lease is None:
            progress.note(f"the search ends before its first trial: {request.why}")
            return Study.read(study.store, configuration.study)
        request.job_end_s = job_end_s()
        coordinator = Coordinator(
            pool,
            study.strategy,
            study.store,
            study.record.id,
            plan.rules,
            folds=configuration.folds.number,
            yardsticks=plan.yardsticks,
            progress=progress,
            stopping=StopCondition(request, plan.rules.time_limit_s, request.job_end_s),
            renew=study.new_strategy,
            lease=lease,
            study=study.record.key,
            discard=plan.objective.discard,
        )
        if show is not None:
            progress.resumed(Study.read(study.store, configuration.study))
            if not link.is_protected:
                progress.note(UNPROTECTED)
            if request.job_end_s is not None:
                left_min = (request.job_end_s - time.time()) / 60
                progress.note(f"this batch job ends in {left_min:.0f} min; no trial starts that would likely end later")
        coordinator.run()
        return Study.read(study.store, configuration.study)


def _listed(value: Any) -> Any:
    """A sequence as it stands in a file; anything else as it is."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
