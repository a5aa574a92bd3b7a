"""Callbacks of the user after every epoch: Keras' own, or functions of (epoch, metrics, model)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpi_learn.errors import ConfigurationError
from mpi_learn.models.keras_.callbacks import (
    check_keras_callback,
    is_keras_callback,
    make_keras_callback,
    progress,
)
from mpi_learn.models.model import Model
from mpi_learn.mpi.communicators import Communicator, agreed_errors, result_of_rank
from mpi_learn.optimizers.learning_rate import LearningRate
from mpi_learn.settings.component import Component, Named, component, make_component
from mpi_learn.training.state import Epoch


class Callbacks:
    """The callbacks of one training. They are called on the first worker, with its model. Collective over `comm`.

    Args:
        first: The rank of the first worker.
        rate: The learning rate. If a callback sets that of the model's optimizer, it is set on all ranks.

    Raises:
        ConfigurationError: A callback does not exist, or is not available.
    """

    def __init__(
        self, wanted: Sequence[Named], comm: Communicator, first: int, model: Model, epochs: int, rate: LearningRate
    ) -> None:
        self.comm, self.first, self.model, self.rate = comm, first, model, rate
        self._has_callbacks = bool(wanted)
        self._functions: list[Callable[[int, dict[str, float], Any], Any]] = []
        self._of_keras: list[Any] = []
        with agreed_errors(comm):
            if comm.rank == first:
                for callback in map(component, wanted):
                    made = _make_callback(callback, model.framework)
                    (self._of_keras if is_keras_callback(made) else self._functions).append(made)
            for callback in self._of_keras:
                callback.set_params({"epochs": epochs, "verbose": 0})

    def check_rate(self) -> None:
        """Checks that no callback sets a learning rate that cannot be set. To be called when the optimizer exists.

        Raises:
            ConfigurationError: A callback would set it; on the first worker.
        """
        for callback in self._of_keras:
            check_keras_callback(callback, self.rate.fixed_by)

    def begin(self, epoch: int, state: Sequence[Mapping[str, float]] = ()) -> None:
        """Before the first epoch of this run, with the `state` in the checkpoint of an earlier one. Collective."""
        self._call(epoch, "on_train_begin")
        for callback, numbers in zip(self._of_keras, state, strict=False):
            vars(callback).update(numbers)

    def state(self) -> list[dict[str, float]]:
        """The progress of each callback of Keras, for a checkpoint. Collective."""
        if not self._has_callbacks:
            return []
        shared: list[dict[str, float]] = self.comm.bcast(list(map(progress, self._of_keras)), root=self.first)
        return shared

    def before_epoch(self, epoch: int) -> None:
        """Before the steps of an epoch. Collective."""
        self._call(epoch, "on_epoch_begin", epoch)

    def after_epoch(self, epoch: Epoch, metrics: dict[str, float]) -> bool:
        """Calls the callbacks; returns whether one of them stops the training. Collective.

        A function stops it by returning True, a callback of Keras by ``self.model.stop_training = True``. The model has
        the weights after `epoch`, also if the next epoch was trained during its validation.
        """
        return self._call(epoch.number, "on_epoch_end", epoch.number, metrics, after=epoch)

    def end(self, epoch: int) -> None:
        """After the last epoch. Collective."""
        self._call(epoch, "on_train_end")

    def _call(self, epoch: int, name: str, *arguments: Any, after: Epoch | None = None) -> bool:
        """Calls a method of all callbacks, and functions after an epoch; returns whether one stops. Collective."""
        if not self._has_callbacks:
            return False

        is_copy = after is not None and after.weights is not self.model.weights

        def call_here() -> tuple[bool, float | None, np.ndarray | None]:
            with as_after(after, self.model):
                weights, state = self.model.weights.copy(), self.model.state.floats()
                stops, rate = self._call_here(epoch, name, arguments)
                return stops, rate, self._changed_state(weights, state, is_copy)

        stops, rate, state = result_of_rank(self.comm, call_here, self.first)
        if rate is not None:
            self.rate.choose(rate)
        if state is not None:
            self.model.state.set_floats(state)
        return stops

    def _changed_state(self, weights: np.ndarray, state: np.ndarray, is_copy: bool) -> np.ndarray | None:
        """The real numbers of the model's state if callbacks have changed them.

        Args:
            weights, state: As they were before the callbacks.
            is_copy: Whether the callbacks have received copies of the weights and the state: changes would be lost.

        Raises:
            ConfigurationError: Callbacks have changed the weights of this rank, and there are others; or, if `is_copy`,
                they have changed the weights or the state.
        """
        self.model.take_current()
        now = self.model.state.floats()
        has_state = not np.array_equal(state, now, equal_nan=True)
        has_weights = not np.array_equal(weights, self.model.weights, equal_nan=True)
        if (has_weights and self.comm.size > 1) or (is_copy and (has_weights or has_state)):
            changed = "weights" if has_weights else "state"
            problem = (
                f", but callbacks receive a copy of the {changed} with `validation: {{mode: thread}}`"
                if is_copy
                else " on one rank alone"
            )
            cures = ["leave out `validation: {mode: thread}`"] * is_copy
            cures += ["train on one rank"] * (has_weights and self.comm.size > 1)
            raise ConfigurationError(
                f"a callback changes the {changed} of the model{problem}",
                where="callbacks",
                cure=" and ".join(cures),
            )
        return now if has_state else None

    def _call_here(self, epoch: int, name: str, arguments: tuple[Any, ...]) -> tuple[bool, float | None]:
        """The part of `_call` on the first worker; also returns the learning rate if a callback has set it."""
        model = self.model.current()
        optimizer = getattr(model, "optimizer", None) if self.model.framework == "keras" else None
        rate_before = 0.0
        if optimizer is not None:
            optimizer.learning_rate = self.rate.at_start_of(epoch)
            rate_before = float(optimizer.learning_rate)  # as its variable holds it
        stops = False
        if name == "on_epoch_end":
            for function in self._functions:
                stops |= bool(function(epoch, dict(arguments[1]), model))
        for callback in self._of_keras:
            callback.set_model(model)
            getattr(callback, name)(*(dict(part) if isinstance(part, dict) else part for part in arguments))
            stops |= bool(getattr(model, "stop_training", False))
        if optimizer is None or float(optimizer.learning_rate) == rate_before:
            return stops, None
        if self.rate.fixed_by:
            raise ConfigurationError(
                f"a callback sets the learning rate, but {self.rate.fixed_by}",
                where="callbacks",
                cure="leave one of the two out",
            )
        return stops, float(optimizer.learning_rate)


@contextmanager
def as_after(epoch: Epoch | None, model: Model) -> Iterator[None]:
    """Inside, the model has the weights and batch statistics after `epoch`; with None, the present ones."""
    if epoch is None or epoch.weights is model.weights:
        yield
        return
    weights, statistics = model.weights.copy(), model.state.floats()
    model.weights[:] = epoch.weights
    model.state.set_floats(epoch.statistics)
    try:
        yield
    finally:
        model.weights[:] = weights
        model.state.set_floats(statistics)


def _make_callback(wanted: Component, framework: str) -> Any:
    if wanted.is_custom:
        made = make_component(wanted, 3)
    elif framework == "keras":
        made = make_keras_callback(wanted)
    else:
        raise ConfigurationError(
            f"there is no callback {wanted.name}", where="callbacks", cure="write file.py:function"
        )
    if is_keras_callback(made):
        check_keras_callback(made, fixed_by="")
    elif not callable(made):
        raise ConfigurationError(
            f"expected a callback, found {type(made).__name__}",
            where=f"callbacks: {wanted.name}",
            cure="return a function of (epoch, metrics, model), or a callback of Keras",
        )
    return made
