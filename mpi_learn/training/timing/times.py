"""The times of the parts of a training. No MPI or NumPy, which commands that only show times do not need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingTimes:
    """The times of the parts of a training, in seconds; each part is that of a whole epoch, as a mean over the ranks.

    Attributes:
        start_s: Before and after the epochs, and the excess of the first epoch: building and compiling the model.
        compute_s: Reading batches, gradients and updates.
        communication_s: Exchanges of the steps, on the rank that waits least in them.
        waiting_s: How much longer the other ranks are in the exchanges.
        validation_s: The validation, if it does not run in a thread.
        rest_s: Everything else after the steps, such as averaging the batch statistics.
        epochs: Number of epochs of the training.
        n_steps: Number of steps of an epoch.
        most_ranks: The largest number of ranks on which the training can run.
    """

    start_s: float
    compute_s: float
    communication_s: float
    waiting_s: float
    validation_s: float
    rest_s: float
    epochs: float
    n_steps: float
    most_ranks: float

    @property
    def epoch_s(self) -> float:
        """Seconds of an epoch."""
        return self.compute_s + self.communication_s + self.waiting_s + self.validation_s + self.rest_s

    @property
    def training_s(self) -> float:
        """Seconds of the whole training."""
        return self.start_s + self.epochs * self.epoch_s
