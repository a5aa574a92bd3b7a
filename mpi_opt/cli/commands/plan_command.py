"""The command that shows the role of each rank, and measures how many a block should have: ``plan``."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mpi_opt.cli.store_options import Changes, SpaceFile, overriding, written
from mpi_opt.errors import ConfigurationError

if TYPE_CHECKING:
    from mpi_learn.job.stop_request import StopRequest
    from mpi_opt.configuration.configuration import StudyConfiguration
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.core.objective import WorkerPlan


@dataclass(frozen=True)
class MeasuredPlan:
    """A scalability report that is to be made.

    Attributes:
        plan: The plan of the study on the ranks that measure.
        configuration: The study for which it is made.
        n_ranks: The number of ranks for which it is made.
        html, figure: The files that are also written; None: none.
    """

    plan: Plan
    configuration: StudyConfiguration
    n_ranks: int
    html: Path | None
    figure: Path | None

    @property
    def worker_plan(self) -> WorkerPlan:
        """The part for ranks that train."""
        return self.plan.worker_plan


@overriding
def plan(
    context: typer.Context,
    space: SpaceFile,
    changes: Changes,
    n: Annotated[int, typer.Option("-n", help="Number of ranks.", min=1)],
    slurm: Annotated[bool, typer.Option("--slurm", help="Print a batch script instead.")] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Train a few steps on 1, 2, 4, … ranks, under mpirun or on the cores of this machine, and print the "
            "speed-up and the best number of ranks per block.",
        ),
    ] = False,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks", min=2, help="--measure: number of ranks that mpirun starts; default: one more than cores."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="--measure: also write this page.")] = None,
    output: Annotated[Path | None, typer.Option("-o", help="--measure: also draw this FILE.png, .svg or .pdf.")] = None,
) -> Any:
    """Print the role of each of N ranks, or a batch script that starts the search. Needs no MPI without --measure."""
    from mpi_opt.configuration.read_study import read_study
    from mpi_opt.views.text.rank_plan import slurm_script

    configuration = read_study(space, changes)
    if measure:
        from mpi_opt.core.counted import counted

        if n < 3:
            problem = f"{counted(n, 'rank')} can have no block of several ranks: there is nothing to compare"
            raise ConfigurationError(problem, where="-n", cure="write -n 3 or more")
        return _measured_plan(configuration, space, context.obj, n, ranks, html, output)
    for option, value in {"--ranks": ranks, "--html": html, "-o": output}.items():
        if value is not None:
            raise ConfigurationError("needs --measure", where=option, cure="add --measure, or remove it")
    if slurm:
        print(slurm_script(shlex.join([str(space), *written(changes)]), n))
    else:
        show_plan(configuration, n)
    return None


def _measured_plan(
    configuration: StudyConfiguration,
    space: Path,
    arguments: list[str],
    n: int,
    ranks: int | None,
    html: Path | None,
    figure: Path | None,
) -> Any:
    """The report that is to be made on the ranks of this job; without one, the job that is to be started for it.

    Raises:
        UserError: The training, or the name of a file, is invalid.
    """
    from mpi_learn.environment import n_cores
    from mpi_learn.job.launch import Launch
    from mpi_opt.cli.rank_logs import make_log_folder
    from mpi_opt.configuration.combinations import check_measurable
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.configuration.sections import BlocksSection
    from mpi_opt.messages.links import world_communicator
    from mpi_opt.objectives.make_objective import check_objective, make_objective

    check_measurable(configuration, "--measure")
    directory = space.resolve().parent
    check_objective(configuration, configuration.search_space(), directory, str(space))
    configuration.layout(n)  # before the measurement: it may be impossible
    for path in (html, figure):
        if path is not None and not path.resolve().parent.is_dir():
            problem = f"the folder {path.parent} does not exist"
            raise ConfigurationError(problem, where=str(path), cure=f"mkdir -p {path.parent}")
    if figure is not None:
        _check_figure(figure)
    world = world_communicator()
    if world is None:
        return Launch(["mpi_opt", *arguments], ranks or min(n, n_cores() + 1))
    make_log_folder(configuration.file_name)
    measured = configuration.model_copy(update={"blocks": BlocksSection()})
    made = Plan(measured, directory, make_objective(measured, directory), world.size)
    return MeasuredPlan(made, configuration, n, html, figure)


def run_measured(task: MeasuredPlan, request: StopRequest) -> int:
    """Measures on the ranks of this job, and prints the report. Called on rank 0.

    Returns:
        The exit status.
    """
    from mpi_learn.job.exit_status import FINISHED
    from mpi_opt.api import measure_study
    from mpi_opt.coordinator.measuring import scalability_of
    from mpi_opt.messages.links import world_communicator
    from mpi_opt.views.series.scalability import save_scalability_page, scalability_text

    world, configuration = world_communicator(), task.configuration
    assert world is not None, "checked when the task was made"
    curves = measure_study(task.plan, world, request, lambda text: print(text, file=sys.stderr, flush=True))
    found = scalability_of(configuration, curves, task.n_ranks, configuration.search.trials)
    depends = not configuration.has_total_batch
    print(scalability_text(configuration.study, found, depends_on_ranks=depends), flush=True)
    if task.html is not None:
        save_scalability_page(configuration.study, found, task.html, depends_on_ranks=depends)
    if task.figure is not None:
        from mpi_opt.views.figures.plots import save
        from mpi_opt.views.figures.scalability import scalability

        save(scalability(configuration.study, found, depends_on_ranks=depends), task.figure)
    return FINISHED


def _check_figure(path: Path) -> None:
    """Verifies, before the measurement, that the figure can be drawn.

    Raises:
        ConfigurationError: The suffix is unknown, or matplotlib is missing.
    """
    from mpi_opt.cli.commands.results_commands import needing_matplotlib

    with needing_matplotlib():
        from mpi_opt.views.figures.plots import check_suffix
    check_suffix(path)


def show_plan(configuration: StudyConfiguration, n: int) -> None:
    """Prints the role of each of `n` ranks."""
    from rich.console import Console

    from mpi_opt.configuration.plan import training_layout
    from mpi_opt.core.block_layout import MEASURED
    from mpi_opt.strategies import NOT_LEARNING
    from mpi_opt.views.text.rank_plan import picture, plan_text, recommendation

    layout, wanted = configuration.layout(n), configuration.search.trials
    console = Console(highlight=False, soft_wrap=True)
    console.print(plan_text(layout, wanted), markup=False)
    if not layout.is_serial:
        console.print(picture(layout, wanted, training_layout(configuration), console.width), end="\n\n")
    does_learn = configuration.search.strategy not in NOT_LEARNING
    note = recommendation(
        layout,
        wanted,
        configuration.folds.stop_early,
        learns=does_learn,
        depends_on_ranks=not configuration.has_total_batch,
    )
    if configuration.blocks.size == MEASURED and not layout.is_serial:
        note = "these are the smallest blocks; the search first measures which size is best (--measure: now)"
    if note:
        console.print(f"note: {note}", style="yellow", markup=False)
