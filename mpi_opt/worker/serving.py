"""The part of a search that ranks other than rank 0 run, from the first block to the result.

It imports no validation of configurations and no command line, because hundreds of ranks start at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi_learn.job.stop_request import ignored_requests
from mpi_learn.mpi import messaging
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.settings.user_files.fixed_code import fix
from mpi_opt.core.objective import WorkerPlan
from mpi_opt.messages.link import WorkerLink
from mpi_opt.messages.mpi_link import MPIWorkerLink
from mpi_opt.worker.watchdog import Watchdog, end_unfinished, is_main_thread
from mpi_opt.worker.worker import Worker

if TYPE_CHECKING:
    from mpi_opt.study.study import Study


def serve_search(plan: WorkerPlan, world: Communicator) -> Study | None:
    """Runs trials until the search is over; returns the study if all ranks receive it.

    Args:
        plan: The same on every rank.
        world: The ranks of the search, a communicator of its own.

    Raises:
        UserError, SearchFailed: The error with which the search ended on rank 0.
    """
    link = MPIWorkerLink(world)
    with ignored_requests() if is_main_thread() else contextlib.nullcontext():
        serve(plan, link, Worker.serve_or_die, may_end_process=messaging.is_protected())
    try:
        result = link.receive_result()
    except messaging.FAILURES:
        end_unfinished("the coordinator was lost")
    if result.error is not None:
        raise result.error
    return result.study


def serve(plan: WorkerPlan, link: WorkerLink, run: Callable[[Worker], None], *, may_end_process: bool) -> None:
    """Runs trials on a worker until it is dismissed.

    Args:
        plan: The settings for workers.
        link: The connection to the coordinator.
        run: `Worker.serve` or `Worker.serve_or_die`.
        may_end_process: Whether the watchdog may end this process.
    """
    alive_s = plan.settings.alive_s if link.rank > 0 else None
    watchdog = Watchdog(link, may_end_process=may_end_process, alive_s=alive_s)
    worker = Worker(link, watchdog, plan.objective, plan.settings)
    watchdog.open()
    try:
        run(worker)
    finally:
        watchdog.close()
        fix(None)  # the code of this search, which the worker has fixed
