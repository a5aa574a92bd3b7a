"""Callbacks of the user after every epoch: Keras' own, or functions of (epoch, metrics, model)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from mpi_learn.errors import ConfigurationError
from mpi_learn.models.keras_.callbacks import (
    check_keras_callback,
    give_model,
    is_keras_callback,
    make_keras_callback,
    new_rate,
    optimizer_values,
    progress,
)
from mpi_learn.models.model import Model
from mpi_learn.models.network import NOT_IN_OPTIMIZER
from mpi_learn.mpi.communicators import Communicator, agreed_errors, result_of_rank
from mpi_learn.optimizers.learning_rate import LearningRate
from mpi_learn.settings.component import Component, Named, component, make_component
from mpi_learn.training.state import Epoch


class CallbackCall(NamedTuple):
    """What all ranks learn of a call of the callbacks on the first worker.

    Attributes:
        stops: Whether one of them stops the training.
        rate: The learning rate if one of them has set it.
        floats: The real numbers of the model's state if one of them has changed them.
        integers: Positions and values of the integers that they have changed, without those of random generators.
        metrics: Metrics that they have added or changed.
    """

    stops: bool
    rate: float | None
    floats: np.ndarray | None
    integers: tuple[np.ndarray, np.ndarray]
    metrics: dict[str, float]


class Callbacks:
    """The callbacks of one training. They are called on the first worker, with its model. Collective over `comm`.

    Args:
        first: The rank of the first worker.
        rate: The learning rate. If a callback sets that of the model's optimizer, it is set on all ranks.
        n_steps: Batches per epoch of a worker, which callbacks of Keras can read.

    Raises:
        ConfigurationError: A callback does not exist, or is not available.
    """

    def __init__(
        self,
        wanted: Sequence[Named],
        comm: Communicator,
        first: int,
        model: Model,
        epochs: int,
        rate: LearningRate,
        n_steps: float,
    ) -> None:
        self.comm, self.first, self.model, self.rate = comm, first, model, rate
        self._has_callbacks = bool(wanted)
        self._made: list[Any] = []  # in the order of the file, in which they are called
        self._logs: dict[str, Any] = {}  # of the last epoch, as callbacks have received them
        self._traits: frozenset[str] | None = None  # names of those that the model has without its callbacks
        with agreed_errors(comm):
            if comm.rank == first:
                self._made += [_make_callback(callback, model.framework) for callback in map(component, wanted)]
            for callback in self._of_keras:
                callback.set_params({"verbose": 0, "epochs": epochs, "steps": math.ceil(n_steps)})  # as in `fit`

    @property
    def _of_keras(self) -> list[Any]:
        return list(filter(is_keras_callback, self._made))

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

    def after_epoch(self, epoch: Epoch, metrics: dict[str, float]) -> tuple[bool, dict[str, float]]:
        """Calls the callbacks. Collective.

        A function stops the training by returning True, a callback of Keras by ``self.model.stop_training = True``. The
        model has the weights after `epoch`, also if the next epoch was trained during its validation.

        Returns:
            Whether one of them stops the training, and the metrics that they have added to `metrics` or changed.
        """
        self._logs = dict(metrics)
        return self._call(epoch.number, "on_epoch_end", epoch.number, logs=dict(metrics), after=epoch)

    def end(self, epoch: int) -> None:
        """After the last epoch. Collective."""
        self._call(epoch, "on_train_end", logs=self._logs)

    def _call(
        self, epoch: int, name: str, *arguments: Any, logs: dict[str, Any] | None = None, after: Epoch | None = None
    ) -> tuple[bool, dict[str, float]]:
        """Calls a method of all callbacks, and functions after an epoch. Collective.

        Args:
            logs: The metrics, which callbacks may change, as in `fit`.

        Returns:
            Whether a callback stops the training, and the metrics that they have changed.
        """
        if not self._has_callbacks:
            return False, {}
        logs = {} if logs is None else logs
        is_copy = after is not None and after.weights is not self.model.weights

        def call_here() -> CallbackCall:
            with as_after(after, self.model):
                before, watch = dict(logs), ModelWatch(self.model, self._traits)
                self._traits = watch.names
                stops, rate = self._call_here(epoch, name, arguments, logs)
                floats, integers = watch.changed(is_copy, self.comm.size)
                return CallbackCall(stops, rate, floats, integers, changed_numbers(before, logs))

        called = result_of_rank(self.comm, call_here, self.first)
        if called.rate is not None:
            self.rate.choose(called.rate)
        if called.floats is not None:
            self.model.state.set_floats(called.floats)
        positions, values = called.integers
        if positions.size and self.comm.rank != self.first:
            integers = self.model.state.integers()
            integers[positions] = values
            self.model.state.set_integers(integers)
        return called.stops, called.metrics

    def _call_here(
        self, epoch: int, name: str, arguments: tuple[Any, ...], logs: dict[str, Any]
    ) -> tuple[bool, float | None]:
        """The part of `_call` on the first worker; also returns the learning rate if a callback has set it."""
        model = self.model.current()
        optimizer = getattr(model, "optimizer", None) if self.model.framework == "keras" else None
        before: dict[str, Any] = {}
        if optimizer is not None:
            optimizer.learning_rate = self.rate.at_start_of(epoch)
            before = optimizer_values(optimizer)  # with the rate as its variable holds it
        if name == "on_train_begin" and self._of_keras:
            give_model(self._made, model)
        stops = False
        for callback in self._made:
            if is_keras_callback(callback):
                getattr(callback, name)(*arguments, logs)
                stops |= bool(getattr(model, "stop_training", False))
            elif name == "on_epoch_end":
                stops |= bool(callback(epoch, logs, model))
        if optimizer is None:
            return stops, None
        rate = new_rate(model, optimizer, before)
        if rate is not None and self.rate.fixed_by:
            raise ConfigurationError(
                f"a callback sets the learning rate, but {self.rate.fixed_by}",
                where="callbacks",
                cure="leave one of the two out",
            )
        return stops, rate


class ModelWatch:
    """Notices what callbacks change in a model on the first worker.

    Args:
        names: Names of the traits that are watched; None: all that the model has now. An attribute that callbacks
            have added is theirs.
    """

    def __init__(self, model: Model, names: frozenset[str] | None) -> None:
        self.model, self._traits = model, model.traits()
        self.names = frozenset(self._traits) if names is None else names
        self._weights, self._floats = model.weights.copy(), model.state.floats()
        self._integers = model.state.integers()

    def changed(self, is_copy: bool, n_ranks: int) -> tuple[np.ndarray | None, tuple[np.ndarray, np.ndarray]]:
        """The real numbers of the model's state if they have changed; positions and values of changed integers.

        Args:
            is_copy: Whether the callbacks have received copies of the weights and the state: changes would be lost.

        Raises:
            ConfigurationError: Callbacks have changed what other ranks or the compiled step do not see: the weights or
                an attribute; or, if `is_copy`, the weights or the state.
        """
        self._check_traits(n_ranks)
        self.model.take_current()
        now, integers = self.model.state.floats(), self.model.state.integers()
        has_state = not np.array_equal(self._floats, now, equal_nan=True)
        has_weights = not np.array_equal(self._weights, self.model.weights, equal_nan=True)
        if (has_weights and n_ranks > 1) or (is_copy and (has_weights or has_state)):
            changed = "weights" if has_weights else "state"
            problem = (
                f", but callbacks receive a copy of the {changed} with `validation: {{mode: thread}}`"
                if is_copy
                else " on one rank alone"
            )
            cures = ["leave out `validation: {mode: thread}`"] * is_copy
            cures += ["train on one rank"] * (has_weights and n_ranks > 1)
            raise _refused(f"changes the {changed} of the model{problem}", " and ".join(cures))
        is_changed = (self._integers != integers) & ~self.model.state.random_mask()
        positions = np.flatnonzero(is_changed)
        return now if has_state else None, (positions, integers[positions])

    def _check_traits(self, n_ranks: int) -> None:
        now = self.model.traits()
        for name in sorted(self.names & self._traits.keys()):
            before, after = self._traits[name], now.get(name)
            if repr(before) == repr(after):
                continue
            if after == NOT_IN_OPTIMIZER or name not in now:
                cure = "train twice: let the function of the second training load the weights that the first has saved"
                raise _refused(f"replaces {name}, or trains it although it was frozen before", cure)
            change = f"changes {name} from {before} to {after}"
            if not self.model.sees_attributes:
                cure = "set it in the function of the model, or use a variable, `add_weight(trainable=False)`"
                raise _refused(f"{change}, but the step has been compiled before", cure)
            if n_ranks > 1:
                is_frozen = "frozen" in (before, after)
                cure = "freeze it in the function of the model" if is_frozen else "use a buffer, `register_buffer`"
                raise _refused(f"{change} on one rank alone", f"{cure}, or train on one rank")


def _refused(problem: str, cure: str) -> ConfigurationError:
    return ConfigurationError(f"a callback {problem}", where="callbacks", cure=cure)


def changed_numbers(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in `after` that are not in `before`. Other values are for later callbacks, not for the history."""
    changed = {name: value for name, value in after.items() if name not in before or before[name] is not value}
    return {name: float(value) for name, value in changed.items() if isinstance(value, Real)}


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
