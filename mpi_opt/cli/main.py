"""The command line ``mpi-opt``, the same as ``python -m mpi_opt``.

``search`` may be started by ``mpirun``: rank 0 alone reads the command line, files and space, and tells the other ranks
what to run, or that there is nothing to run. So a mistake is reported once and blocks no rank.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpi_learn.cli.launch import DEBUG, is_launched, launched_rank, starting, without_debug
from mpi_learn.errors import MPILearnError, UserError
from mpi_opt.errors import without_passwords

if TYPE_CHECKING:
    import typer

    from mpi_opt.api import Plan

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and ends the process with its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    is_search = without_debug(arguments)[:1] == ["search"]
    sys.exit(_search_everywhere(arguments) if is_search else _here(arguments))


def _here(arguments: list[str]) -> Any:
    """Runs a command in this process alone; of several launched processes only the first one does anything."""
    return run(arguments) if launched_rank() == 0 else DONE


def _search_everywhere(arguments: list[str]) -> int:
    """Runs ``search`` on every rank of the world: rank 0 reads the command line, all ranks run the plan."""
    with starting():  # what rank 0 reads first may begin MPI, too
        order = _ordered(arguments)
        from mpi_learn.mpi import communicators as communication
    if is_launched():
        from mpi_opt.api import the_world
        from mpi_opt.worker.watchdog import end_process

        world = the_world()
        try:
            order = order if world is None else communication.handed_out(world, order)
        except communication.FAILURES:
            end_process("rank 0 was lost before the search began")
    if isinstance(order, int):
        return order
    status = _guarded(lambda: _run_search(order), DEBUG in arguments)
    communication.exit_status = status
    return status


def _ordered(arguments: list[str]) -> Any:
    """The plan that rank 0 reads from the command, or an exit status if there is nothing to run.

    The other ranks wait for it, so that nothing may be raised here; code of the user may raise anything.
    """
    try:
        return _here(arguments)
    except BaseException:  # noqa: BLE001 - see above
        traceback.print_exc()
        return FAILED


def run(arguments: list[str]) -> Any:
    """Runs a command; returns its exit status, or the `Plan` of a search that is now to be run."""
    debug, arguments = DEBUG in arguments, without_debug(arguments)

    def command() -> Any:
        import typer
        from typer.exceptions import TyperException

        try:
            return _app()(arguments, standalone_mode=False, prog_name="mpi-opt")
        except typer.Exit as end:
            return end.exit_code
        except typer.Abort:
            return INTERRUPTED
        except TyperException as error:
            error.show()
            return BAD_INPUT

    return _guarded(command, debug)


def _guarded(command: Callable[[], Any], debug: bool) -> Any:
    """The value of `command`; an exit status for an error that a user can fix or should know, with one message."""
    try:
        value = command()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of standard output, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (MPILearnError, OSError) as error:  # such as a full disk, or a folder without write permission
        if debug:
            print(without_passwords(traceback.format_exc()), end="", file=sys.stderr, flush=True)
        elif launched_rank() == 0 or isinstance(error, OSError):
            print(f"mpi-opt: {without_passwords(str(error))}", file=sys.stderr, flush=True)
        return BAD_INPUT if isinstance(error, UserError) else FAILED
    return DONE if value is None else value


def _app() -> typer.Typer:
    import typer

    from mpi_learn.cli.program_options import program_options
    from mpi_opt.cli import ask_tell_commands, new_command, plan_command, results_commands, search_commands

    app = typer.Typer(
        name="mpi-opt",
        help="Hyperparameter search over blocks of MPI ranks.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback(help=app.info.help)(program_options)
    search_commands.register(app)
    plan_command.register(app)
    results_commands.register(app)
    ask_tell_commands.register(app)
    new_command.register(app)
    return app


def _run_search(plan: Plan) -> None:
    from mpi_opt.cli.search_commands import run_search

    run_search(plan)
