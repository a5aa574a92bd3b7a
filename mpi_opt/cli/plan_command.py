"""The command that shows the role of each rank: ``plan``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mpi_opt.cli.override_options import Changes, SpaceFile, overriding, written

if TYPE_CHECKING:
    from mpi_learn.algorithms.rank_layout import RankLayout
    from mpi_opt.configuration.configuration import StudyConfiguration


@overriding
def plan(
    space: SpaceFile,
    changes: Changes,
    n: Annotated[int, typer.Option("-n", help="Number of ranks.", min=1)],
    slurm: Annotated[bool, typer.Option("--slurm", help="Print a batch script instead.")] = False,
) -> None:
    """Print the role of each of N ranks, or a batch script that starts the search. Needs no MPI."""
    from mpi_opt.configuration.configuration import read_study
    from mpi_opt.views.text.rank_plan import slurm_script

    configuration = read_study(space, changes)
    if slurm:
        print(slurm_script(shlex.join([str(space), *written(changes)]), n))
    else:
        show_plan(configuration, n)


def show_plan(configuration: StudyConfiguration, n: int) -> None:
    """Prints the role of each of `n` ranks."""
    from rich.console import Console

    from mpi_opt.strategies import NOT_LEARNING
    from mpi_opt.views.text.rank_picture import picture
    from mpi_opt.views.text.rank_plan import plan_text, recommendation

    layout, wanted = configuration.layout(n), configuration.search.trials
    console = Console(highlight=False, soft_wrap=True)
    console.print(plan_text(layout, wanted), markup=False)
    if not layout.is_serial:
        console.print(picture(layout, wanted, _training_layout(configuration), console.width), end="\n\n")
    does_learn = configuration.search.strategy not in NOT_LEARNING
    note = recommendation(
        layout,
        wanted,
        configuration.folds.stop_early,
        learns=does_learn,
        depends_on_ranks=not configuration.has_total_batch,
    )
    if note:
        console.print(f"note: {note}", style="yellow", markup=False)


def _training_layout(configuration: StudyConfiguration) -> Callable[[int], RankLayout]:
    """A function from the number of ranks of a fold to their roles: equal, or those of the training algorithm."""
    from mpi_learn.algorithms.rank_layout import make_rank_layout, rank_layout_of

    if configuration.training is None:
        return make_rank_layout
    from mpi_learn.algorithms.configuration import LayoutKeys
    from mpi_learn.settings.validation import validated
    from mpi_opt.configuration.placeholders import filled

    wanted = {key: value for key, value in configuration.training.items() if key in LayoutKeys.model_fields}
    keys = validated(LayoutKeys, filled(wanted, configuration.search_space().centre()), "training")
    return partial(rank_layout_of, keys.algorithm, stages=keys.n_stages)
