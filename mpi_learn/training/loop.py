"""The training loop: epochs, steps and validation of one model on all ranks of a communicator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from types import TracebackType
from typing import Any, Self

import numpy as np

from mpi_learn.algorithms.algorithm import AlgorithmSetup, Deal
from mpi_learn.algorithms.allreduce import mean_statistics, weighted_statistics
from mpi_learn.algorithms.make_algorithm import make_algorithm
from mpi_learn.data.samples.batches import Dealer
from mpi_learn.data.samples.make_batches import ShardedBatches, Shards, SharedStream
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.data.samples.streamed_batches import StreamedBatches
from mpi_learn.errors import MPILearnError
from mpi_learn.models.model import Model
from mpi_learn.mpi.communicators import agreed_errors, each_agreed, sum_in_place
from mpi_learn.optimizers.configuration import AnyOptimizer
from mpi_learn.optimizers.learning_rate import LearningRate
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.training.callbacks import Callbacks
from mpi_learn.training.checkpoints.checkpoint_file import KeptEpoch
from mpi_learn.training.checkpoints.checkpointing import Checkpointing
from mpi_learn.training.context import TrainingContext
from mpi_learn.training.ranks.same_model import agreed_statistics
from mpi_learn.training.ranks.shards import ShardedGradient, speeds
from mpi_learn.training.result import Result, validation_of
from mpi_learn.training.setup import (
    check_settings,
    make_training_batches,
    make_training_optimizer,
    make_validator,
    open_timeline,
    steps_stay_on_device,
)
from mpi_learn.training.state import Epoch, EpochReport, State, Stopping
from mpi_learn.training.timing.tracing import COMMUNICATION, COMPUTE, IDLE, Monitor, Timeline, combined

LEFT = "left"
"""The reason why a training has stopped that continues on other ranks; see `KeptEpoch`."""

OnBegin = Callable[[], None]
OnEpoch = Callable[[int, dict[str, float]], bool]
Progress = Callable[[EpochReport], None]


class Training:
    """One training. A context manager, which at the end frees everything except the model. Collective.

    Args:
        model: The same weights on every rank.
        kept, timeline: See `train`.
    """

    def __init__(
        self,
        context: TrainingContext,
        model: Model,
        kept: KeptEpoch | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        configuration, comm = context.configuration, context.comm
        self.context, self.configuration, self.comm, self.model = context, configuration, comm, model
        self.timeline = open_timeline(context) if timeline is None else timeline
        with ExitStack() as opened:  # they are closed if the training cannot begin
            self.validator = opened.enter_context(closing(make_validator(context, model)))
            with agreed_errors(comm):
                self.batches = opened.enter_context(closing(make_training_batches(context, model.copy_rows)))
                check_settings(context, model, self.batches)
                self.state = state = State(Stopping(configuration.early_stopping, configuration.target))
                self.rate = LearningRate(
                    configuration.optimizer,
                    configuration.epochs,
                    # the rate of a total batch is that of the whole step
                    n_workers=len(context.layout.groups) if configuration.total_batch is None else 1,
                    history=lambda: state.history.columns,  # no reference to `self`, which could not be freed then
                    # the same for any `checkpoint.every`, which may change when a training continues
                    delay=1 if configuration.validation.mode == "thread" else 0,
                    also_fixed_by="" if len(configuration.parts) == 1 else "the model has several optimizers",
                    n_steps=self.batches.n_steps,
                )
                self._sharded = ShardedGradient(model, configuration.seed) if configuration.shards else None
                self.device = model.keep_on_device() if steps_stay_on_device(configuration) else None
                setup = self._algorithm_setup()
            wanted, epochs, n_steps = configuration.callbacks, configuration.epochs, self.batches.n_steps
            self.callbacks = Callbacks(wanted, comm, context.first_worker, model, epochs, self.rate, n_steps)
            with agreed_errors(comm):
                self.algorithm = make_algorithm(configuration.algorithm, setup)
            try:
                with agreed_errors(comm):
                    self.callbacks.check_rate()
            except MPILearnError:  # on all ranks, which free the communicators of the algorithm together
                self.algorithm.close()
                raise
            self.checkpointing = Checkpointing(context, model, self.algorithm, self.state, self.rate, kept)
            self.stopped_by = "epochs"
            self.monitor = Monitor(model.framework) if configuration.monitor else None
            self._n_samples, self._compute_s = 0, 0.0  # of this rank in the current epoch
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        try:
            if kind is None or issubclass(kind, MPILearnError):  # all ranks are here
                self.algorithm.close()
        finally:
            self._opened.close()
            self.timeline.write()

    def run(
        self,
        on_epoch: OnEpoch | None,
        progress: Progress | None,
        on_begin: OnBegin | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        """All epochs that a resumed checkpoint has not finished. Collective.

        If the validation runs in a thread, an epoch is finished after the steps of the next one.
        """
        self.checkpointing.resume(on_note)
        started_s = time.perf_counter() - self.state.seconds
        unfinished: Epoch | None = None
        reason = self.state.ended_by
        self.callbacks.begin(self.state.epoch, self.state.callbacks)
        with agreed_errors(self.comm):
            if on_begin is not None:
                on_begin()
        for number in range(self.state.epoch, self.configuration.epochs):
            if reason is not None:  # of the last epoch, or of the training in the checkpoint, which has ended
                break
            self.rate.begin_epoch(number)
            self.callbacks.before_epoch(number)
            epoch = self._epoch(number)
            if unfinished is not None:  # its validation has run during the steps of this epoch
                reason = self._finish_epoch(unfinished, on_epoch, progress)
            is_due = self.checkpointing.is_due(number)
            if reason is None and self._may_validate_later(number) and not is_due:
                unfinished = epoch
                continue
            unfinished, last_reason = None, self._finish_epoch(epoch, on_epoch, progress)
            # with validation in a thread, the epoch after the one in which it was asked to leave may be the last one
            if reason == LEFT and (last_reason is not None or number + 1 == self.configuration.epochs):
                reason = None
            reason = reason or last_reason
            is_saved = is_due or (reason is not None and self.checkpointing.is_due(number, is_end=True))
            if is_saved or self.checkpointing.kept is not None:
                self.state.pause(reason, time.perf_counter() - started_s, self.callbacks.state())
                self.checkpointing.keep()
            if is_saved:
                self.checkpointing.save()
        self.stopped_by = reason or "epochs"
        if reason != LEFT:  # otherwise the weights stay those of the last epoch, and the callbacks have not ended
            self._finish()
        self.state.end(time.perf_counter() - started_s)

    def _finish(self) -> None:
        """Gives the model the weights with which the training ends, after its last epoch. Collective."""
        self._restore_best()
        self._validate_last()  # of the weights that the result has
        with agreed_errors(self.comm):
            if self.state.stopping.best_weights is None:  # as in `fit`, which restores them after it has finalized
                self.algorithm.finalize()
        with agreed_errors(self.comm):
            if self.context.worker == 0:  # all replicas have the same weights; this one may be divided into stages
                self.model.gather()
        self.callbacks.end(self.state.epoch)

    def result(self) -> Result:
        """The result of `train`."""
        state, stopping, dataset = self.state, self.state.stopping, self.context.dataset
        return Result(
            history=state.history.columns,
            batch_size=size if isinstance(size := self.configuration.batch_size, int) else None,
            parameters=self.configuration.parameters,
            seconds=state.seconds,
            samples_per_second=state.n_samples / max(state.steps_s, 1e-9),
            epochs=state.epoch,
            epochs_before=state.epochs_before,
            stopped_by=self.stopped_by,
            best_epoch=stopping.best_epoch if stopping.best_weights is not None else None,
            load_model=self.model.current,
            save_model=self.model.save,
            save_weights=self.model.save_weights,
            load_validation=lambda: validation_of(dataset),
        )

    def _algorithm_setup(self) -> AlgorithmSetup:
        """The arguments of `make_algorithm`."""
        configuration, model = self.configuration, self.model
        has_common_statistics = configuration.sync_batchnorm or configuration.shards is not None
        return AlgorithmSetup(
            comm=self.context.peers,
            rank_layout=self.context.layout,
            weights=model.weights,
            weights_layout=model.layout,
            n_sums=model.n_sums,
            n_steps=self.batches.n_steps,
            learning_rate=self.rate.base,
            make_optimizer=self._make_optimizer,
            make_deal=self._make_deal if configuration.is_dealt else None,
            batch_statistics=model.state if has_common_statistics and model.state.floats().size else None,
            step_dtype=np.float32 if configuration.shards is None else np.float64,
            on_device=None if self.device is None else model.weights_on_device(),
        )

    def _make_optimizer(self, options: AnyOptimizer | None, updates_per_epoch: float) -> Optimizer:
        """See `make_training_optimizer`; its updates are on the timeline."""
        made = make_training_optimizer(self.context, self.model, options, updates_per_epoch, self.rate, self.device)
        return self.timeline.timed(made)

    def _make_deal(self) -> Deal:
        """Begins to deal out the samples of an epoch."""
        n_workers = len(self.context.layout.groups)
        batch_size = self.configuration.samples_at_once(n_workers)
        return Dealer(self.batches.n_samples, batch_size=batch_size, n_workers=n_workers).deal

    def _epoch(self, number: int) -> Epoch:
        """The steps of one epoch, and the start of its validation. Collective.

        Everything that may raise on a single rank is inside `agreed_errors`. Collectives after the steps are outside.
        """
        started_s = time.perf_counter()
        peers = self.context.peers
        timeline, sums, self._n_samples, self._compute_s = self.timeline, np.zeros(self.model.n_sums), 0, 0.0
        with agreed_errors(self.comm):
            with timeline.span("serve", IDLE) if self.context.worker is None else nullcontext():
                self._run(self._steps(number, sums), sums)
            weighted = weighted_statistics(self.model.state, float(self._n_samples))
            counters = self._sharded.counters(peers.size) if self._sharded is not None else None
        with timeline.span("synchronize", COMMUNICATION):
            self.algorithm.synchronize()
            # a rank whose buffers got no samples may have another number of statistics, and sums would mix them up
            n_statistics = weighted.size
            extended = np.append(sums, [n_statistics, n_statistics**2])
            sum_in_place(peers, extended)
            *sums[:], total, total_of_squares = extended
            if peers.size * total_of_squares != total**2:  # only equal numbers have this mean square
                weighted = agreed_statistics(peers, self.model, self._n_samples)
            sum_in_place(peers, weighted)
            diagnostics = self.algorithm.diagnostics()
            if counters is not None:
                counters = peers.bcast(counters, root=peers.size - 1)
        with agreed_errors(self.comm):
            if self._sharded is not None and counters is not None:
                self._sharded.use_counters(counters)
            if peers.size > 1 and weighted.size > 1:
                self.model.state.set_floats(mean_statistics(weighted))
            metrics = self.model.metrics(sums) | diagnostics
            usage = self.monitor.measure() if self.monitor is not None else {}
            steps_s = time.perf_counter() - started_s
            finish_validation = self.validator.begin() if self._is_validated(number) else dict
            # the next epoch changes the weights before this one is finished
            weights = self.model.weights.copy() if self.validator.is_threaded else self.model.weights
            statistics = self.model.state.floats()
        self._balance()
        if self.monitor is not None:
            metrics |= combined(self.comm.allgather(usage))
        self.state.count_steps(steps_s, self.batches.n_samples)
        seconds = time.perf_counter() - started_s
        return Epoch(number, metrics, steps_s, seconds, finish_validation, weights, statistics)

    def run_steps(self, some_of: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        """Makes some steps of the first epoch, without its end. Collective.

        Args:
            some_of: Returns the first ones of this rank's step vectors, the same number on all workers.
        """
        sums = np.zeros(self.model.n_sums)
        with agreed_errors(self.comm):
            self._run(some_of(self._steps(0, sums)), sums)

    def _run(self, steps: Iterator[Any], sums: np.ndarray) -> None:
        self.model.begin_steps()
        self.algorithm.run(steps)
        self.model.end_steps(sums)

    def _steps(self, epoch: int, sums: np.ndarray) -> Iterator[Any]:
        """This rank's step vectors of an epoch, each computed from the current weights.

        Args:
            sums: (n_sums,) float64, to which the sums behind every gradient are added.
        """
        n, timeline = self.model.layout.size, self.timeline
        for number, batch in enumerate(timeline.waiting(self._batches(epoch))):
            started_s = time.perf_counter()
            with timeline.span("gradient", COMPUTE):
                if isinstance(batch, Samples):
                    step = self.model.gradient(batch.x, batch.y, batch.weights)
                else:
                    assert self._sharded is not None, "only a step with shards has several batches"
                    step = self._sharded(epoch, number, batch)
            self._compute_s += time.perf_counter() - started_s
            sums += step[n:]  # before the exchange, which adds those of the other ranks
            self._n_samples += len(batch)
            with timeline.span("exchange", COMMUNICATION):
                yield step

    def _balance(self) -> None:
        """Divides the steps of the next epoch by the speeds of the ranks in this one, if configured. Collective."""
        total = self.configuration.total_batch
        if total is None or not total.balance:
            return
        assert not isinstance(self.batches, StreamedBatches), "they have a fixed number of samples per worker"
        found = self.comm.allgather((self._n_samples, self._compute_s))
        with agreed_errors(self.comm):
            self.batches.balance(speeds(found))
            if self.model.uses_xla:
                self.model.compile_step(by_xla=True)  # for batches of the new size

    def _batches(self, epoch: int) -> Iterator[Samples | Shards]:
        """This rank's batches of an epoch: its fixed share, or those that are dealt to it; none on a master."""
        if self.context.worker is None:
            return
        if self.algorithm.dealing is None or isinstance(self.batches, ShardedBatches | SharedStream):
            batches: Iterator[Samples | Shards] = self.batches.epoch(epoch)
            if self.context.chain is not None and isinstance(self.batches, StreamedBatches | SharedStream):
                # one rank may fail to read them, while those of other stages wait for it in the step
                batches = each_agreed(self.context.chain, batches, self.context.rank)
            yield from batches
        else:
            yield from self.batches.dealt(epoch, self.algorithm.dealing.next_part)

    def _is_validated(self, number: int) -> bool:
        every, is_last = self.configuration.validation.every, number + 1 == self.configuration.epochs
        return self.context.dataset.n_validation > 0 and (is_last or (number + 1) % every == 0)

    def _may_validate_later(self, number: int) -> bool:
        """Whether the validation of an epoch may still run during the next epoch."""
        has_next = number + 1 < self.configuration.epochs
        return self.validator.is_threaded and has_next

    def _finish_epoch(self, epoch: Epoch, on_epoch: OnEpoch | None, progress: Progress | None) -> str | None:
        """The end of the validation, early stopping and callbacks; returns the reason to stop, if any. Collective."""
        started_s = time.perf_counter()
        with self.timeline.span("validation", COMPUTE):
            metrics = epoch.metrics | epoch.finish_validation()
        metrics = self.comm.bcast(metrics, root=self.context.first_worker)  # so that all ranks decide alike
        with agreed_errors(self.comm):
            reason = self.state.finish_epoch(epoch, metrics)
        is_stopped, changed = self.callbacks.after_epoch(epoch, metrics)
        if is_stopped:
            reason = reason or "callback"
        metrics |= changed
        self.state.add_metrics(epoch.number, changed)
        with agreed_errors(self.comm):
            if on_epoch is not None and on_epoch(epoch.number, dict(metrics)):
                reason = reason or "callback"
            kept, is_last = self.checkpointing.kept, epoch.number + 1 == self.configuration.epochs
            if kept is not None and kept.is_left and not is_last:
                reason = reason or LEFT
            if progress is not None and self.comm.rank == 0:
                seconds, speed = time.perf_counter() - started_s, self.batches.n_samples / epoch.steps_s
                report = EpochReport(epoch.number, self.configuration.epochs, metrics, epoch.seconds + seconds, speed)
                progress(report)
            self.timeline.write()
        return reason

    def _validate_last(self) -> None:
        """Validates the final weights if their epoch had no validation: the training ended early. Collective."""
        stopping = self.state.stopping
        epoch = stopping.best_epoch if stopping.best_weights is not None else self.state.epoch - 1
        if self.context.dataset.n_validation > 0 and not self._is_validated(epoch):
            with agreed_errors(self.comm):
                finish_validation = self.validator.begin()
            metrics = self.comm.bcast(finish_validation(), root=self.context.first_worker)
            self.state.add_metrics(epoch, metrics)

    def _restore_best(self) -> None:
        stopping = self.state.stopping
        if stopping.best_weights is not None and stopping.best_statistics is not None:
            self.model.weights[:] = stopping.best_weights
            self.model.state.set_floats(stopping.best_statistics)
