"""Writes a training into a checkpoint and continues from one. Rank 0 reads and writes the file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm
from mpi_learn.errors import ConfigurationError, SavingError
from mpi_learn.models.model import Model
from mpi_learn.models.network import ArrayKind
from mpi_learn.mpi.communicators import agreed_errors
from mpi_learn.optimizers.learning_rate import LearningRate
from mpi_learn.settings.paths import make_folder
from mpi_learn.training.checkpoints.checkpoint_file import (
    DamagedCheckpoint,
    KeptEpoch,
    NamedArrays,
    SavedTraining,
    UnusableCheckpoint,
    broadcast_checkpoint,
    check_complete,
    check_format,
    check_same,
    check_stages,
    gather_arrays,
    load_checkpoint,
    load_metadata,
    save_checkpoint,
    scatter_arrays,
)
from mpi_learn.training.checkpoints.inputs import note_on_changes, versions_of_inputs
from mpi_learn.training.context import TrainingContext
from mpi_learn.training.sections import Checkpoint
from mpi_learn.training.state import State

OF_STAGE, OUTLINE = "stage.", "outline_of_stage"
"""Names of the arrays of a rank that belong to the checkpoint of its stage."""


class Checkpointing:
    """The checkpoints of one training: they hold its model, algorithm, state and learning rate.

    Args:
        kept: Where this rank keeps the last epoch, and from where a training continues; given on all ranks or on none.
    """

    def __init__(
        self,
        context: TrainingContext,
        model: Model,
        algorithm: Algorithm,
        state: State,
        rate: LearningRate,
        kept: KeptEpoch | None = None,
    ) -> None:
        self.configuration, self.comm, self.first_worker = context.configuration, context.comm, context.first_worker
        self.model, self.algorithm, self.state, self.rate = model, algorithm, state, rate
        self.peers, self.layout, self.n_stages = context.peers, context.layout, context.layout.stages
        self.kept = kept if self.n_stages == 1 else None  # a stage alone cannot continue on other ranks
        if self.kept is not None:
            # some models are refused on several ranks, after checks that one rank does not need
            is_unchecked = model.has_custom_loss or model.divides_by_weights or model.synchronizes_statistics
            self.kept.is_bound = model.depends_on_ranks or (context.n_workers == 1 and is_unchecked)
        self._written_s = time.monotonic()
        # now, because the training has just read them; rank 0 writes the checkpoint
        has_inputs = self.configuration.checkpoint is not None and self.comm.rank == 0
        self._inputs = versions_of_inputs(self.configuration) if has_inputs else {}

    def is_due(self, epoch: int, *, is_end: bool = False) -> bool:
        """Whether a checkpoint is written after an epoch, counted from 0. Collective.

        Args:
            is_end: Whether the training ends after this epoch, although it may not be the last one.
        """
        section, n_done = self.configuration.checkpoint, epoch + 1
        if section is None:
            return False
        is_end = is_end or n_done == self.configuration.epochs
        if n_done % section.every == 0 or (is_end and not section.provisional):
            return True
        if section.interval_s is None:
            return False
        # by the clock of rank 0: writing is collective
        return bool(self.comm.bcast(time.monotonic() - self._written_s >= section.interval_s, root=0))

    def keep(self) -> None:
        """Keeps this epoch in memory if the caller of the training wants it. Collective."""
        if self.kept is not None:
            with agreed_errors(self.comm):
                integers = self.model.state.integers()[np.newaxis]
                self.kept.keep(self._snapshot(integers, self.model.uses_xla, first_worker=0))

    def save(self) -> None:
        """Writes a checkpoint. Collective; to be called if one is due.

        Raises:
            SavingError: It cannot be written, and is not provisional.
        """
        self._written_s = time.monotonic()  # also if it fails: a full disk is not tried again after each epoch
        section = self.configuration.checkpoint
        assert section is not None, "without a section, no checkpoint is due"
        try:
            self._write(section)
        except SavingError as error:
            if not section.provisional:
                raise
            if self.comm.rank == 0:
                print(f"{error}\nthe training continues without it", flush=True)

    def _write(self, section: Checkpoint) -> None:
        with agreed_errors(self.comm):
            integers, own = self.model.state.integers(), self.algorithm.rank_state()
            if self.n_stages > 1 and self.comm.rank < self.n_stages:  # of one replica: the others are the same
                own = own | as_rank_arrays(self._snapshot(integers[None], False, self.first_worker))
        of_ranks = self.comm.gather(integers, root=0)
        uses_xla = self.comm.bcast(self.model.uses_xla, root=self.first_worker)  # a master has no step
        with agreed_errors(self.comm), gather_arrays(self.comm, own) as rank_arrays:
            if of_ranks is not None:
                snapshot = self._snapshot(stacked(of_ranks), uses_xla, self.first_worker)
                snapshot.metadata["inputs"] = self._inputs
                save_checkpoint(section.path, snapshot, rank_arrays)

    def resume(self, on_note: Callable[[str], None] | None = None) -> None:
        """Continues from the newest epoch that a rank keeps, or else from a checkpoint if there is one. Collective.

        Args:
            on_note: Called on rank 0 if files have changed since the checkpoint was written.

        Raises:
            UnusableCheckpoint: The checkpoint belongs to another training or model, or cannot be read.
        """
        if self.kept is None or not self._continue(self.kept):
            self._resume_from_file(on_note)

    def _continue(self, kept: KeptEpoch) -> bool:
        """Continues from the newest epoch that a rank of this training keeps; returns whether there is one."""
        n_epochs = self.comm.allgather(kept.n_epochs)
        newest = max(n_epochs)
        if newest == 0:
            return False
        root = n_epochs.index(newest)
        found = broadcast_checkpoint(self.comm, kept.saved if self.comm.rank == root else None, root)
        assert found is not None, "rank `root` keeps an epoch"
        with agreed_errors(self.comm):
            self._restore(found, "the epoch in memory")
            self._restore_same(found, {}, "the epoch in memory")
            kept.keep(found)  # a rank that had an older one, or none
        return True

    def _resume_from_file(self, on_note: Callable[[str], None] | None) -> None:
        if (section := self.configuration.checkpoint) is None:
            return
        loaded: SavedTraining | None = None
        is_same = True
        with agreed_errors(self.comm):
            if self.comm.rank == 0:
                loaded, is_same = _load(section)
        is_same = self.comm.bcast(is_same, root=0)
        found = broadcast_checkpoint(self.comm, loaded)
        if found is None:
            return
        folder = section.path if is_same else section.start_from
        where = f"checkpoint {folder}"
        with agreed_errors(self.comm), _unusable_if_unfit():
            check_format(found, where)
            check_stages(found, self.n_stages, where)
        if self.n_stages > 1:
            assert folder is not None
            found = self._of_stage(found, folder)
        with agreed_errors(self.comm), _unusable_if_unfit():
            if is_same:
                # what belongs to single ranks, such as random states, begins again on another number of them
                is_rank_known = len(found.arrays["counters"]) == self.comm.size
                known = range(self.comm.size) if is_rank_known else ()
                rank_arrays = scatter_arrays(self.comm, section.path, known)
                check_same(found.metadata["training"], self.configuration.model_dump(mode="json"), where)
                self._restore(found, where)
                self._restore_same(found, rank_arrays, where)
                if on_note is not None and self.comm.rank == 0:
                    before = found.metadata.get("inputs", self._inputs)  # an earlier version has not recorded them
                    if note := note_on_changes(before, self._inputs, where):
                        on_note(note)
            else:
                self._restore(found, where)

    def _of_stage(self, found: SavedTraining, folder: Path) -> SavedTraining:
        """The checkpoint of this rank's stage in that of the training; see `save`. Collective."""
        with agreed_errors(self.comm):
            arrays = scatter_arrays(self.comm, folder, range(self.n_stages))
        own = from_rank_arrays(arrays) if self.peers.rank == 0 else None
        own = broadcast_checkpoint(self.peers, own)
        assert own is not None
        return SavedTraining(own.metadata, own.arrays | {"counters": found.arrays["counters"]})

    def _snapshot(self, integers: np.ndarray, uses_xla: bool, first_worker: int) -> SavedTraining:
        """The training as it is now.

        Args:
            integers: (ranks, n) int64, the integers of the `Model.state` of every rank, or of this one.
            uses_xla: `Model.uses_xla` of the workers.
            first_worker: The row of `integers` that belongs to the first worker.
        """
        model = self.model
        progress, arrays = self.state.snapshot()
        arrays |= {"weights": model.weights, "batch_statistics": model.state.floats(), "counters": integers}
        arrays |= {f"algorithm.{name}": array for name, array in self.algorithm.state().items()}
        metadata = progress | {
            "learning_rate": self.rate.chosen,
            "shapes": model.layout.shapes,
            "arrays": model.arrays(),
            "training": self.configuration.model_dump(mode="json"),
            "uses_xla": uses_xla,
            "first_worker": first_worker,
            "n_stages": self.n_stages,
            "layers_of_stages": model.layers_of_stages,
        }
        return SavedTraining(metadata, arrays)

    def _restore(self, checkpoint: SavedTraining, where: str) -> None:
        """Fills model, algorithm and history from a checkpoint of any training of the same model."""
        arrays, shapes = checkpoint.arrays, tuple(tuple(shape) for shape in checkpoint.metadata["shapes"])
        kinds = [ArrayKind(name, tuple(shape), *kind) for name, shape, *kind in checkpoint.metadata.get("arrays", [])]
        self._check_order([array.name for array in kinds], where)
        if self.model.is_sized_later:  # before shapes are compared
            self.model.resize(kinds)
        has_same_weights = shapes == self.model.layout.shapes
        if not has_same_weights or arrays["batch_statistics"].shape != self.model.state.floats().shape:
            raise ConfigurationError(
                f"{'batch statistics' if has_same_weights else 'weight shapes'} differ from the checkpoint's",
                where=where,
                cure="give the path of a checkpoint of this model, or of an empty folder",
            )
        self.model.weights[:] = arrays["weights"]
        self.model.state.set_floats(arrays["batch_statistics"])
        self._restore_integers(arrays["counters"], checkpoint.metadata.get("first_worker", self.first_worker))
        for name, array in self.algorithm.state().items():
            # another algorithm or optimizer has saved other arrays: those without a saved value start from zero
            saved = arrays.get(f"algorithm.{name}")
            if saved is not None and (saved.shape, saved.dtype) == (array.shape, array.dtype):
                array[...] = saved
        self.state.restore(checkpoint.metadata)

    def _check_order(self, saved: list[str], where: str) -> None:
        """Raises ConfigurationError if the model has the arrays of the checkpoint in another order."""
        names = [array.name for array in self.model.arrays()]
        if names != saved and sorted(names) == sorted(saved):
            one, other = next(pair for pair in zip(saved, names, strict=True) if pair[0] != pair[1])
            raise ConfigurationError(
                f"the model has its arrays in another order than the checkpoint: {other} instead of {one}",
                where=where,
                cure="let the function build the same model in every call: iterate over `sorted(…)`, not over a set",
            )

    def _restore_integers(self, saved: np.ndarray, first_worker: int) -> None:
        """Restores the integers of the model's state; with other ranks or roles, random states begin again.

        Args:
            saved: (ranks, n) int64. The rows of masters are 0.
            first_worker: The row of the first worker.
        """
        state = self.model.state
        n_ranks, n = len(saved), len(state.integers())
        if n != saved.shape[1] and self.n_stages == 1:  # written by a version with other integers
            return
        saved = saved[:, :n]  # other stages may have more
        if n_ranks == self.comm.size and first_worker == self.first_worker:
            state.set_integers(saved[self.comm.rank])
        else:
            of_first = saved[first_worker + self.layout.stage(self.comm.rank)]
            state.set_integers(np.where(state.random_mask(), state.integers(), of_first))

    def _restore_same(self, checkpoint: SavedTraining, rank_arrays: NamedArrays, where: str) -> None:
        """Restores the part of a checkpoint that is valid only for the same training."""
        needed = {f"algorithm.{name}": array for name, array in self.algorithm.state().items()}
        check_complete(needed, checkpoint.arrays, where)
        if rank_arrays:
            own = self.algorithm.rank_state()
            check_complete(own, rank_arrays, where)
            for name, array in own.items():  # in place: the algorithm keeps these arrays
                array[...] = rank_arrays[name]
        if self.model.can_use_xla and self.configuration.xla == "auto":  # another timing might choose differently
            self.model.compile_step(bool(checkpoint.metadata.get("uses_xla")))
        metadata = checkpoint.metadata
        self.rate.choose(metadata.get("learning_rate"))
        now = self.configuration.model_dump(mode="json")
        self.state.restore_same(metadata, checkpoint.arrays, metadata["training"], now)


