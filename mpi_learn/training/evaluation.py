"""Loss and metrics of the validation samples: by all workers, by one, or by a thread during the next epoch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np

from mpi_learn.data.samples.make_batches import validation_batches
from mpi_learn.models.model import Model
from mpi_learn.mpi.communicators import agreed_errors, each_agreed, sum_in_place
from mpi_learn.training.context import TrainingContext

BATCH_SIZE_FACTOR = 4
"""Size of a validation batch in training batches: validation needs no memory for gradients."""

Finish = Callable[[], dict[str, float]]
"""Waits for a validation and returns metric name -> value over all validation samples. Collective."""


class Validator:
    """Validates one training.

    Args:
        copy: A second model of the same kind for the thread; None without a thread, and on masters.
    """

    def __init__(self, context: TrainingContext, model: Model, copy: Model | None) -> None:
        configuration = context.configuration
        self.comm, self.dataset, self.model, self.copy = context.comm, context.dataset, model, copy
        self.peers, self.chain = context.peers, context.chain
        self.batch_size = configuration.validation.batch_size or BATCH_SIZE_FACTOR * configuration.samples_at_once(
            context.n_workers
        )
        self.is_threaded = configuration.validates_in_thread
        self.n_workers = context.n_workers if configuration.validation.mode != "master" else 1
        # None on a rank without a share: on a master, and with `mode: master` on all workers but the first
        self.worker = context.worker if (context.worker or 0) < self.n_workers else None
        self._running: Future[np.ndarray] | None = None
        self._thread = ThreadPoolExecutor(1, "validation") if self.is_threaded and copy is not None else None

    def begin(self) -> Finish:
        """Begins to validate the present weights.

        Only if `is_threaded`, the weights may change before the end of the validation.
        """
        copy = self.copy
        if self._thread is None or copy is None:
            return lambda: self._finish(lambda: self._sums(self.model))
        if self._running is not None:
            wait([self._running])  # it uses the weights that are overwritten now
        copy.weights[:] = self.model.weights
        if self.model.is_sized_later:
            copy.resize(self.model.arrays())
        copy.state.set_floats(self.model.state.floats())
        copy.state.set_integers(self.model.state.integers())
        future = self._running = self._thread.submit(self._sums, copy)
        return lambda: self._finish(future.result)

    def close(self) -> None:
        """Ends the thread and frees its model."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        if self.copy is not None:
            self.copy.close()

    def _sums(self, model: Model) -> np.ndarray:
        """The sums over this rank's share of the validation samples, (n_sums,) float64."""
        sums = np.zeros(model.n_sums)
        if self.worker is not None:
            share = {"n_workers": self.n_workers, "worker": self.worker}
            with model.evaluation():
                batches = validation_batches(self.dataset, batch_size=self.batch_size, **share)
                if self.chain is not None:  # one rank may fail to read them, while those of other stages wait for it
                    batches = each_agreed(self.chain, batches, self.comm.rank)
                for batch in batches:
                    sums += model.evaluate(batch.x, batch.y, batch.weights)
        return sums

    def _finish(self, sums_of_rank: Callable[[], np.ndarray]) -> dict[str, float]:
        """The metrics from the sums of all ranks. Collective."""
        sums = np.zeros(self.model.n_sums)
        with agreed_errors(self.comm):
            sums += sums_of_rank()
        sum_in_place(self.peers, sums)
        with agreed_errors(self.comm):
            return {f"val_{name}": value for name, value in self.model.metrics(sums).items()}
