"""The same trainings by `keras.Model.fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

from tests.mpi_learn.conformance.rows import BATCH, EPOCHS, RATE, SEED, Arrays, Row


def by_the_framework(row: Row, module: Any, training: Arrays, validation: Arrays) -> dict[str, Any]:
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(SEED)
    model = getattr(module, row.model)(**row.parameters)
    optimizer = keras.optimizers.SGD(RATE) if row.optimizer is None else row.optimizer(module)
    # Tracing takes most of the time of a fit, and Keras then counts the losses of several outputs once per batch.
    model.compile(optimizer=optimizer, run_eagerly=True, **row.fit(module))
    options, others = row.options(training), row.options(validation)
    held_out = (row.inputs(validation), row.labels(validation))
    held_out += (others["sample_weight"],) if "sample_weight" in others else ()
    callbacks = [SeededTorch()] if keras.backend.backend() == "torch" else []
    history = model.fit(
        row.inputs(training), row.labels(training), batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0,
        validation_data=held_out, validation_batch_size=BATCH, callbacks=callbacks, **options,
    ).history  # fmt: skip
    return {"history": {name: list(map(float, values)) for name, values in history.items()}, "weights": weights(model)}


class SeededTorch(keras.callbacks.Callback):
    """Lets the steps alone draw from the generator of PyTorch, as dropout does; `fit` also draws for its loader."""

    def __init__(self) -> None:
        import torch

        super().__init__()
        self.torch, self.state = torch, torch.Generator().manual_seed(SEED * 1_000_003).get_state()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.torch.set_rng_state(self.state)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state = self.torch.get_rng_state()


def weights(model: Any) -> list[float]:
    return np.concatenate([np.ravel(one) for one in model.get_weights()]).astype(float).tolist()


def predicted(model: Any, x: Any) -> list[np.ndarray]:
    outputs = model(keras.tree.map_structure(keras.ops.convert_to_tensor, x))
    return [keras.ops.convert_to_numpy(one) for one in keras.tree.flatten(outputs)]


def loaded(file: Path, build: Any, x: Any) -> Any:
    if file.suffix == ".keras":
        return keras.saving.load_model(file)
    model = build()
    predicted(model, x)
    model.load_weights(file)
    return model