def batch_size_of_checkpoint(section: Checkpoint) -> int | None:
    """The samples per worker and step in the checkpoint from which a training begins; None if there is no number.

    Raises:
        DamagedCheckpoint: The file cannot be read.
    """
    found = load_metadata(section.path) if section.resume else None
    if found is None and section.start_from is not None:
        found = load_metadata(section.start_from)
    size = (found or {}).get("training", {}).get("batch_size")
    return size if isinstance(size, int) else None


def _load(section: Checkpoint) -> tuple[SavedTraining | None, bool]:
    """The checkpoint from which a training begins, if any, and whether the same training has written it."""
    if not section.provisional:
        make_folder(section.path, "checkpoint.path")
    found = load_checkpoint(section.path) if section.resume else None
    if found is not None or section.start_from is None:
        return found, True
    found = load_checkpoint(section.start_from)
    if found is None:
        raise DamagedCheckpoint(
            "there is no checkpoint in this folder",
            where=str(section.start_from),
            cure="write the checkpoint.path of an earlier training",
        )
    return found, False


@contextmanager
def _unusable_if_unfit() -> Iterator[None]:
    """Raises UnusableCheckpoint if a checkpoint does not fit. A search may then train without it."""
    try:
        yield
    except UnusableCheckpoint:
        raise
    except ConfigurationError as error:
        raise UnusableCheckpoint(error.problem, where=error.where, cure=error.cure) from error


def stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Vectors as rows of one array, (ranks, n), with zeros behind shorter ones, as those of other stages may be."""
    longest = max(map(len, rows))
    return np.stack([np.pad(row, (0, longest - len(row))) for row in rows])


def as_rank_arrays(checkpoint: SavedTraining) -> NamedArrays:
    """The checkpoint of one stage as arrays of its rank."""
    outline = np.frombuffer(json.dumps(checkpoint.metadata).encode(), np.uint8)
    return {OUTLINE: outline} | {f"{OF_STAGE}{name}": array for name, array in checkpoint.arrays.items()}


def from_rank_arrays(arrays: NamedArrays) -> SavedTraining:
    """The checkpoint of one stage, from `as_rank_arrays`."""
    of_stage = {name.removeprefix(OF_STAGE): array for name, array in arrays.items() if name.startswith(OF_STAGE)}
    return SavedTraining(json.loads(arrays[OUTLINE].tobytes()), of_stage)
