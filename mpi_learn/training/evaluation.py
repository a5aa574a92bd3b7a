"""Loss and metrics over the validation samples: by all workers, by one, or by a thread while the training goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np

from mpi_learn.algorithms.rank_layout import Layout
from mpi_learn.data import Dataset, validation_batches
from mpi_learn.models.model import Model
from mpi_learn.mpi.collectives import sum_in_place
from mpi_learn.mpi.communicators import Communicator, agreed_errors
from mpi_learn.training.configuration import TrainingConfiguration

VALIDATION_WIDTH = 4
"""Validation takes this many training batches at a time: there is no gradient to keep room for."""

Finish = Callable[[], dict[str, float]]
"""Ends a validation: name -> value over all validation samples; nothing where there was none. Collective."""


class Validator:
    """Validates one training.

    Args:
        configuration: Of the training.
        comm: Of the training.
        dataset: With the validation samples.
        layout: Who works.
        model: The one that is trained.
        copy: Another of the same kind, for a thread to work with; None where there is no thread, and on masters.
    """

    def __init__(
        self,
        configuration: TrainingConfiguration,
        comm: Communicator,
        dataset: Dataset,
        layout: Layout,
        model: Model,
        copy: Model | None,
    ) -> None:
        self.comm, self.dataset, self.model, self.copy = comm, dataset, model, copy
        self.batch_size = configuration.validation.batch_size or VALIDATION_WIDTH * configuration.batch_size
        self.is_threaded = configuration.validation.mode == "thread"
        workers = layout.workers if configuration.validation.mode != "master" else layout.workers[:1]
        self.n_workers = len(workers)
        self.worker = workers.index(comm.rank) if comm.rank in workers else None
        self._under_way: Future[np.ndarray] | None = None
        self._thread = ThreadPoolExecutor(1, "validation") if self.is_threaded and copy is not None else None

    def begin(self) -> Finish:
        """Begins to validate the model as it is now; its weights may change before the end only if `is_threaded`."""
        if self._thread is None:
            return lambda: self._finish(lambda: self._sums(self.model))
        if self._under_way is not None:
            wait([self._under_way])  # it still works with what is overwritten now
        self.copy.weights[:] = self.model.weights
        self.copy.set_moving(self.model.moving())
        future = self._under_way = self._thread.submit(self._sums, self.copy)
        return lambda: self._finish(future.result)

    def close(self) -> None:
        """Ends the thread, and what it worked with."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self.copy.close()

    def _sums(self, model: Model) -> np.ndarray:
        """Of this rank's share."""
        sums = np.zeros(model.n_sums)
        if self.worker is not None:
            share = {"n_workers": self.n_workers, "worker": self.worker}
            for batch in validation_batches(self.dataset, batch_size=self.batch_size, **share):
                sums += model.evaluate(batch.x, batch.y, batch.weights)
        return sums

    def _finish(self, sums_of_rank: Callable[[], np.ndarray]) -> dict[str, float]:
        sums = np.zeros(self.model.n_sums)
        with agreed_errors(self.comm):
            sums += sums_of_rank()
        sum_in_place(self.comm, sums)
        return {f"val_{name}": value for name, value in self.model.metrics(sums).items()}
