"""``python -m mpi_learn`` and ``mpi-learn``: train, check, prepare, trace."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mpi_learn.cli.exit_status import FINISHED, INTERRUPTED, LaunchMode
from mpi_learn.cli.launch import DEBUG, Launch, launch, starting, without_debug
from mpi_learn.cli.launchers import check_allocation, check_world, launched_rank
from mpi_learn.cli.program_options import program_options
from mpi_learn.cli.stop_request import StopRequest
from mpi_learn.errors import ConfigurationError, MPILearnError, TrainingError, UserError, without_passwords

app = typer.Typer(
    help="Trains one model on all ranks of one MPI communicator.", no_args_is_help=True, add_completion=False,
    pretty_exceptions_enable=False,
)  # fmt: skip

GRACE_S = 1.0
"""The one rank that speaks of lost ones has so long before the others end the job."""

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


app.callback(help=app.info.help)(program_options)


@app.command()
def train(
    context: typer.Context,
    training: Annotated[Path, typer.Argument(help="The training.yaml.", metavar="TRAINING.yaml")],
    n: Annotated[int | None, typer.Option("-n", help="Start mpirun with this many ranks.", min=1)] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for model, training.yaml and history.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the file's.", min=1)] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of the file's.", min=0)] = None,
    debug: Debug = False,
) -> None:
    """Trains one model on all ranks of the world."""
    request = context.obj or StopRequest()
    if n is not None:
        with _reported(None, debug):
            status = launch(Launch(["mpi_learn", *_without_n(sys.argv[1:])], n), request)
        raise typer.Exit(status)
    with _reported(None, debug):
        check_allocation()
    with starting():
        from mpi4py import MPI

    from mpi_learn.cli.epoch_view import make_view
    from mpi_learn.cli.interruption import Interruption
    from mpi_learn.mpi.communicators import agreed_errors
    from mpi_learn.training.loop import train as train_model
    from mpi_learn.training.result import save_result

    world = MPI.COMM_WORLD
    with _reported(None, debug):
        check_world(world.size, MPI.Get_library_version().split(",")[0].split("\n")[0])
    with _reported(world, debug):
        configuration = _configuration(training, world, {"epochs": epochs, "seed": seed}, output)
        interruption = Interruption(request, world, has_checkpoint=configuration.checkpoint is not None)
        with make_view(configuration.epochs, is_first=world.rank == 0) as view:
            unsavable = _Unsavable()
            result = train_model(
                configuration,
                world,
                on_epoch=interruption.after_epoch,
                progress=view,
                on_unsavable=unsavable if output is not None else None,
            )
        is_finished = interruption.reason is None or result.epochs >= configuration.epochs
        with agreed_errors(world):
            if world.rank == 0 and not is_finished:
                print(_continuation(interruption.reason, result.epochs, configuration), flush=True)
            elif world.rank == 0:
                saved = None
                if output is not None:
                    saved = save_result(output, configuration, result, is_whole=not unsavable.reason)
                with suppress(OSError):  # such as a full disk, or a reader who has enough: the training went well
                    print(_told(result))
                    print(
                        f"saved {saved}" if saved else "the model was not saved: --output FOLDER saves it", flush=True
                    )
    if world.rank == 0 and not is_finished:
        raise typer.Exit(request.status)


@app.command()
def check(
    training: Annotated[Path, typer.Argument(help="The training.yaml.", metavar="TRAINING.yaml")],
    debug: Debug = False,
) -> None:
    """Builds model and data and runs one batch forward and backward, in one process and without MPI."""
    with _reported(None, debug):
        from mpi_learn.mpi.library import do_without_mpi

        do_without_mpi()
        from mpi_learn.mpi.library import MPI
        from mpi_learn.training.check import check as checked

        print(checked(_configuration(training, MPI.COMM_SELF, {}, None), MPI.COMM_SELF))
        print(f"{training}: valid")


@app.command()
def prepare(
    name: Annotated[
        str | None, typer.Argument(help="digits, mnist, cifar10, jets, higgs or showers. Without it all are listed.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="The HDF5 file to write.")] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="A folder or URL with the original files. Without it they are downloaded."),
    ] = None,
    simulate: Annotated[
        int | None, typer.Option(help="jets and showers: simulate this many samples instead.", min=1)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the simulation. Default: 0.", min=0)] = None,
    classes: Annotated[
        int | None, typer.Option(help="Simulated jets: 2 (gluon, quark) or 5 (and W, Z, top). Default: 2.")
    ] = None,
    particles: Annotated[
        int | None, typer.Option(help="Simulated jets: particles that are kept of each jet. Default: 64.", min=1)
    ] = None,
    energy: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Range in GeV, of the transverse momentum of simulated jets (default: 500 1000) or of the energy of "
            "simulated showers (default: 10 100)."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Writes a known data set as HDF5 files: digits, mnist, cifar10, jets, higgs or showers.

    Without NAME, prints all of them with source, licence, shapes and units.
    """
    with _reported(None, debug):
        from mpi_learn.known_data import DATA_SETS
        from mpi_learn.known_data import prepare as write
        from mpi_learn.known_data.listing import listing

        if name is None:
            print(listing(DATA_SETS.values()))
            return
        if to is None:
            raise ConfigurationError("the file to write is missing", where="--to", cure=f"add --to {name}.h5")
        options = {"seed": seed, "classes": classes, "particles": particles, "energy": energy}
        given = {option: value for option, value in options.items() if value is not None}
        print(write(name, to, from_, simulate=simulate, **given))


