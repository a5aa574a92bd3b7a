"""A model whose layers are on several ranks, as one `Model` on each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from mpi_learn.compression.encodings import ENCODINGS, EXACT, Encoding
from mpi_learn.errors import ModelError, MPILearnError
from mpi_learn.flat_layout import FAILED, UpdateRule
from mpi_learn.models.model import Model
from mpi_learn.models.network import Network
from mpi_learn.models.pipeline.link import Link
from mpi_learn.models.pipeline.schedules import SCHEDULES, Operation, forward_only, micro_batches
from mpi_learn.models.pipeline.section import PipelineSection
from mpi_learn.models.pipeline.stage import Stage
from mpi_learn.models.settings import Arrays, Example, ModelSettings
from mpi_learn.mpi.communicators import (
    Communicator,
    agreed_errors,
    as_training_error,
    patient_sum_in_place,
    receive_into,
    result_of_rank,
    send_from,
)
from mpi_learn.settings.component import Component

Found = TypeVar("Found")

VALUES = 33
"""Tag of the arrays of a stage."""
Compute = Callable[[Operation, np.ndarray | None], np.ndarray | None]
"""(operation, array of the neighbouring stage, if any) -> the array for the other neighbour, if any."""


@dataclass(frozen=True)
class Facts:
    """What the ranks of all stages know of the whole model; see the attributes of `Model`.

    Attributes:
        shapes: The shape of the activations of one sample behind each stage but the last.
    """

    shapes: tuple[tuple[int, ...], ...]
    n_sums: int
    has_custom_loss: bool
    divides_by_weights: bool
    can_evaluate: bool
    notes: tuple[str, ...]
    least_samples: int
    synchronizes_statistics: bool
    has_unsaved_random: bool


class PipelineModel(Model):
    """One stage of a model. Weights, state and gradient are those of the stage, loss and metrics those of the model.

    All methods that compute are collective over `chain`, whose ranks give them the same samples. They end together: if
    one stage fails, all raise its error.

    Args:
        stage: That of this rank.
        chain: The ranks of all stages of this model, in order.
        rebuild: Makes the whole model from the `Stage.values` of all stages.
    """

    def __init__(
        self,
        stage: Stage,
        chain: Communicator,
        settings: ModelSettings,
        section: PipelineSection,
        facts: Facts,
        rebuild: Callable[[Sequence[np.ndarray]], Network],
    ) -> None:
        self._stage, self._chain, self._section, self._rebuild = stage, chain, section, rebuild
        self._rank = settings.stream
        self.networks, self.state = {"": stage.network}, stage.network
        self.layout, self.weights, self.framework = stage.layout, stage.weights, stage.network.framework
        self.uses_gpu, self.has_constraints = stage.network.uses_gpu, stage.network.has_constraints
        self.n_sums, self.has_custom_loss = facts.n_sums, facts.has_custom_loss
        self.divides_by_weights, self.can_evaluate = facts.divides_by_weights, facts.can_evaluate
        self.notes = facts.notes
        self.least_samples, self.synchronizes_statistics = facts.least_samples, facts.synchronizes_statistics
        self.has_unsaved_random = facts.has_unsaved_random
        self._is_whole = False
        self._encoding = ENCODINGS.get(section.compression, EXACT)
        rank, last = chain.rank, chain.size - 1
        self._shape_before = facts.shapes[rank - 1] if rank > 0 else None
        self._shape_after = facts.shapes[rank] if rank < last else None
        self._before = Link(chain, rank - 1) if rank > 0 else None
        self._after = Link(chain, rank + 1) if rank < last else None

    def gradient(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        stage, batch = self._stage, Example(x, y, weights)
        parts = micro_batches(len(x[0]), self._section.micro_batches, self.least_samples)

        def compute(operation: Operation, received: np.ndarray | None) -> np.ndarray | None:
            if not operation.is_forward:
                return stage.backward(operation.micro_batch, received)
            part = _part(batch, parts[operation.micro_batch], received)
            return stage.forward(operation.micro_batch, part.x, part.y, part.weights)

        step = np.empty(0, np.float32)

        def sums() -> np.ndarray:
            nonlocal step
            found = stage.sums()
            step = stage.step(found)  # before the ranks end the step together: copying it from a GPU may fail
            return found

        schedule = SCHEDULES[self._section.schedule](self._chain.rank, self._chain.size, len(parts))
        begin = partial(stage.begin, self.n_sums)
        totals = self._run(schedule, parts, compute, sums, begin=begin, encoding=self._encoding)
        step[self.layout.size :] = totals
        return step

    def evaluate(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> np.ndarray:
        sums, batch, last = np.zeros(self.n_sums), Example(x, y, weights), self._stage.last
        parts = micro_batches(len(x[0]), self._section.micro_batches)

        def compute(operation: Operation, received: np.ndarray | None) -> np.ndarray | None:
            part = _part(batch, parts[operation.micro_batch], received)
            if last is None:
                return self._stage.infer(part.x)
            sums[:] += last.evaluate(part.x, part.y, part.weights)
            return None

        return self._run(forward_only(len(parts)), parts, compute, lambda: sums)

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """The outputs in inference mode, the same on all ranks of the chain."""
        last, batch, found = self._stage.last, Example(x, ()), list[tuple[np.ndarray, ...]]()
        parts = micro_batches(len(x[0]), self._section.micro_batches)

        def compute(operation: Operation, received: np.ndarray | None) -> np.ndarray | None:
            part = _part(batch, parts[operation.micro_batch], received)
            if last is None:
                return self._stage.infer(part.x)
            found.append(last.predict(part.x))
            return None

        self._run(forward_only(len(parts)), parts, compute, lambda: np.zeros(self.n_sums))
        outputs = tuple(map(np.concatenate, zip(*found, strict=True)))
        shared: tuple[np.ndarray, ...] = self._chain.bcast(outputs, root=self._chain.size - 1)
        return shared

    def check_labels(self, y: Arrays) -> None:
        """See `Model.check_labels`; only the last stage has outputs with labels."""
        if self._stage.last is not None:
            self._stage.last.check_labels(y)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """See `Model.metrics`. Collective over the chain: the last stage computes them from its `sums`."""

        def compute() -> dict[str, float]:
            assert self._stage.last is not None
            return self._stage.last.metrics(sums)

        return result_of_rank(self._chain, compute, self._chain.size - 1)

    def probe(self, x: Arrays, y: Arrays, weights: Arrays = ()) -> list[np.ndarray]:
        with self._stage.network.repeatable():
            loss = self.metrics(self.evaluate(x, y, weights))["loss"] if self.can_evaluate else 0.0
            return [*self.predict(x), np.array(loss)]

    def optimizer(self, wanted: Component, index: int = 0) -> UpdateRule:
        return self._stage.network.optimizer(wanted)

    def gather(self) -> None:
        """Gives the first rank of the chain the whole model, which `current` and `save` then use. Collective."""
        values: list[np.ndarray] = []
        with agreed_errors(self._chain):
            values = self._stage.values()
        kinds = self._chain.gather([(array.shape, array.dtype) for array in values], root=0)
        if kinds is None:
            for array in values:
                send_from(self._chain, np.ascontiguousarray(array).reshape(-1), 0, VALUES)
        else:
            for rank in range(1, self._chain.size):
                values += [_received(self._chain, rank, *kind) for kind in kinds[rank]]
        with agreed_errors(self._chain):
            if kinds is not None:
                self.networks, self._is_whole = {"": self._rebuild(values)}, True

    def current(self) -> Any:
        """See `Model.current`; after `gather`, on the first rank of the first replica."""
        if not self._is_whole:
            raise ModelError(
                "of a pipeline, only rank 0 of the training has the whole model",
                where="result.model",
                cure="use it on rank 0: `if comm.rank == 0: …`",
            )
        return super().current()

    def close(self) -> None:
        for network in (self._stage.network, *self.networks.values()):
            network.close()
        if self._stage.last is not None:
            self._stage.last.close()

    def _run(
        self,
        schedule: Sequence[Operation],
        parts: Sequence[slice],
        compute: Compute,
        sums: Callable[[], np.ndarray],
        begin: Callable[[], None] = lambda: None,
        encoding: Encoding = EXACT,
    ) -> np.ndarray:
        """The operations of a step with the messages between them; returns the sums of the last stage.

        After an error, a rank computes nothing and sends its neighbours empty messages until the schedule ends.
        """
        error: BaseException | None = None
        is_failed = False

        def attempted(call: Callable[..., Found], *arguments: Any) -> Found | None:
            nonlocal error, is_failed
            if is_failed:
                return None
            try:
                return call(*arguments)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as caught:  # noqa: BLE001 - the other stages wait for this one
                error, is_failed = caught, True
            return None

        self._begin_links(schedule, parts, encoding)
        attempted(begin)
        for operation in schedule:
            source, target = (self._before, self._after) if operation.is_forward else (self._after, self._before)
            received = source.receive() if source is not None else None
            is_failed = is_failed or (source is not None and received is None)
            result = attempted(compute, operation, received)
            if target is not None:
                target.send(result)
        for link in (self._before, self._after):
            if link is not None:
                link.finish()
        found = attempted(sums)
        totals = np.zeros(self.n_sums) if found is None else np.array(found, np.float64)
        totals[FAILED] = is_failed
        # the last stage has finished before the first one: ending the step together costs no time
        patient_sum_in_place(self._chain, totals)
        if totals[FAILED]:
            with agreed_errors(self._chain):
                if error is not None:  # with the rank in the training, not that in the chain
                    raise error if isinstance(error, MPILearnError) else as_training_error(error, self._rank)
        return totals

    def _begin_links(self, schedule: Sequence[Operation], parts: Sequence[slice], encoding: Encoding) -> None:
        """Announces the arrays of the neighbours: activations from the stage before, gradients from the one after."""
        for link, shape, is_forward in (
            (self._before, self._shape_before, True),
            (self._after, self._shape_after, False),
        ):
            if link is not None and shape is not None:
                mine = [parts[one.micro_batch] for one in schedule if one.is_forward == is_forward]
                link.begin([(part.stop - part.start, *shape) for part in mine], encoding)


def _part(batch: Example, place: slice, received: np.ndarray | None) -> Example:
    """The samples of a micro-batch; behind the first stage, the inputs are what it has received."""
    part = batch.part(place.start, place.stop)
    return part if received is None else Example([received], part.y, part.weights)


def _received(chain: Communicator, source: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    array = np.empty(shape, dtype)
    receive_into(chain, array.reshape(-1), source)
    return array
