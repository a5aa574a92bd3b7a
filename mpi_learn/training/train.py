"""`train`: the whole training, from the configuration to the result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from mpi_learn.data.samples.batches import Dataset
from mpi_learn.environment import choose_gpu
from mpi_learn.errors import ConfigurationError
from mpi_learn.mpi.communicators import Communicator, agreed_errors, private, result_of_rank
from mpi_learn.training.checkpoints.checkpoint_file import KeptEpoch
from mpi_learn.training.configuration import TrainingConfiguration, read_configuration
from mpi_learn.training.context import open_context
from mpi_learn.training.loop import OnBegin, OnEpoch, Progress, Training
from mpi_learn.training.ranks.same_model import same_code
from mpi_learn.training.result import OnUnsavable, Result, check_saving
from mpi_learn.training.setup import build_model
from mpi_learn.training.timing.timed_choices import choose_compiler, with_batch_size
from mpi_learn.training.timing.tracing import Timeline


def train(
    configuration: TrainingConfiguration | dict[str, Any] | Path | str,
    comm: Communicator,
    *,
    data: Dataset | None = None,
    on_begin: OnBegin | None = None,
    on_epoch: OnEpoch | None = None,
    progress: Progress | None = None,
    on_note: Callable[[str], None] | None = None,
    on_unsavable: OnUnsavable | None = None,
    output: Path | None = None,
    kept: KeptEpoch | None = None,
    timeline: Timeline | None = None,
) -> Result:
    """Trains the model of `configuration` on all ranks of `comm`. Collective over `comm`.

    All messages travel over a duplicate of `comm`: they do not mix with messages of the caller. Rank 0 reads the Python
    files of the user's functions once, and all ranks run these: edits during the training apply to the next one.

    Args:
        configuration: A validated one, a file, or its content as a dict, whose paths are relative to the current
            folder.
        comm: All its ranks call this function with the same configuration.
        data: Samples in memory, used instead of ``configuration.data``; the same on all ranks.
        on_begin: Called on every rank before the first epoch, when data, model and checkpoint are loaded.
        on_epoch: Called on every rank after every epoch with the number of the epoch, from 0, and its metrics, the same
            on all ranks. It returns whether to stop, the same on all ranks.
        progress: Called on rank 0 after every epoch.
        on_note: Called on rank 0 before the first step with each sentence that a user should know, for example that the
            result depends on the number of ranks; see `Model.notes`. Given on all ranks or on none.
        on_unsavable: Called on rank 0 before the first step if the model cannot be saved as a whole, with the reason
            and the lines of Python that load its weights. None: this is not tested. Given on all ranks or on none.
        output: The folder in which the model will be saved, and in which `on_unsavable` is tested.
        kept: Where each rank keeps the last finished epoch in memory. If a rank has one of an earlier call with the
            same configuration, on any communicator, the training continues from the newest. Given on all ranks or on
            none.
        timeline: Receives the spans of this rank, in place of the files of ``configuration.trace``.

    Returns:
        The result, the same on every rank, with the trained model.

    Raises:
        UserError: Invalid configuration, data or model; raised before the first step, the same on every rank.
        SavingError: The model or a checkpoint cannot be written; the same on every rank.
        TrainingError: A rank failed; the same on every rank, with the traceback of that rank.
    """
    choose_gpu()
    with private(comm) as own:
        with agreed_errors(own):
            if not isinstance(configuration, TrainingConfiguration):
                configuration = read_configuration(configuration)
            if data is not None and not isinstance(data, Dataset):
                raise ConfigurationError(
                    f"expected a mpi_learn.data.samples.batches.Dataset, found {type(data).__name__}",
                    where="data",
                    cure="write arrays to an HDF5 file, and name it in the configuration's section `data`",
                )
        with same_code(configuration, own), open_context(configuration, own, data) as opened:
            context, choice = with_batch_size(opened)
            with closing(build_model(context)) as model:
                choose_compiler(context, model)
                with Training(context, model, kept, timeline) as training:
                    if on_note is not None:
                        notes = result_of_rank(own, lambda: tuple(model.notes), context.first_worker)
                        for note in filter(None, (choice, *notes)) if own.rank == 0 else ():
                            on_note(note)
                    if on_unsavable is not None:
                        check_saving(own, model, context.first_worker, on_unsavable, output)
                    training.run(on_epoch, progress, on_begin)
                return training.result()