@app.command()
def trace(
    folder: Annotated[Path, typer.Argument(help="Where the training wrote its timelines.", metavar="DIR")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The trace file to write.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Print what each rank spent its time on.")] = False,
    debug: Debug = False,
) -> None:
    """Merges the ranks' timelines to one Chrome or Perfetto trace."""
    with _reported(None, debug):
        from mpi_learn.settings.paths import write_whole
        from mpi_learn.training import tracing

        traces = tracing.read_traces(folder)
        if output is None and not summary:
            raise ConfigurationError("nothing to do", where="trace", cure="give -o trace.json, --summary, or both")
        if output is not None:
            write_whole(output, json.dumps(tracing.chrome_trace(traces)))
            print(f"{output}: open it at https://ui.perfetto.dev")
        if summary:
            print(tracing.summary(traces))


def _configuration(path: Path, world: Any, changes: dict[str, Any], output: Path | None) -> Any:
    """Read by rank 0, for one message, and for files that only its host has; which also makes the folder `output`."""
    from mpi_learn.mpi.communicators import agreed_errors
    from mpi_learn.settings.paths import make_folder
    from mpi_learn.settings.yaml_file import read_yaml
    from mpi_learn.training.configuration import read_configuration

    found = None
    with agreed_errors(world):
        if world.rank == 0:
            content = read_yaml(path) | {key: value for key, value in changes.items() if value is not None}
            found = read_configuration(content, directory=path.resolve().parent, where=str(path))
            if output is not None:
                make_folder(output, "--output")
    return world.bcast(found, root=0)


class _Unsavable:
    """Prints, before the first step, that only the weights of the model will be saved."""

    reason = ""

    def __call__(self, reason: str, lines: str) -> None:
        from mpi_learn.training.result import indented

        self.reason = reason
        with suppress(OSError):
            print(f"the model cannot be saved as a whole: {reason}", flush=True)
            print(f"its weights will be saved; to load them:\n{indented(lines)}", flush=True)


def _told(result: Any) -> str:
    """The training in one line."""
    ended = f", stopped by {result.stopped_by}" if result.stopped_by != "epochs" else ""
    return f"{result.epochs} epochs, {result.seconds:.1f} s, {result.samples_per_second:,.0f} samples/s{ended}"


def _continuation(reason: str, epochs: int, configuration: Any) -> str:
    """What became of a training that ended in order before its last epoch."""
    ended = f"ended after epoch {epochs} of {configuration.epochs}: {reason}"
    if configuration.checkpoint is None:
        return f"{ended}; without `checkpoint:` the same command starts from the beginning"
    return f"{ended}; the same command continues from {configuration.checkpoint.path}"


def _without_n(arguments: list[str]) -> list[str]:
    """The command line again without ``-n 4`` or ``-n4``."""
    kept, skip = [], False
    for argument in arguments:
        if skip or argument == "-n":
            skip = argument == "-n" and not skip
        elif not (argument.startswith("-n") and argument[2:].isdigit()):
            kept.append(argument)
    return kept


class _reported:  # noqa: N801 - used as a word: with _reported(world, debug)
    """Turns what is raised into one message from one rank and the exit status of the contract."""

    def __init__(self, world: Any, debug: bool) -> None:
        self.world, self.debug = world, debug

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None or isinstance(error, SystemExit):
            return False
        if isinstance(error, KeyboardInterrupt):
            os._exit(INTERRUPTED)  # the other ranks may wait for this one: MPI_Finalize would block
        if self.world is not None and (lost := _lost_ranks(self.world, error)):
            self._end_without(lost, error)
        is_agreed = isinstance(error, MPILearnError)
        if is_agreed and self.world is not None:
            self.world.Barrier()  # mpirun ends all ranks as soon as one ends badly: let the message out first
        if not is_agreed or (launched_rank() if self.world is None else self.world.rank) == 0:
            self._print(error)
        if is_agreed and self.world is not None:
            self.world.Barrier()
        if not is_agreed and self.world is not None and self.world.size > 1:
            self.world.Abort(1)
        raise typer.Exit(2 if isinstance(error, UserError) else 1)

    def _end_without(self, lost: set[int], error: BaseException) -> None:
        """The lowest rank that lives says which are lost, and the job ends; nothing collective works any more."""
        if self.world.rank == min(set(range(self.world.size)) - lost):
            names = ", ".join(map(str, sorted(lost)))
            text = f"rank {names} was lost: killed, out of memory or crashed"
            print(f"mpi-learn: {text}\n  → with `checkpoint:` the same command goes on", file=sys.stderr, flush=True)
            if self.debug:
                self._print(error)
        else:
            time.sleep(GRACE_S)
        self.world.Abort(1)

    def _print(self, error: BaseException) -> None:
        if isinstance(error, MPILearnError) and not self.debug:
            text = str(error) if isinstance(error, UserError) else _short(error)
        else:
            text = "".join(traceback.format_exception(error))
        print(f"mpi-learn: {without_passwords(text)}", file=sys.stderr, flush=True)


def _lost_ranks(world: Any, error: BaseException) -> set[int]:
    """The ranks whose death made `error`; none where it is another."""
    from mpi_learn.mpi.communicators import is_communication_error, lost_ranks

    return lost_ranks(world) if is_communication_error(error) else set()


def _short(error: MPILearnError) -> str:
    """A failed training in one line, and the traceback of the rank that raised: it is the user's code that failed."""
    if not isinstance(error, TrainingError):
        return str(error)
    return f"training failed on rank {error.rank} ({error.host}): {error.reason}\n{error.traceback}".rstrip()


def main(arguments: list[str] | None = None) -> None:
    """The console script: runs a command and ends the process with its exit status.

    Every command takes ``--debug``, which may also come before it.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    words = without_debug(arguments)
    command = partial(app, [*words, *([DEBUG] if DEBUG in arguments else [])], prog_name="mpi-learn")
    if words[:1] != ["train"]:
        command()
    mode = LaunchMode.take()
    request = StopRequest(heeds_warnings=mode is LaunchMode.DIRECT)
    with request.listening():  # from the start: mpirun passes signals on at any time
        try:
            command(obj=request)
            status = FINISHED
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else FINISHED
        sys.exit(mode.status(status, launched_rank()))
