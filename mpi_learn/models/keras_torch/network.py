"""A Keras model on PyTorch as a module whose parameters are parts of a flat vector."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import torch

from mpi_learn.models.building.frameworks import without_tensorflow
from mpi_learn.models.keras_.inspection import COUNTERS, RANK_SEED, SEED_STATE, takes_training
from mpi_learn.models.network import seed_of
from mpi_learn.models.settings import ModelSettings
from mpi_learn.models.torch_.network import TorchNetwork
from mpi_learn.settings.component import Component
from mpi_learn.settings.paths import replacing
from mpi_learn.update_rule import UpdateRule


class KerasModule(torch.nn.Module):
    """A built Keras model as a module: its variables are the parameters, in Keras' order, and it has no submodules.

    A Keras model on PyTorch is a module itself, but its parameters have the order of its layers, and those of a layer
    that is used twice have two names.

    Attributes:
        variables: The trainable variables, then the others, which are frozen parameters.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        self._held = (model,)  # as an attribute, the model would become a submodule
        self._takes_training = takes_training(model.call)
        self.variables = [*model.trainable_variables, *model.non_trainable_variables]
        for index, variable in enumerate(self.variables):
            name = COUNTERS.sub("", variable.path).replace(".", "_")
            self.register_parameter(f"{name}#{index}", variable.value)

    @property
    def model(self) -> keras.Model:
        """The Keras model."""
        return self._held[0]

    def forward(self, x: Any) -> Any:
        """The outputs in the structure of the model."""
        return self.model(x, **({"training": self.training} if self._takes_training else {}))


class KerasTorchNetwork(TorchNetwork):
    """See `TorchNetwork`; the object of `current` is the Keras model, and files are those of Keras."""

    framework = "keras"
    module: KerasModule

    def __init__(self, model: keras.Model, settings: ModelSettings) -> None:
        super().__init__(KerasModule(model), settings)
        self.model = model
        variables = self.module.variables
        self.has_constraints = any(variable.constraint is not None for variable in variables if variable.trainable)
        self._integers = [one for one in variables if not keras.backend.is_float_dtype(one.dtype)]
        self._seeds = [variable for variable in self._integers if variable.name == SEED_STATE]
        for variable in self._seeds:  # dropout and noise draw from (seed, counter): each rank gets its own seed
            variable.assign(np.array(variable) + np.array([settings.stream * RANK_SEED, 0]))

    @property
    def synchronizes_statistics(self) -> bool:
        return any(getattr(layer, "synchronized", False) for layer in self.model._flatten_layers())

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        with super().rehearsal():
            for variable in self._seeds:
                variable.assign(np.array([self.settings.configuration.seed, 0]))
            yield

    def random_mask(self) -> np.ndarray:
        mask = super().random_mask()
        of_model = [np.full(tuple(one.shape), one.name == SEED_STATE).ravel() for one in self._integers]
        flat = np.concatenate([*of_model, np.zeros(0, np.bool_)])
        mask[: flat.size] = flat
        return mask

    def seed_random(self, keys: Sequence[int]) -> None:
        super().seed_random(keys)
        for index, variable in enumerate(self._seeds):
            variable.assign(np.array([seed_of((*keys, index)), 0]))

    def current(self) -> Any:
        super().current()
        return self.model

    def save(self, path: Path) -> Path:
        """Writes the model without losses and optimizer: any backend of Keras can load the file."""
        file, before = path.with_name(f"{path.name}.keras"), (self.model.optimizer, self.model.compiled)
        self.model.optimizer, self.model.compiled = None, False
        try:
            with replacing(file) as temporary:
                self.current().save(temporary)
        finally:
            self.model.optimizer, self.model.compiled = before
        return file

    def save_weights(self, path: Path) -> Path:
        file = path.with_name(f"{path.name}.weights.h5")
        with replacing(file) as temporary:
            self.current().save_weights(temporary)
        return file

    def line_to_load(self, file: Path, name: str) -> str:
        return f"{name}.load_weights({file.name!r})"

    def optimizer(self, wanted: Component) -> UpdateRule:
        cure = "use an optimizer of MPI Learn"
        raise without_tensorflow(f"the optimizer {wanted.name} of Keras", "optimizer", cure)

    def close(self) -> None:
        """Leaves the model on its device, where Keras computes."""
        self.model.optimizer, self.model.compiled = None, False
        keras.backend.clear_session(free_memory=False)  # otherwise memory grows from model to model
        gc.collect()
