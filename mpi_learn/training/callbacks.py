"""Callbacks of the user after every epoch: Keras' own, or functions of (epoch, metrics, model)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpi_learn.errors import ConfigurationError
from mpi_learn.models.keras_.keras_callbacks import check_keras_callback, is_keras_callback, make_keras_callback
from mpi_learn.models.model import Model
from mpi_learn.mpi.agreement import agreed_errors
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.settings.component import Component, Named, component, make_component


class Callbacks:
    """The callbacks of one training. They are called on the first worker, whose model they see.

    Args:
        wanted: As configured.
        comm: Of the training.
        first: The rank of the first worker.
        model: Of this rank.
        epochs: Number of epochs of the whole training.

    Raises:
        ConfigurationError: No such callback, or one that is not available.

    Collective over `comm`.
    """

    def __init__(self, wanted: Sequence[Named], comm: Communicator, first: int, model: Model, epochs: int) -> None:
        self.comm, self.first, self.model = comm, first, model
        self._are_wanted = bool(wanted)
        self._functions: list[Callable[[int, dict[str, float], Any], Any]] = []
        self._of_keras: list[Any] = []
        with agreed_errors(comm):
            if comm.rank == first:
                for one in map(component, wanted):
                    made = _made(one, model.framework)
                    (self._of_keras if is_keras_callback(made) else self._functions).append(made)
            for one in self._of_keras:
                one.set_params({"epochs": epochs, "verbose": 0})

    def begin(self) -> None:
        """Before the first epoch of this run. Collective."""
        self._all("on_train_begin")

    def after_epoch(self, epoch: int, metrics: dict[str, float]) -> bool:
        """Calls the callbacks; returns whether one of them stops the training. Collective.

        A function stops it by returning True, a callback of Keras by ``self.model.stop_training = True``.
        """
        if not self._are_wanted:
            return False
        stops = False
        with agreed_errors(self.comm):
            if self.comm.rank == self.first:
                model = self.model.current()
                stops = True in [bool(one(epoch, dict(metrics), model)) for one in self._functions]
        self._all("on_epoch_end", epoch, dict(metrics))
        stops |= any(bool(getattr(one.model, "stop_training", False)) for one in self._of_keras)
        return bool(self.comm.bcast(stops, root=self.first))

    def end(self) -> None:
        """After the last epoch. Collective."""
        self._all("on_train_end")

    def _all(self, name: str, *arguments: Any) -> None:
        if not self._are_wanted:
            return
        with agreed_errors(self.comm):
            for one in self._of_keras:
                one.set_model(self.model.current())
                getattr(one, name)(*arguments)


def _made(wanted: Component, framework: str) -> Any:
    if wanted.is_own:
        made = make_component(wanted, 3)
    elif framework == "keras":
        made = make_keras_callback(wanted)
    else:
        raise ConfigurationError(
            f"there is no callback {wanted.name}", where="callbacks", cure="write file.py:function"
        )
    if is_keras_callback(made):
        check_keras_callback(made)
    elif not callable(made):
        raise ConfigurationError(
            f"expected a callback, found {type(made).__name__}",
            where=f"callbacks: {wanted.name}",
            cure="return a function of (epoch, metrics, model), or a callback of Keras",
        )
    return made
