"""Trains one model on all ranks of one communicator: the one loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from mpi_learn.algorithms.build import make_algorithm
from mpi_learn.algorithms.rank_layout import layout_of
from mpi_learn.data import Batch, Dataset, Dealer, load, make_batches
from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import N_SAMPLES
from mpi_learn.models.model import Model
from mpi_learn.mpi.collectives import sum_in_place
from mpi_learn.mpi.communicators import Communicator, agreed_errors, private
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.settings.paths import make_folder
from mpi_learn.training.checkpoint_file import load_checkpoint, save_checkpoint
from mpi_learn.training.configuration import TrainingConfiguration, read_configuration
from mpi_learn.training.history import History
from mpi_learn.training.monitor import Monitor, summed_up
from mpi_learn.training.result import Result, as_pair
from mpi_learn.training.setup import built_model, make_training_optimizer, make_validator, open_timeline, with_noise
from mpi_learn.training.state import Epoch, EpochReport, State, collected, dealt_out, restored, snapshot
from mpi_learn.training.stopping import Stopping
from mpi_learn.training.tracing import COMMUNICATION, COMPUTE, IDLE
from mpi_learn.training.xla_choice import choose_compiler

OnEpoch = Callable[[int, dict[str, float]], bool]
Progress = Callable[[EpochReport], None]


def train(
    configuration: dict[str, Any] | TrainingConfiguration,
    comm: Communicator,
    *,
    data: Dataset | None = None,
    on_epoch: OnEpoch | None = None,
    progress: Progress | None = None,
) -> Result:
    """Trains the model of `configuration` on all ranks of `comm`. Collective over `comm`.

    All messages travel over a duplicate of `comm`: they do not mix with messages of the caller.

    Args:
        configuration: A validated one, or a training.yaml as a dict (relative paths start in the current folder).
        comm: All its ranks call this, with the same configuration.
        data: Use this instead of reading ``configuration.data``; the same on all ranks.
        on_epoch: Called on every rank after every epoch with its 0-based number and the metrics, which are the same on
            all ranks; returns whether to stop, the same on all ranks.
        progress: Called on rank 0 after every epoch.

    Returns:
        The same on every rank, the trained model included.

    Raises:
        UserError: Configuration, data or model are wrong; before the first step, the same on every rank.
        TrainingError: Some rank failed; the same on every rank, with that rank's traceback.
    """
    with private(comm) as own:
        return _train(configuration, own, data, on_epoch, progress)


def _train(
    configuration: dict[str, Any] | TrainingConfiguration,
    comm: Communicator,
    data: Dataset | None,
    on_epoch: OnEpoch | None,
    progress: Progress | None,
) -> Result:
    with agreed_errors(comm):
        if isinstance(configuration, dict):
            configuration = read_configuration(configuration)
        if data is None and configuration.data is None:
            raise ConfigurationError("this section is required", where="data", cure="say which files to train on")
    dataset = data if data is not None else load(configuration.data, comm, configuration.seed)
    dataset = with_noise(dataset, configuration)
    model = built_model(configuration, comm, dataset)
    try:
        choose_compiler(configuration, comm, dataset, model)
        training = Training(configuration, comm, dataset, model)
        with closing(training.batches):
            training.run(on_epoch, progress)
        training.close()
        if training.worker is not None:
            model.finish()
        return training.result()
    finally:
        model.close()


def rehearse(configuration: TrainingConfiguration, comm: Communicator, *, data: Dataset) -> None:
    """Everything that `train` does before the first step, and so every error that it can raise before it.

    Collective over `comm`.

    Raises:
        UserError: Configuration, data or model are wrong; the same on every rank.
    """
    data = with_noise(data, configuration)
    model = built_model(configuration, comm, data)
    try:
        Training(configuration, comm, data, model).close()
    finally:
        model.close()


class Training:
    """One training: what does not change in it, and its `State`, which a checkpoint holds."""

    def __init__(
        self, configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset, model: Model
    ) -> None:
        self.configuration, self.comm, self.dataset, self.model = configuration, comm, dataset, model
        self.layout = layout_of(configuration.algorithm, comm.size)
        self.timeline = open_timeline(configuration, comm, self.layout)
        workers = self.layout.workers
        self.worker = workers.index(comm.rank) if comm.rank in workers else None
        self.batches = make_batches(
            dataset,
            batch_size=configuration.batch_size,
            n_workers=len(workers),
            worker=self.worker or 0,
            seed=configuration.seed,
            shuffle=configuration.data is None or configuration.data.shuffle,
        )
        self.is_dealt = configuration.data is not None and configuration.data.share == "dynamic"
        self.algorithm = make_algorithm(
            configuration.algorithm,
            comm,
            self.layout,
            model.weights,
            n_sums=model.n_sums,
            n_steps=self.batches.n_steps,
            learning_rate=configuration.optimizer.learning_rate,
            optimizer=self._optimizer,
        )
        if self.algorithm.on_ready is not None:
            model.announce(self.algorithm.on_ready)
        self.validator = make_validator(configuration, comm, dataset, model)
        self.state = State(History(), Stopping(configuration.early_stopping, configuration.target))
        self.stopped_by, self.monitor = "epochs", Monitor()
        self.seconds = self.training_seconds = 0.0

    def _optimizer(self, options: Any, updates_per_epoch: float) -> Optimizer:
        """The configured optimizer, or another, with its learning rate's schedule."""
        n_workers, layout = len(self.layout.groups), self.model.layout
        made = make_training_optimizer(self.configuration, layout, n_workers, options, updates_per_epoch)
        return self.timeline.timed(made)

    def run(self, on_epoch: OnEpoch | None, progress: Progress | None) -> None:
        """All epochs, those before a resume left out. Collective."""
        self._resume()
        started = time.perf_counter()
        waiting: list[Epoch] = []
        reason = self.state.ended_by
        for number in range(self.state.epoch, self.configuration.epochs):
            if reason is not None:
                break
            waiting.append(self._epoch(number))
            while waiting and (reason or len(waiting) > 1 or not self._may_wait(number)):
                reason = self._after(waiting.pop(0), on_epoch, progress) or reason
            if not waiting and (reason or self._is_saved(number)):
                self._save()
        self.stopped_by = reason or "epochs"
        self._restore_best()
        self.seconds = time.perf_counter() - started

    def close(self) -> None:
        """The training went well: gives back what it holds besides the model. Collective."""
        self.algorithm.close()
        self.validator.close()

    def result(self) -> Result:
        """What `train` returns."""
        n_epochs = len(self.state.history) - self.state.resumed_at
        stopping, dataset = self.state.stopping, self.dataset
        return Result(
            history=self.state.history.columns,
            parameters=self.configuration.parameters,
            seconds=self.seconds,
            samples_per_second=self.dataset.n_training * n_epochs / max(self.training_seconds, 1e-9),
            epochs=len(self.state.history),
            stopped_by=self.stopped_by,
            best_epoch=stopping.best_epoch if stopping.best_weights is not None else None,
            load_model=self.model.finish,
            save_model=self.model.save,
            load_validation=lambda: as_pair(dataset.take_validation(slice(None))),
        )

    def _epoch(self, epoch: int) -> Epoch:
        """The steps of one epoch, and the beginning of its validation."""
        begun = time.perf_counter()
        sums, n_own, n_new, timeline = np.zeros(self.model.n_sums), 0, 0, self.timeline
        if self.is_dealt:
            sizes = {"batch_size": self.configuration.batch_size, "n_workers": len(self.layout.groups)}
            self.algorithm.deal_by(Dealer(self.dataset.n_training, **sizes).deal)
        with agreed_errors(self.comm), self.algorithm as algorithm:
            if self.worker is None:
                with timeline.span("serve", IDLE):
                    algorithm.serve(self.model.weights)
            for batch in timeline.waiting(self._batches(epoch)):
                with timeline.span("gradient", COMPUTE):
                    step = self.model.gradient(batch.x, batch.y)
                with timeline.span("exchange", COMMUNICATION):
                    step_sums = algorithm.exchange(self.model.weights, step)
                if step_sums is None:
                    break
                sums += step_sums
                n_own, n_new = n_own + batch.n_samples, n_new + batch.n_samples
                if self.configuration.sync_batchnorm and step_sums[N_SAMPLES] > 0:  # only now all ranks are here
                    self._average_moving(n_new)
                    n_new = 0
        with timeline.span("settle", COMMUNICATION):
            self.algorithm.settle(self.model.weights)
            self._average_moving(n_own)
            metrics = self.model.metrics(self.algorithm.total(sums))
        spent = time.perf_counter() - begun
        self.training_seconds += spent
        every, is_last = self.configuration.validation.every, epoch + 1 == self.configuration.epochs
        is_validated = self.dataset.n_validation > 0 and (is_last or (epoch + 1) % every == 0)
        metrics |= self.comm.bcast(self.algorithm.notes(), root=0)
        if self.configuration.monitor:
            metrics |= summed_up(self.comm.allgather(self.monitor.take()))
        finish = self.validator.begin() if is_validated else dict
        weights = self.model.weights.copy() if self.validator.is_threaded else self.model.weights
        return Epoch(epoch, metrics, begun, spent, finish, weights, self.model.moving())

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """This rank's batches of an epoch: its share, or what it is dealt; none on a master."""
        if self.worker is None:
            return
        if not self.is_dealt:
            yield from self.batches.epoch(epoch)
        else:
            yield from self.batches.dealt(epoch, self.algorithm.next_part)

    def _may_wait(self, number: int) -> bool:
        """Whether the end of an epoch's validation may be waited for during the next epoch."""
        goes_on = number + 1 < self.configuration.epochs
        return self.validator.is_threaded and goes_on and not self._is_saved(number)

    def _is_saved(self, number: int) -> bool:
        checkpoint, n_done = self.configuration.checkpoint, number + 1
        return checkpoint is not None and (n_done == self.configuration.epochs or n_done % checkpoint.every == 0)

    def _after(self, epoch: Epoch, on_epoch: OnEpoch | None, progress: Progress | None) -> str | None:
        """The end of its validation, memory of the best, the caller's word; returns why to stop, if to stop."""
        state = self.state
        with self.timeline.span("validation", COMPUTE):
            metrics = epoch.metrics | epoch.finish()
        metrics = self.comm.bcast(metrics, root=self.layout.workers[0])  # so that all ranks decide alike
        state.epoch = epoch.number + 1
        state.history.append(metrics)
        state.stopping.remember(epoch.number, metrics, epoch.weights, epoch.moving)
        reason = state.stopping.reason(metrics)
        with agreed_errors(self.comm):
            if on_epoch is not None and on_epoch(epoch.number, dict(metrics)):
                reason = reason or "callback"
            if progress is not None and self.comm.rank == 0:
                seconds, speed = time.perf_counter() - epoch.begun, self.dataset.n_training / epoch.spent
                progress(EpochReport(epoch.number, self.configuration.epochs, metrics, seconds, speed))
            self.timeline.write()
        return reason

    def _average_moving(self, n_own: int) -> None:
        """Moving means and variances become the ranks' mean, weighted by the samples that each has seen. Collective."""
        moving = self.model.moving()
        if self.comm.size == 1 or not moving.size:
            return
        weighted = np.append(moving.astype(np.float64) * n_own, float(n_own))
        sum_in_place(self.comm, weighted)
        self.model.set_moving((weighted[:-1] / max(weighted[-1], 1.0)).astype(np.float32))

    def _restore_best(self) -> None:
        stopping = self.state.stopping
        if stopping.best_weights is not None:
            self.model.weights[:] = stopping.best_weights
            self.model.set_moving(stopping.best_moving)

    def _resume(self) -> None:
        """Goes on from a checkpoint, where there is one. Rank 0 reads it for all. Collective."""
        if (section := self.configuration.checkpoint) is None:
            return
        found, is_own = None, True
        with agreed_errors(self.comm):
            if self.comm.rank == 0:
                make_folder(section.path, "checkpoint.path")
                found = load_checkpoint(section.path) if section.resume else None
                if found is None and section.start_from is not None:
                    found, is_own = load_checkpoint(section.start_from), False
                    if found is None:
                        raise ConfigurationError("there is no checkpoint in this folder", where=str(section.start_from))
        found, is_own = self.comm.bcast((found, is_own), root=0)
        if found is not None:
            with agreed_errors(self.comm):
                own = dealt_out(self.comm, section.path, len(found.arrays["counters"])) if is_own else None
                restored(found, self.state, self.configuration, self.model, self.algorithm, self.comm, own)

    def _save(self) -> None:
        if (section := self.configuration.checkpoint) is None:
            return
        counters = self.comm.gather(self.model.counters(), root=0)
        with agreed_errors(self.comm), collected(self.comm, self.algorithm.own_arrays()) as own:
            if self.comm.rank == 0:
                now = snapshot(self.state, self.configuration, self.model, self.algorithm, np.stack(counters))
                save_checkpoint(section.path, now, own)
