"""The last epochs of the folds of a trial, which ranks keep in memory so that the trial can continue on other ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_learn.mpi.communicators import Communicator

if TYPE_CHECKING:
    from mpi_learn.training.checkpoints.checkpoint_file import KeptEpoch


class KeptEpochs:
    """Those that this rank keeps, of the last trial that it has run or will continue."""

    def __init__(self) -> None:
        self._trial: tuple[str, int] | None = None
        self._folds: dict[int, KeptEpoch] = {}

    def begin(self, study: str, number: int) -> None:
        """Forgets those of another trial."""
        if self._trial != (study, number):
            self._trial, self._folds = (study, number), {}

    def of(self, fold: int) -> KeptEpoch:
        """The last epoch of a fold, which is empty if this rank has none."""
        from mpi_learn.training.checkpoints.checkpoint_file import KeptEpoch

        return self._folds.setdefault(fold, KeptEpoch())

    def slowest(self, n_folds: int) -> int:
        """The fold with the fewest finished epochs, as far as this rank knows."""
        return min(range(n_folds), key=lambda fold: self._folds[fold].n_epochs if fold in self._folds else 0)

    def share(self, comm: Communicator) -> None:
        """Gives all ranks the newest epoch of each fold that any of them keeps. Collective over `comm`."""
        from mpi_learn.training.checkpoints.checkpoint_file import broadcast_checkpoint

        known = comm.allgather({fold: kept.n_epochs for fold, kept in self._folds.items()})
        for fold in sorted(set().union(*known)):
            n_epochs = [one.get(fold, 0) for one in known]
            newest = max(n_epochs)
            if min(n_epochs) == newest:
                continue
            root = n_epochs.index(newest)
            found = broadcast_checkpoint(comm, self.of(fold).saved if comm.rank == root else None, root)
            if n_epochs[comm.rank] < newest:
                assert found is not None, "rank `root` keeps an epoch"
                self.of(fold).keep(found)
