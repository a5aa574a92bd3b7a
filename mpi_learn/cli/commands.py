"""``python -m mpi_learn`` and ``mpi-learn``: train, check, prepare, trace."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mpi_learn.cli.debug_option import DEBUG, without_debug
from mpi_learn.cli.error_report import reported
from mpi_learn.cli.program_options import HostfileOption, RestartsOption, program_options
from mpi_learn.cli.run_command import drop_unwritten, print_if_possible, run_command
from mpi_learn.cli.terminal import prepare_output
from mpi_learn.errors import ConfigurationError, MPILearnError, UserError
from mpi_learn.job import exit_status
from mpi_learn.job.exit_status import FINISHED, LaunchMode
from mpi_learn.job.launch import Launch, check_launch_options, launch, without_launch_options
from mpi_learn.job.restarts import Restarts, WorkDone
from mpi_learn.job.started_by import check_allocation, check_world, is_launched, launched_rank
from mpi_learn.job.stop_request import StopRequest
from mpi_learn.job.time_limits import start_limit

if TYPE_CHECKING:
    from mpi_learn.mpi.communicators import Communicator
    from mpi_learn.training.configuration import TrainingConfiguration
    from mpi_learn.training.result import Result

app = typer.Typer(
    help="Distributed training of Keras and PyTorch models over MPI.", no_args_is_help=True, add_completion=False,
    pretty_exceptions_enable=False,
)  # fmt: skip

WAITING = """\
`validation: {mode: thread}` has no effect: every epoch waits for its validation, because it has a checkpoint
  → write `checkpoint: {every: 5}`, or another number above 1"""

app.callback(help=app.info.help)(program_options)


@dataclass(frozen=True)
class Invocation:
    """The object of Typer's context.

    Attributes:
        arguments: The command line without the name of the program.
        request: Receives the signals of this process.
    """

    arguments: list[str]
    request: StopRequest


@app.command()
def train(
    context: typer.Context,
    training: Annotated[Path, typer.Argument(help="Configuration of the training.", metavar="TRAINING.yaml")],
    n: Annotated[int | None, typer.Option("-n", help="Start mpirun with this number of ranks.", min=1)] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for model, training.yaml and history.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs; overrides the file.", min=1)] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random numbers; overrides the file.", min=0)] = None,
    restarts: RestartsOption = None,
    hostfile: HostfileOption = None,
) -> None:
    """Train one model on all ranks that mpirun has started, otherwise in one process."""
    invocation: Invocation = context.obj
    request = invocation.request
    if n is not None:
        again = None
        if restarts is not None:
            again = Restarts(restarts, partial(_latest_checkpoint, training), rank_0_trains=True)
        command = ["mpi_learn", *without_launch_options(invocation.arguments)]
        raise typer.Exit(launch(Launch(command, n, hostfile, again), request))
    check_launch_options(restarts, hostfile)
    check_allocation()
    with start_limit():
        from mpi_learn.mpi.library import MPI
    world = MPI.COMM_WORLD
    check_world(world.size, MPI.Get_library_version())
    with reported(world, DEBUG in invocation.arguments):
        configuration = _configuration(training, world, {"epochs": epochs, "seed": seed}, output)
        with _errors_in(training):
            is_finished = _train(configuration, world, request, output)
        drop_unwritten()  # the training has succeeded: lines that a full disk has refused are no error
    if world.rank == 0 and not is_finished:
        raise typer.Exit(request.status)


def _latest_checkpoint(path: Path) -> WorkDone | None:
    """The time of the latest checkpoint of a training; None if it cannot be read."""
    from mpi_learn.settings.yaml_file import read_yaml
    from mpi_learn.training.configuration import read_configuration

    try:
        section = read_configuration(read_yaml(path), directory=path.resolve().parent, where=str(path)).checkpoint
        if section is None:
            return WorkDone(0, "without `checkpoint:` the training starts from the beginning")
        times = [file.stat().st_mtime_ns for file in section.path.glob("*") if file.is_file()]
    except (MPILearnError, OSError):  # rank 0 reports it, if it is an error of the user
        return None
    at = f"of {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(max(times) / 1e9))}" if times else "is not there yet"
    return WorkDone(max(times, default=0), f"the latest checkpoint {at}")


def _train(
    configuration: TrainingConfiguration, world: Communicator, request: StopRequest, output: Path | None
) -> bool:
    """Trains, saves the model in `output`, and prints the result on rank 0. Collective over `world`.

    Returns:
        Whether all epochs were trained; False after a request to end.
    """
    from mpi_learn.cli.error_report import Interruption
    from mpi_learn.cli.terminal import make_view
    from mpi_learn.mpi.communicators import agreed_errors
    from mpi_learn.training.train import train as train_model

    interruption = Interruption(request, world, configuration)
    if world.rank == 0 and configuration.validation.mode == "thread" and not configuration.validates_in_thread:
        print_if_possible(WAITING)
    unsavable = _SavingWarning()
    with make_view(configuration.epochs, is_first=world.rank == 0) as view:
        result = train_model(
            configuration,
            world,
            on_begin=interruption.before_first_epoch,
            on_epoch=interruption.after_epoch,
            progress=view,
            on_note=lambda note: print_if_possible(f"note: {note}"),
            on_unsavable=unsavable if output is not None else None,
            output=output,
        )
    # a request during the last epoch does not make a training unfinished
    ended_by = interruption.reason if result.epochs < configuration.epochs else None
    with agreed_errors(world):  # saving may fail on rank 0, and the other ranks have to end with its status
        if world.rank == 0 and ended_by is not None:
            print_if_possible(_continuation(ended_by, result.epochs, configuration))
        elif world.rank == 0:
            _save(result, configuration, output, is_whole=not unsavable.reason)
    return ended_by is None


def _save(result: Result, configuration: TrainingConfiguration, output: Path | None, *, is_whole: bool) -> None:
    """Saves the model in `output`, if given, and prints a summary."""
    from mpi_learn.training.result import save_result

    saved = None if output is None else save_result(output, configuration, result, is_whole=is_whole)
    if result.epochs_before == result.epochs:
        print_if_possible(_nothing_trained(result, configuration.epochs))
    print_if_possible(_summary(result))
    print_if_possible(f"saved {saved}" if saved else "the model was not saved: --output FOLDER saves it")


@app.command()
def check(
    training: Annotated[Path, typer.Argument(help="Configuration of the training.", metavar="TRAINING.yaml")],
) -> None:
    """Build model and data, and run one batch forward and backward. Needs no MPI."""
    from mpi_learn.mpi.library import use_one_process

    use_one_process()
    from mpi_learn.mpi.library import MPI
    from mpi_learn.training.train import check as checked

    configuration = _configuration(training, MPI.COMM_SELF, {}, None)
    with _errors_in(training):
        print(checked(configuration, MPI.COMM_SELF))
    print(f"{training}: valid")


@app.command()
def prepare(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the data set. Without it, all are listed.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="HDF5 file to write.")] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Folder or URL with the original files. Without it, they are downloaded."),
    ] = None,
    simulate: Annotated[
        int | None,
        typer.Option(help="jets (with the extra hep) and showers: simulate this number of samples instead.", min=1),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the simulation. Default: 0.", min=0)] = None,
    classes: Annotated[
        int | None, typer.Option(help="Simulated jets: 2 (gluon, quark) or 5 (and W, Z, top). Default: 2.")
    ] = None,
    particles: Annotated[
        int | None, typer.Option(help="Simulated jets: number of particles kept per jet. Default: 64.", min=1)
    ] = None,
    energy: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Range in GeV, of the transverse momentum of simulated jets (default: 500 1000) or of the energy of "
            "simulated showers (default: 10 100)."
        ),
    ] = None,
) -> None:
    """Write a known data set as HDF5 files: digits, mnist, cifar10, jets, higgs or showers.

    Without NAME, list all data sets with source, licence, shapes and units.
    """
    from mpi_learn.known_data import DATA_SETS, find_data_set
    from mpi_learn.known_data import prepare as write
    from mpi_learn.known_data.preparation import listing

    if name is None:
        print(listing(DATA_SETS.values()))
        return
    find_data_set(name)
    if to is None:
        raise ConfigurationError("the file to write is missing", where="--to", cure=f"add --to {name}.h5")
    options = {"seed": seed, "classes": classes, "particles": particles, "energy": energy}
    given = {option: value for option, value in options.items() if value is not None}
    print(write(name, to, from_, simulate=simulate, **given))


@app.command()
def trace(
    folder: Annotated[Path, typer.Argument(help="Folder with the timelines of the training.", metavar="DIR")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Trace file to write.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Print how each rank spent its time.")] = False,
) -> None:
    """Merge the timelines of the ranks into one Chrome or Perfetto trace."""
    from mpi_learn.settings.paths import make_folder, write_whole
    from mpi_learn.training.timing import tracing

    traces = tracing.read_traces(folder)
    if output is None and not summary:
        raise ConfigurationError("nothing to do", where="trace", cure="give -o trace.json, --summary, or both")
    if output is not None:
        if output.is_dir():
            raise ConfigurationError(
                "this is a folder", where=f"--output: {output}", cure=f"write -o {output / 'trace.json'}"
            )
        make_folder(output.parent, "--output")
        write_whole(output, json.dumps(tracing.chrome_trace(traces)))
        print(f"{output}: open it at https://ui.perfetto.dev")
    if summary:
        print(tracing.summary(traces))


def _configuration(
    path: Path, world: Communicator, changes: dict[str, Any], output: Path | None
) -> TrainingConfiguration:
    """Reads the configuration and creates the folder `output` on rank 0. Collective over `world`.

    Only rank 0 reads the file: other hosts may not have it, and an error is printed once.
    """
    from mpi_learn.mpi.communicators import result_of_rank
    from mpi_learn.settings.paths import make_folder
    from mpi_learn.settings.yaml_file import read_yaml
    from mpi_learn.training.configuration import read_configuration

    def read() -> TrainingConfiguration:
        content = read_yaml(path) | {key: value for key, value in changes.items() if value is not None}
        found = read_configuration(content, directory=path.resolve().parent, where=str(path))
        if output is not None:
            make_folder(output, "--output")
        return found

    return result_of_rank(world, read)


@contextmanager
def _errors_in(path: Path) -> Iterator[None]:
    """Adds the name of the configuration to errors about data and model."""
    try:
        yield
    except UserError as error:
        raise error.at(str(path)) from error


class _SavingWarning:
    """Prints before the first step that only the weights of the model will be saved."""

    reason = ""

    def __call__(self, reason: str, lines: str) -> None:
        from mpi_learn.training.result import indented

        self.reason = reason
        print_if_possible(f"the model cannot be saved as a whole: {reason}")
        print_if_possible(f"its weights will be saved; to load them:\n{indented(lines)}")


def _summary(result: Result) -> str:
    """A summary of the training in one line."""
    ended = f", stopped by {result.stopped_by}" if result.stopped_by != "epochs" else ""
    return f"{result.epochs} epochs, {result.seconds:.1f} s, {result.samples_per_second:,.0f} samples/s{ended}"


def _nothing_trained(result: Result, epochs: int) -> str:
    """Why a checkpoint has left no epoch to train."""
    if result.stopped_by in ("early_stopping", "target"):
        return f"no epoch was trained: {result.stopped_by} has ended this training after epoch {result.epochs}"
    return f"no epoch was trained: the checkpoint has {result.epochs} epochs, and `epochs: {epochs}` includes them"


def _continuation(reason: str, epochs: int, configuration: TrainingConfiguration) -> str:
    """The message about a training that ended before its last epoch."""
    ended = f"ended after epoch {epochs} of {configuration.epochs}: {reason}"
    if configuration.checkpoint is None:
        return f"{ended}; without `checkpoint:` the same command starts from the beginning"
    return f"{ended}; the same command continues from {configuration.checkpoint.path}"


def main(arguments: list[str] | None = None) -> None:
    """The console script: runs a command and ends the process with its exit status.

    Every command accepts ``--debug``, also before the command.
    """
    prepare_output()
    arguments = sys.argv[1:] if arguments is None else arguments
    is_training = without_debug(arguments)[:1] == ["train"]
    status = _run_training(arguments) if is_training else _run(arguments)
    drop_unwritten()
    if is_training and is_launched():
        exit_status.limit_end(launched_rank(), status)
    sys.exit(status)


def _run_training(arguments: list[str]) -> int:
    """Runs ``train``, which takes requests to end into account; returns the exit status of this rank."""
    mode = LaunchMode.from_environment()
    request = StopRequest(heeds_warnings=mode is LaunchMode.DIRECT)
    with request.listening():  # from the start: mpirun may forward signals at any time
        return mode.report(_run(arguments, Invocation(arguments, request)), launched_rank())


def _run(arguments: list[str], invocation: Invocation | None = None) -> int:
    """Runs a command; returns its exit status."""
    try:
        with reported(None, DEBUG in arguments):
            return run_command(app, without_debug(arguments), "mpi-learn", invocation) or FINISHED
    except typer.Exit as end:
        return end.exit_code
