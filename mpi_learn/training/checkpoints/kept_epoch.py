"""The last finished epoch of a training in the memory of a rank, from which others can continue without it."""

from __future__ import annotations

from copy import deepcopy

from mpi_learn.training.checkpoints.checkpoint_file import SavedTraining


class KeptEpoch:
    """The last finished epoch of a training. Each rank of the training has one, and changes it after each epoch.

    If a rank dies, the others keep theirs, and a training on another communicator that receives them continues from the
    newest. Only what a total batch determines is kept: what is the same on all ranks.

    Attributes:
        saved: The training after that epoch; None before the end of the first one.
        is_left: Whether the training ends after the present epoch, to continue on another communicator. `on_epoch` of
            `train` sets it, the same on all ranks.
        is_bound: Whether the training must not get more ranks, because its result depends on them; on rank 0.
    """

    def __init__(self) -> None:
        self.saved: SavedTraining | None = None
        self.is_left = self.is_bound = False

    @property
    def n_epochs(self) -> int:
        """Number of finished epochs."""
        return 0 if self.saved is None else int(self.saved.metadata["epoch"])

    @property
    def began(self) -> int:
        """Number of those epochs that are of another training, with whose checkpoint this one began."""
        return 0 if self.saved is None else int(self.saved.metadata["began"])

    @property
    def history(self) -> dict[str, list[float]]:
        """Metric name -> one value for each of these epochs; NaN for epochs without it."""
        return {} if self.saved is None else self.saved.metadata["history"]

    def keep(self, training: SavedTraining) -> None:
        """Replaces the epoch by a copy of `training`, whose arrays change in the next step."""
        self.saved = deepcopy(training)
