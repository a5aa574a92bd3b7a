"""The command line ``mpi-opt``, the same as ``python -m mpi_opt``.

``search`` may be started by ``mpirun``: rank 0 alone reads the command line, files and space, and sends the other ranks
a plan, or the exit status when there is nothing to run. A mistake is reported once and never blocks other ranks.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from mpi_learn.cli.debug_option import DEBUG, without_debug
from mpi_learn.cli.run_command import drop_unwritten, run_command
from mpi_learn.cli.terminal import prepare_output
from mpi_learn.job import exit_status
from mpi_learn.job.exit_status import FAILED, FINISHED, INTERRUPTED, LOST, LaunchMode
from mpi_learn.job.launch import Launch, launch
from mpi_learn.job.started_by import is_launched, launched_rank, restart_reason
from mpi_learn.job.stop_request import StopRequest, ignored_requests
from mpi_learn.job.time_limits import start_limit
from mpi_opt.errors import MPILearnError, RanksLost, without_passwords

if TYPE_CHECKING:
    import typer

    from mpi_learn.mpi.communicators import Communicator
    from mpi_opt.cli.commands.plan_command import MeasuredPlan
    from mpi_opt.configuration.plan import Plan


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and ends the process with its exit status."""
    prepare_output()
    arguments = sys.argv[1:] if arguments is None else arguments
    if not _needs_all_ranks(without_debug(arguments)):
        status = _run_on_first(arguments)
        drop_unwritten()
        sys.exit(status)
    mode, rank = LaunchMode.from_environment(), launched_rank()
    request = StopRequest(heeds_warnings=mode is LaunchMode.DIRECT)
    # from the start: mpirun passes signals on at any time
    with request.listening() if rank == 0 else ignored_requests():
        status = mode.report(_search_everywhere(arguments, request), rank)
        if "mpi_learn.mpi.process_end" in sys.modules:
            setattr(sys.modules["mpi_learn.mpi.process_end"], "exit_status", status)  # noqa: B010 - not imported here
        drop_unwritten()
        if is_launched():
            exit_status.limit_end(rank, status)
        sys.exit(status)


def _needs_all_ranks(arguments: list[str]) -> bool:
    """Whether all ranks of a job take part in the command: ``search``, and ``plan --measure``."""
    return arguments[:1] == ["search"] or (arguments[:1] == ["plan"] and "--measure" in arguments)


def _run_on_first(arguments: list[str]) -> Any:
    """Runs a command in this process. If a launcher has started several processes, only the first one runs it."""
    return run(arguments) if launched_rank() == 0 else FINISHED


def _search_everywhere(arguments: list[str], request: StopRequest) -> int:
    """Runs a command on every rank of the world: rank 0 reads the command line, the others run its trainings."""
    debug = DEBUG in arguments
    with start_limit():
        world = _guarded(_world, debug, None) if is_launched() else None
    if isinstance(world, int):
        return world  # the exit status of an error
    if world is not None and world.rank > 0:
        return int(_guarded(partial(_serve, world), debug))
    task = _task(arguments)
    if isinstance(task, Launch):
        return int(_guarded(partial(launch, task, request), debug))
    if world is not None:
        from mpi_learn.mpi import messaging

        messaging.broadcast_sleeping(world, task if isinstance(task, int) else task.worker_plan)
    if isinstance(task, int):
        return task
    return int(_guarded(partial(_run_search, task, request), debug))


def _serve(world: Communicator) -> int:
    """Runs trials on a rank other than rank 0, as soon as that has read the command line."""
    from mpi_learn.mpi import communicators, messaging
    from mpi_opt.cli.rank_logs import log_to_file
    from mpi_opt.worker.watchdog import end_unfinished
    from mpi_opt.worker.worker import serve_search

    try:
        plan = messaging.broadcast_sleeping(world, None)
    except messaging.FAILURES:
        end_unfinished("rank 0 was lost before the search began")
    if isinstance(plan, int):
        return plan
    log_to_file(plan.file_name, world.rank)
    serve_search(plan, communicators.duplicate(world))
    return FINISHED


def _run_search(task: Plan | MeasuredPlan, request: StopRequest) -> int:
    from mpi_opt.configuration.plan import Plan

    if isinstance(task, Plan):
        from mpi_opt.cli.commands.search_commands import run_search

        return run_search(task, request)
    from mpi_opt.cli.commands.plan_command import run_measured

    return run_measured(task, request)


def _world() -> Any:
    from mpi_opt.messages.links import world_communicator

    return world_communicator()


def _task(arguments: list[str]) -> Any:
    """Runs the command on rank 0; returns a plan, a launch, or an exit status if there is nothing to run.

    Never raises, because the other ranks wait for the value.
    """
    try:
        return _run_on_first(arguments)
    except BaseException:  # noqa: BLE001 - the user's strategy may raise any exception
        with suppress(OSError):
            traceback.print_exc()
        return FAILED


def run(arguments: list[str]) -> Any:
    """Runs a command; returns its exit status, or what is to be run: a `Plan`, a `MeasuredPlan` or a `Launch`."""
    return _guarded(lambda: run_command(_app(), without_debug(arguments), "mpi-opt", arguments), DEBUG in arguments)


def _guarded(command: Callable[[], Any], debug: bool, default: int | None = FINISHED) -> Any:
    """Runs a command; returns its value, or `default` for None. Reports an expected error; returns its exit status."""
    try:
        value = command()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of standard output, such as head, has ended
        return FINISHED
    except (MPILearnError, OSError) as error:  # such as a full disk, or a folder without write permission
        _report(error, debug)
        if launched_rank() > 0 and isinstance(error, MPILearnError):
            return FINISHED  # mpirun drops the message of rank 0 if another rank ends first with an error
        if isinstance(error, MPILearnError) and error.is_temporary and restart_reason() is not None:
            return LOST if isinstance(error, RanksLost) else exit_status.lost(error)
        return error.exit_status if isinstance(error, MPILearnError) else FAILED
    return default if value is None else value


def _report(error: Exception, debug: bool) -> None:
    with suppress(OSError):  # on a full disk, the exit status says it
        if debug:
            print(without_passwords(traceback.format_exc()), end="", file=sys.stderr, flush=True)
        elif launched_rank() == 0 or isinstance(error, OSError):
            print(f"mpi-opt: {without_passwords(str(error))}", file=sys.stderr, flush=True)


def _app() -> typer.Typer:
    import typer

    from mpi_learn.cli.program_options import program_options
    from mpi_opt.cli.commands.plan_command import plan
    from mpi_opt.cli.commands.results_commands import best, dashboard, plot, report, results
    from mpi_opt.cli.commands.search_commands import check, search
    from mpi_opt.cli.commands.study_commands import ask, hint, new, status, tell

    app = typer.Typer(
        name="mpi-opt",
        help="Hyperparameter search over blocks of MPI ranks.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback(help=app.info.help)(program_options)
    for command in (search, check, plan, status, results, best, plot, report, dashboard, ask, tell, hint, new):
        app.command()(command)
    return app
