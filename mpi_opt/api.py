"""The public way in: `search` runs a study on all ranks of the world and returns its summary on each.

`run_study` is the same for whoever has a communicator already: the command line and tests.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from mpi_opt.coordinator.roster import Roster
from mpi_opt.core.space import Dimension, Space
from mpi_opt.core.trial import Reporter, Trial
from mpi_opt.errors import MPILearnError, SearchFailed
from mpi_opt.messages.link import Link, SerialLink, WorldLink
from mpi_opt.messages.messages import TO_RANK
from mpi_opt.study.open_study import new_strategy, opened_study
from mpi_opt.worker.block import Block
from mpi_opt.worker.objective import FunctionObjective
from mpi_opt.worker.watchdog import Lifeline, end_process
from mpi_opt.worker.worker import Rank, WorldReporter, forget_stops

if TYPE_CHECKING:
    from mpi_opt.study.progress import Progress
    from mpi_opt.study.study import Study


UNPROTECTED = (
    "a lost rank would end this search (the same command would go on from there); "
    "to survive it: mpirun --with-ft ulfm, with Open MPI 5 or newer"
)

DELIVERY_S = 5.0
"""The other ranks have so long to hear of the end of the search, in seconds."""

_BLOCKS = itertools.count()
"""Numbers of blocks. In the searches of one script none comes twice: a late word of an earlier one is known by it."""


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

    Returns:
        The finished study, the same on every rank.

    Raises:
        UserError: An argument, the space, the store or the objective's preparation is wrong; on every rank.
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
    plan = Plan(configuration, dimensions, FunctionObjective(objective), layout, Path.cwd(), content)
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
        show: Makes who is told what happens, on rank 0; may raise as `search`.
        everywhere: Whether the other ranks get the study, too.
        request: Listens to the signals of rank 0; None: one that listens as long as the search runs.

    Returns:
        The study; None where it was not wanted.

    Raises:
        UserError, SearchFailed: As `search`; the same on every rank.
    """
    if world is None:
        return _run_serially(plan, show, request)
    world = communication.duplicate(world)
    study, error = None, None
    if world.rank == 0:
        link = WorldLink(world)
        try:
            study = _coordinate(plan, link, show, request)
        except MPILearnError as mine:
            error = mine
        except BaseException as bug:
            _told_to_all(link, None, SearchFailed(f"the coordinator failed: {bug!r}"), everywhere)
            raise
        _told_to_all(link, study if everywhere else None, error, everywhere)
        if error is not None:
            raise error
        return study
    lifeline = Lifeline(world)
    lifeline.open()
    with ignored_requests():
        Rank(world, lambda comm, index: _block(plan, comm, index, WorldReporter(world), lifeline), lifeline).serve()
    lifeline.close()
    return _told_by_coordinator(world)


def _told_to_all(link: WorldLink, study: Study | None, error: MPILearnError | None, everywhere: bool) -> None:
    """Sends the result of rank 0 to every rank that is left.

    ``MPI_Finalize`` needs all ranks. It is skipped where one was lost or cannot be reached, or may have been lost
    without notice; and, with protection, where nothing but the end of the process follows: a death in these last
    moments would block the others.
    """
    lost = communication.lost_ranks(link.world) | link.ended
    is_parting = bool(lost) or (link.is_protected and (link.has_called or not everywhere))
    others = [rank for rank in range(1, link.world.size) if rank not in lost]
    # a rank that has not heard of the end would take that of this process for a loss
    communication.deliver(link.world, (study, error, is_parting), others, TO_RANK, DELIVERY_S)
    if link.is_protected:
        communication.await_deaths(link.world, link.ended, DELIVERY_S)
    if is_parting:
        communication.skip_finalize(link.world, others)


def _told_by_coordinator(world: Communicator) -> Study | None:
    """The study, or the error raised, on a rank that does not coordinate."""
    try:
        study, error, is_parting = communication.receive(world, source=0, tag=TO_RANK)[0]
    except communication.FAILURES:
        end_process("the coordinator was lost")
    forget_stops(world)
    if is_parting:
        communication.skip_finalize(world)
    if error is not None:
        raise error
    return study


def _run_serially(plan: Plan, show: Callable[[], Progress] | None, request: StopRequest | None) -> Study:
    from mpi4py import MPI

    lifeline = Lifeline(None)
    lifeline.open()
    try:
        link = SerialLink(lambda reporter: _block(plan, MPI.COMM_SELF, 0, reporter, lifeline))
        return _coordinate(plan, link, show, request)
    finally:
        lifeline.close()


def _block(plan: Plan, comm: Communicator, index: int, reporter: Reporter, lifeline: Lifeline) -> Block:
    return Block(comm, index, plan.objective, plan.terms, reporter=reporter, lifeline=lifeline)


def _coordinate(plan: Plan, link: Link, show: Callable[[], Progress] | None, request: StopRequest | None) -> Study:
    """Rank 0's part: opens the store, runs the coordinator, sums up. Dismisses the others whatever happens."""
    from mpi_opt.coordinator.block_pool import Crew
    from mpi_opt.coordinator.coordinator import Coordinator
    from mpi_opt.coordinator.stopping import StopCondition
    from mpi_opt.store import Store
    from mpi_opt.study.study import Study

    configuration = plan.configuration
    crew = Crew(link, Roster.of(plan.layout, _BLOCKS if isinstance(link, WorldLink) else None))
    with contextlib.ExitStack() as stack:
        stack.callback(crew.dismiss)
        if request is None:
            request = StopRequest()
            if threading.current_thread() is threading.main_thread():
                stack.enter_context(request.listening())
        progress = None if show is None else show()
        store = stack.enter_context(Store.open(configuration.store))
        record = opened_study(store, configuration, plan.record, plan.space)
        make = partial(new_strategy, configuration, plan.space, plan.options, store, record)
        request.job_end_s = job_end_s()
        coordinator = Coordinator(
            crew,
            make(),
            store,
            record.id,
            plan.rules,
            folds=configuration.folds.number,
            yardsticks=plan.yardsticks,
            progress=progress,
            stopping=StopCondition(request, plan.rules.time_limit_s, request.job_end_s),
            renew=make,
        )
        if isinstance(link, SerialLink):
            link.on_report = coordinator.take_report
            link.end_when(coordinator.stopping.is_due)
        if progress is not None:
            progress.resumed(Study.read(store, configuration.study))
            if not link.is_protected:
                progress.note(UNPROTECTED)
            if request.job_end_s is not None:
                left_min = (request.job_end_s - time.time()) / 60
                progress.note(f"this batch job ends in {left_min:.0f} min; no trial starts that would likely end later")
        coordinator.run()
        return Study.read(store, configuration.study)


def _listed(value: Any) -> Any:
    """A sequence as it stands in a file; anything else as it is."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
