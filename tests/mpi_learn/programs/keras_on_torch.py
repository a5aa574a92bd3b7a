"""Trains Keras models on PyTorch with MPI Learn and with `fit`, on two ranks; rank 0 prints both histories.

Run with ``KERAS_BACKEND=torch``, in a folder with ``data.h5``. The arguments are the names of cases, and a folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py
import numpy as np
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import UserError

SGD, ADAM = {"name": "sgd", "learning_rate": 0.1}, {"name": "adam", "learning_rate": 0.01}
CLASSES = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"], "labels": "classes"}
CASES = {
    "sgd": (CLASSES, SGD, {"norm": True, "penalty": 0.01}),
    "adam": (CLASSES, ADAM, {"norm": True, "penalty": 0.01}),
    "logits": (CLASSES | {"loss": {"name": "sparse_categorical_crossentropy", "from_logits": True}}, ADAM, {}),
    "one-hot": (CLASSES | {"loss": "categorical_crossentropy", "labels": "one_hot"}, SGD, {}),
    "auc": (
        {"loss": "binary_crossentropy", "metrics": ["accuracy", "AUC"], "labels": "binary"},
        ADAM,
        {"output": "sigmoid", "n_outputs": 1},
    ),
    "mse": ({"loss": "mse", "metrics": ["mae"], "labels": "real"}, ADAM, {"output": "linear", "n_outputs": 1}),
    "weights": (CLASSES | {"weights": "weights", "weighted_metrics": ["accuracy"], "metrics": []}, ADAM, {}),
}
"""Name -> losses and metrics with the labels of the file, optimizer, arguments of `build`."""


def build(norm=False, penalty=0.0, output="softmax", n_outputs=3):
    import keras

    penalty = keras.regularizers.L2(penalty) if penalty else None
    layers = [keras.Input((6,)), keras.layers.Dense(16, "tanh", kernel_regularizer=penalty)]
    if norm:
        layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.0)]
    return keras.Sequential([*layers, keras.layers.Dense(n_outputs, output)])


def by_mpi_learn(case, comm, batch_size, epochs):
    wanted, optimizer, arguments = CASES[case]
    names = {"train": ["data.h5"], "features": "X", "labels": wanted["labels"], "shuffle": False}
    if "weights" in wanted:
        names["weights"] = wanted["weights"]
    return train(
        {
            "model": f"{__file__}:build",
            "parameters": arguments,
            "data": names,
            "optimizer": optimizer,
            "batch_size": {"total": batch_size},
            "epochs": epochs,
            "seed": 3,
        }
        | {key: wanted[key] for key in ("loss", "metrics", "weighted_metrics") if key in wanted},
        comm,
    )


def by_fit(case, batch_size, epochs):
    """The history of `fit`, with the initial weights of the seed."""
    import keras

    wanted, optimizer, arguments = CASES[case]
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(3)
    model, loss = build(**arguments), wanted["loss"]
    if isinstance(loss, dict):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made = keras.optimizers.get(
        {"class_name": optimizer["name"], "config": {"learning_rate": optimizer["learning_rate"]}}
    )
    model.compile(made, loss, metrics=wanted["metrics"], weighted_metrics=wanted.get("weighted_metrics"))
    with h5py.File("data.h5") as file:
        x, y = file["X"][:], file[wanted["labels"]][:]
        weights = file["weights"][:] if "weights" in wanted else None
    history = model.fit(x, y, batch_size, epochs, verbose=0, shuffle=False, sample_weight=weights).history
    return history, model.predict(x, verbose=0)


def build_masked():
    import keras

    layers = [keras.layers.Input((6,)), keras.layers.Embedding(9, 4, mask_zero=True), keras.layers.Dense(3)]
    return keras.Sequential(layers)


def build_with_step():
    import keras

    class Model(keras.Sequential):
        def train_step(self, data):
            return {"loss": 0.0}

    return Model([keras.layers.Input((6,)), keras.layers.Dense(3)])


def build_with_buffer():
    import keras
    import torch

    return keras.Sequential([keras.Input((6,)), keras.layers.TorchModuleWrapper(torch.nn.BatchNorm1d(6))])


def build_pair(latent=4):
    return build(), build()


REFUSED = {
    "train_step": {"model": f"{__file__}:build_with_step"},
    "mask": {"model": f"{__file__}:build_masked"},
    "buffers": {"model": f"{__file__}:build_with_buffer"},
    "no loss": {"loss": None},
    "ignored": {"loss": {"name": "sparse_categorical_crossentropy", "ignore_class": 0}},
    "sum": {"loss": {"name": "sparse_categorical_crossentropy", "reduction": "sum"}},
    "checkpointing": {"gradient_checkpointing": True},
    "precision": {"precision": "mixed_bfloat16"},
    "optimizer": {"optimizer": {"name": "keras.optimizers:Ftrl"}},
    "gan": {"model": f"{__file__}:build_pair", "gan": {"latent": 4}, "loss": "binary_crossentropy"},
    "pipeline": {"pipeline": {"stages": 1}},
    "compile": {"compile": True},
    "device": {"device": "cpu"},
    "xla": {"xla": True},
}
"""Name -> changes of a configuration that is trained on TensorFlow or PyTorch alone."""


def refused():
    """The error of each of `REFUSED`."""
    plain = {
        "model": f"{__file__}:build",
        "data": {"train": ["data.h5"], "features": "X", "labels": "classes"},
        "loss": "sparse_categorical_crossentropy",
        "optimizer": "sgd",
        "epochs": 1,
    }
    errors = {}
    for name, changes in REFUSED.items():
        try:
            train(plain | changes, MPI.COMM_SELF)
            errors[name] = ""
        except UserError as error:
            errors[name] = str(error)
    return errors


def main(cases, folder):
    comm, shown = MPI.COMM_WORLD, {}
    for case in cases:
        both = by_mpi_learn(case, comm, 200, 3)
        if comm.rank:
            continue
        steps, one = by_mpi_learn(case, MPI.COMM_SELF, 30, 2), by_mpi_learn(case, MPI.COMM_SELF, 200, 3)
        expected, outputs = by_fit(case, 30, 2)
        steps.save_model(Path(folder, case))
        np.save(Path(folder, f"{case}.npy"), outputs)
        shown[case] = {"both": both.history, "one": one.history, "steps": steps.history, "fit": expected}
    if comm.rank == 0:
        print(json.dumps({"histories": shown, "refused": refused()}))


if __name__ == "__main__":
    main(sys.argv[2:], sys.argv[1])
