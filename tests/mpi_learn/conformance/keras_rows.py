"""The conformance table of Keras models."""

from __future__ import annotations

import numpy as np

from tests.mpi_learn.conformance.rows import Row

OF_CLASSES = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
KINDS = {"features": "X", "labels": "k"}


def row(says, model, settings=None, data=None, compiled=None, x="X", y="y", **others) -> Row:
    """A row whose `fit` takes arrays by these names, or lists or mappings of them."""
    if compiled is None:
        compiled = dict(settings or {})
    return Row(
        says, model, data or {"features": x, "labels": y}, settings or {},
        fit=compiled if callable(compiled) else lambda module: compiled,
        inputs=lambda arrays: _picked(arrays, x), labels=lambda arrays: _picked(arrays, y), **others,
    )  # fmt: skip


def _picked(arrays, names):
    if isinstance(names, dict):
        return {key: arrays[name] for key, name in names.items()}
    if isinstance(names, list):
        return [arrays[name] for name in names]
    return None if names is None else arrays[names]


ROWS: dict[str, Row] = {
    "sequential": row("Sequential models", "dense", {"loss": "mse", "metrics": ["mae"]}),
    "optimizer of the framework": row(
        "optimizers of Keras", "penalised",
        {"loss": "mse", "optimizer": {"name": "nadam", "learning_rate": 0.05, "beta_1": 0.8}}, compiled={"loss": "mse"},
        optimizer=lambda module: module.keras.optimizers.Nadam(0.05, beta_1=0.8), is_representative=True,
    ),
    "moving averages of the weights": row(
        "`use_ema` of an optimizer, with `algorithm: allreduce`", "dense",
        {
            "loss": "mse",
            "optimizer": {"name": "keras.optimizers:SGD", "learning_rate": 0.1, "use_ema": True, "ema_momentum": 0.7},
        },
        compiled={"loss": "mse"},
        optimizer=lambda module: module.keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.7),
        is_representative=True,
    ),
    "own optimizer": row(
        "optimizers of your own; constraints on weights", "constrained",
        {"loss": "mse", "optimizer": {"name": "$make_optimizer", "learning_rate": 0.02, "beta_1": 0.7}},
        compiled={"loss": "mse"}, optimizer=lambda module: module.make_optimizer(0.02, beta_1=0.7),
    ),
    "classes": row("class numbers", "classes", OF_CLASSES, y="k"),
    "one-hot": row(
        "one-hot labels; arguments of losses and metrics", "classes",
        {
            "loss": {"name": "CategoricalCrossentropy", "label_smoothing": 0.1, "from_logits": True},
            "metrics": ["accuracy", {"name": "TopKCategoricalAccuracy", "k": 2}],
        },
        compiled=lambda module: {
            "loss": module.keras.losses.CategoricalCrossentropy(label_smoothing=0.1, from_logits=True),
            "metrics": [
                "accuracy", module.keras.metrics.TopKCategoricalAccuracy(k=2, name="TopKCategoricalAccuracy"),
            ],
        },
        y="one_hot", parameters={"activation": None},
    ),
    "arguments by the name of a function": row(
        "arguments of losses by the names of functions", "dense", {"loss": {"name": "huber", "delta": 0.3}},
        compiled=lambda module: {"loss": module.keras.losses.Huber(delta=0.3)},
    ),
    "built when called": row(
        "models that are built when they are called", "deferred",
        {"loss": "crossentropy", "metrics": ["accuracy", "AUC", "Precision"]}, y="b",
        is_representative=True,
    ),
    "batch normalisation": row(
        "batch normalisation", "classes", OF_CLASSES, y="k", parameters={"norm": True}, is_exact=False,
        is_representative=True,
    ),
    "dropout": row(
        "dropout and noise", "classes", OF_CLASSES, y="k", parameters={"dropout": 0.3}, is_exact=False,
    ),
    "penalties": row("regularizers and frozen layers", "penalised", {"loss": "mse"}),
    "images": row(
        "convolutions on images of bytes", "images",
        {"loss": {"name": "SparseCategoricalCrossentropy", "from_logits": True}, "metrics": ["accuracy"]},
        compiled=lambda module: {
            "loss": module.keras.losses.SparseCategoricalCrossentropy(from_logits=True), "metrics": ["accuracy"],
        },
        x="image", y="k",
    ),
    "segmentation": row(
        "labels per pixel", "segmentation",
        {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy", {"name": "MeanIoU", "num_classes": 3,
                                                                              "sparse_y_pred": False}]},
        compiled=lambda module: {
            "loss": "sparse_categorical_crossentropy",
            "metrics": ["accuracy", module.keras.metrics.MeanIoU(3, sparse_y_pred=False, name="MeanIoU")],
        },
        x="pixels", y="per_pixel",
    ),
    "masks": row(
        "masks, labels per step, an ignored class", "masked",
        OF_CLASSES | {"loss": {"name": "sparse_categorical_crossentropy", "ignore_class": 1}},
        compiled=lambda module: {
            "loss": module.keras.losses.SparseCategoricalCrossentropy(ignore_class=1), "metrics": ["accuracy"],
        },
        x="padded", y="per_step", loose=("loss", "val_loss"), is_representative=True,
    ),
    "masks of several outputs": row(
        "masks with several outputs", "masked_pair", {"loss": ["sparse_categorical_crossentropy"] * 2},
        x="padded", y=["per_step", "per_step"],
        loose=("loss", "val_loss", "first_loss", "second_loss", "val_first_loss", "val_second_loss"),
    ),
    "masks that differ between outputs": row(
        "masks that differ between the outputs", "masked_apart", {"loss": ["sparse_categorical_crossentropy"] * 2},
        x="padded", y=["per_step", "per_step"], is_exact=False,
    ),
    "words": row(
        "embeddings of integers, with masks", "words", {"loss": "binary_crossentropy", "metrics": ["accuracy"]},
        x="ids", y="b",
    ),
    "large integers": row("integers of any size", "large_ids", {"loss": "mse"}, x="large"),
    "attention": row(
        "attention, models within models", "attention", {"loss": "mse", "metrics": ["R2Score"]}, x="steps",
    ),
    "several inputs and outputs": row(
        "several inputs and outputs, in an order", "two_by_two",
        {
            "loss": ["mse", "sparse_categorical_crossentropy"], "loss_weights": [0.3, 2.0],
            "metrics": {"energy": ["mae"], "kind": ["accuracy"]},
        },
        x=["X", "A"], y=["y", "k"],
        is_representative=True,
    ),
    "outputs by name": row(
        "outputs by name, labels by name", "outputs_by_name",
        {
            "loss": {"z": "mse", "a": "binary_crossentropy"}, "metrics": {"a": ["accuracy"]},
            "loss_weights": {"z": 0.5},
        },
        {"features": "X", "labels": {"a": "b", "z": "z"}},
        y={"z": "z", "a": "b"},
        compiled={
            "loss": {"z": "mse", "a": "binary_crossentropy"}, "metrics": {"a": ["accuracy"]},
            "loss_weights": {"z": 0.5, "a": 1.0},
        },
    ),
    "weights by output": row(
        "sample weights by output, also for weighted metrics", "outputs_by_name",
        {
            "loss": {"z": "mse", "a": "binary_crossentropy"},
            "weighted_metrics": {"z": ["mae"], "a": ["binary_accuracy"]},
        },
        {"features": "X", "labels": {"a": "b", "z": "z"}, "weights": {"z": "w", "a": "w_other"}},
        y={"z": "z", "a": "b"}, options=lambda arrays: {"sample_weight": {"z": arrays["w"], "a": arrays["w_other"]}},
        is_representative=True,
    ),
    "weights of one output": row(
        "sample weights of one of several outputs", "two_by_two",
        {"loss": {"kind": "sparse_categorical_crossentropy", "energy": "mse"}},
        {"features": ["X", "A"], "labels": {"kind": "k", "energy": "y"}, "weights": {"kind": "w"}}, x=["X", "A"],
        y=["y", "k"],
        options=lambda arrays: {"sample_weight": [np.ones(len(arrays["w"]), "f"), arrays["w"]]},
    ),
    "outputs of a list by name": row(
        "outputs of a list by name", "two_by_two",
        {"loss": {"kind": "sparse_categorical_crossentropy", "energy": "mse"}},
        {"features": ["X", "A"], "labels": {"kind": "k", "energy": "y"}}, x=["X", "A"],
        y={"energy": "y", "kind": "k"},
    ),
    "output without a loss": row(
        "outputs without a loss", "outputs_by_name", {"loss": {"z": "mse"}},
        {"features": "X", "labels": {"z": "z"}}, compiled={"loss": {"z": "mse", "a": None}}, y={"z": "z", "a": "b"},
    ),
    "inputs by name": row(
        "a mapping of inputs", "inputs_by_name", {"loss": "mse"},
        {"features": {"weight": "inputs/weight", "age": "inputs/age"}, "labels": "y"},
        x={"age": "inputs/age", "weight": "inputs/weight"},
    ),
    "group by name": row(
        "HDF5 groups, matched with the inputs by name", "two_by_two",
        {"loss": ["mse", "sparse_categorical_crossentropy"]}, {"features": "group", "labels": ["y", "k"]},
        x=["group/b", "group/a"], y=["y", "k"], parameters={"b_first": True},
    ),
    "subclass": row(
        "subclassed models: inputs by name, `call` without `training`, layers that are not called", "NoTraining",
        {"loss": "mse", "optimizer": {"name": "adamw", "learning_rate": 0.05, "weight_decay": 0.5}},
        {"features": {"income": "income", "age": "age"}, "labels": "y"}, x={"age": "age", "income": "income"},
        compiled={"loss": "mse"}, optimizer=lambda module: module.keras.optimizers.AdamW(0.05, weight_decay=0.5),
        is_representative=True,
    ),
    "overridden compute_loss": row(
        "overridden `compute_loss`, annealing by `self.optimizer.iterations`", "growing", {"loss": "mse"},
    ),
    "overridden train_step": row(
        "overridden `train_step` and `test_step` that call self.optimizer once", "Autoencoder",
        {"loss": None}, {"features": "X", "labels": None}, y=None, compiled={},
        loose=("size", "loss", "val_size", "val_loss"),
        is_representative=True,
    ),
    "train_step that calls Keras'": row(
        "overridden `train_step` that changes the data", "distilled", {"loss": "mse", "metrics": ["mae"]},
    ),
    "train_step that updates metrics": row(
        "overridden `train_step` that updates all metrics, as in adversarial training", "adversarial", OF_CLASSES,
        y="k", loose=("loss",),
    ),
    "add_loss": row(
        "`add_loss`, without labels", "own_loss_inside", {}, {"features": "X", "labels": None}, y=None, compiled={},
        is_representative=True,
    ),
    "add_loss and a loss": row("`add_loss` and a loss", "own_loss_inside", {"loss": "mse"}, y="one_hot"),
    "sample weights": row(
        "sample weights, weighted metrics", "classes", OF_CLASSES | {"weighted_metrics": ["accuracy"]},
        {"features": "X", "labels": "k", "weights": "w"}, y="k",
        options=lambda arrays: {"sample_weight": arrays["w"]},
        is_representative=True,
    ),
    "weighted mean": row(
        "reductions of losses", "dense", {"loss": {"name": "MeanSquaredError", "reduction": "mean_with_sample_weight"}},
        {"features": "X", "labels": "y", "weights": "w"}, options=lambda arrays: {"sample_weight": arrays["w"]},
        compiled=lambda module: {
            "loss": module.keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"),
        },
        loose=("loss", "val_loss"),
        is_representative=True,
    ),
    "class weights": row(
        "class weights", "classes", OF_CLASSES, KINDS | {"class_weight": {0: 1.0, 1: 5.0, 2: 0.5}}, y="k",
        options=lambda arrays: {"class_weight": {0: 1.0, 1: 5.0, 2: 0.5}},
    ),
    "counters": row(
        "layers with counters and other state of your own", "counting", {"loss": "mse"},
        is_representative=True,
    ),
    "metrics in layers": row("layers that update metrics of their own", "observed", {"loss": "mse"}),
    "compiled": row(
        "models that the function compiles", "compiled", {}, KINDS, y="k",
        compiled=lambda module: {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]},
    ),
    "own loss": row(
        "losses and metrics of your own", "dense", {"loss": "$absolute", "metrics": ["$mean_square"]},
        compiled=lambda module: {"loss": module.absolute, "metrics": [module.mean_square]}, is_representative=True,
        loose=("mean_square", "val_mean_square"),
    ),
    "loss that compares samples": row(
        "losses that compare the samples of a batch with each other", "dense", {"loss": "$correlation"},
        compiled=lambda module: {"loss": module.correlation}, is_exact=False,
    ),
    "own classes": row(
        "classes and factories, with arguments", "dense",
        {
            "loss": {"name": "$Scaled", "factor": 3.0},
            "metrics": ["$PositiveShare", {"name": "$make_positive", "factor": 4.0}, "keras.metrics:MeanSquaredError"],
        },
        compiled=lambda module: {
            "loss": module.Scaled(3.0),
            "metrics": [
                module.PositiveShare(name="PositiveShare"), _named(module.PositiveShare(4.0), "make_positive"),
                module.keras.metrics.MeanSquaredError(name="MeanSquaredError"),
            ],
        },
        is_representative=True,
    ),
    "losses of modules": row(
        "classes of installed packages", "dense", {"loss": "keras.losses:LogCosh"},
        compiled=lambda module: {"loss": module.keras.losses.LogCosh()},
    ),
    "own gradients": row(
        "gradients of your own that are not proportional to the loss, such as clipped ones", "clipped", {"loss": "mse"},
        is_exact=False,
    ),
    "call with options": row(
        "`call` with `**options`, which Keras calls without `training`", "forwarding", {"loss": "mse"}
    ),
    "cannot be saved": row(
        "models that cannot be saved whole: their weights are", "cannot_be_saved", {"loss": "mse"}, saved=".weights.h5",
        is_representative=True,
    ),
    "derivatives": row(
        "derivatives with respect to the inputs (physics-informed networks), in a `GradientTape`", "oscillator",
        {"loss": "mse"}, x="z_column",
    ),
    # refused
    "constraints": row(
        "constraints on weights with an optimizer of MPI Learn", "constrained", {"loss": "mse"},
        refused="constraints on its weights, which only an optimizer of Keras applies",
    ),
    "two optimizers": row(
        "a GAN as one model", "TwoOptimizers", {"loss": "mse"},
        refused="train_step of TwoOptimizers never calls self.optimizer",
    ),
    "overridden fit": row(
        "a `fit` or `make_train_function` of its own", "OwnLoop", {"loss": "mse"}, refused="OwnLoop overrides `fit`",
    ),
    "overridden evaluate": row(
        "with validation data, an `evaluate` or `make_test_function` of its own", "own_validation", {"loss": "mse"},
        refused="OwnValidation overrides `evaluate`",
    ),
    "learning rate in the loss": row(
        "losses and `train_step` that read `self.optimizer.learning_rate`", "rate_in_loss", {"loss": "mse"},
        refused="reads self.optimizer.learning_rate",
    ),
    "moving mean of the weights": row(
        "`train_step` that uses the weights after its step", "Teacher", {"loss": "mse"},
        refused="uses the weights after self.optimizer has updated them",
    ),
    "sum over the batch": row(
        "losses that are sums over the batch, on several ranks", "dense",
        {"loss": {"name": "MeanSquaredError", "reduction": "sum"}}, refused="the loss is a sum over the batch", ranks=3,
    ),
    "negative weights": row(
        "negative weights and a loss that is divided by their sum, on several ranks", "dense",
        {"loss": {"name": "MeanSquaredError", "reduction": "mean_with_sample_weight"}},
        {"features": "X", "labels": "y", "weights": "w_signed"}, refused="and negative weights, the loss", ranks=3,
    ),
    "synchronised batch normalisation": row(
        "batch normalisation over the replicas of Keras, on several ranks", "classes", OF_CLASSES, y="k",
        parameters={"norm": True, "synchronized": True}, refused="synchronises its batch statistics", ranks=3,
    ),
    "loss of each sample": row(
        "losses that are not one number", "dense", {"loss": {"name": "MeanSquaredError", "reduction": "none"}},
        refused="expected one number",
    ),
    "metric that is not a sum": row(
        "metrics that are not sums over samples", "dense", {"loss": "mse", "metrics": ["$Largest"]},
        refused="the metric Largest does not add up",
    ),
    "metric of several values": row(
        "metrics of several values", "classes", {"loss": "categorical_crossentropy", "metrics": ["F1Score"]},
        y="one_hot", refused="the metric F1Score gives 3 values",
    ),
    "labels of outputs by name, in an order": row(
        "labels in an order for outputs by name", "outputs_by_name", {"loss": {"z": "mse", "a": "mse"}}, y=["z", "b"],
        refused="write a mapping: {a: …, z: …}",
    ),
    "inputs by name, in an order": row(
        "features in an order for inputs by name", "inputs_by_name", {"loss": "mse"}, x=["inputs/age", "inputs/weight"],
        refused="which have no order",
    ),
    "other names": row(
        "features of other names than the inputs", "inputs_by_name", {"loss": "mse"},
        x={"a": "inputs/age", "w": "inputs/weight"}, refused="the model's inputs are named weight, age",
    ),
    "compiled with another optimizer": row(
        "an optimizer in `compile` alone", "compiled", {"optimizer": None}, KINDS,
        refused="compiled with SGD, and the configuration has no optimizer",
    ),
    "state changed in inference": row(
        "layers that change their state without `training`", "counting", {"loss": "mse"},
        parameters={"in_inference": True}, refused="changes when the model is called with training=False",
    ),
    "loss with a state": row(
        "losses that change a state of their own", "dense", {"loss": "$Balanced"},
        refused="the loss changes a state of its own",
    ),
    "stateful cells": row(
        "recurrent layers with `stateful=True`", "stateful", {"loss": "mse"}, x="steps",
        refused="has stateful=True",
    ),
    "weights changed by a layer": row(
        "layers that change their trainable weights, such as `SpectralNormalization`", "spectral", {"loss": "mse"},
        refused="is trainable, and the model changes it when it is called",
    ),
    "weights of pixels": row(
        "a weight per sample for a loss per pixel", "segmentation", OF_CLASSES,
        {"features": "pixels", "labels": "per_pixel", "weights": "w"},
        refused="the data have weights of shape () per sample",
    ),
    "class weights of pixels": row(
        "class weights with several classes per sample", "segmentation", OF_CLASSES,
        {"features": "pixels", "labels": "per_pixel", "class_weight": {0: 1.0, 1: 5.0}},
        refused="expected one class per sample",
    ),
    "fit of a functional model": row(
        "`fit` of a functional model, as of the tasks of keras_hub", "task", {"loss": "mse"},
        refused="return keras.Model(model.input, model.output)",
    ),
    "scope of a strategy": row(
        "variables of `tf.distribute`", "in_a_scope", {"loss": "mse"}, refused="outside of strategy.scope()",
    ),
    "float16": row("float16 with loss scaling", "half_precision", {"loss": "mse"}, refused="mixed_float16"),
    "float16 everywhere": row(
        "`precision: mixed_float16`", "dense", {"loss": "mse", "precision": "mixed_float16"}, refused="mixed_float16",
    ),
    "bfloat16": row(
        "weights in bfloat16 or float16", "in_bfloat16", {"loss": "mse"}, refused="is trained in bfloat16",
    ),
    "no call": row("models without `call`", "NoCall", {"loss": "mse"}, refused="does not have a `call()`"),
    "weights of no output": row(
        "sample weights by other names than those of the outputs", "outputs_by_name",
        {"loss": {"z": "mse", "a": "binary_crossentropy"}},
        {"features": "X", "labels": {"a": "b", "z": "z"}, "weights": {"q": "w"}},
        refused="data.weights: the model has no output q",
    ),
    "a layer": row("layers", "returns_a_layer", {"loss": "mse"}, refused="expected a Keras or PyTorch model"),
    "no loss": row("models without a loss", "dense", {}, refused="No loss to compute"),
}  # fmt: skip


def _named(metric, name):
    metric.name = name
    return metric
