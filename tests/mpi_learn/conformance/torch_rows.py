"""The conformance table of PyTorch models."""

from __future__ import annotations

from typing import Any

from tests.mpi_learn.conformance.rows import Row


class _Functional:
    """``torch.nn.functional``, imported at the first use: tests and documentation read the table without PyTorch."""

    def __getattr__(self, name: str) -> Any:
        from torch.nn import functional

        return getattr(functional, name)


functional = _Functional()

OF_CLASSES = {"loss": "cross_entropy", "metrics": ["accuracy"]}
KINDS = {"features": "X", "labels": "k"}


def row(says, model, loss, settings, data=None, x="X", measured=lambda batch: {}, **others) -> Row:
    """A row.

    Args:
        loss: Of (outputs, batch); with an argument more, the module of models first.
        x: Name of the input, or a list or mapping of them.
        measured: Name -> value of metrics, from the batch with the outputs.
    """

    def picked(arrays: Any) -> Any:
        if isinstance(x, dict):
            return {key: arrays[name] for key, name in x.items()}
        return [arrays[name] for name in x] if isinstance(x, list) else arrays[x]

    def of_module(module: Any) -> Any:
        return loss if loss.__code__.co_argcount == 2 else lambda outputs, batch: loss(module, outputs, batch)

    return Row(
        says, model, data or {"features": x, "labels": "y"}, settings, fit=of_module, inputs=picked, options=measured,
        saved=".pt", **others,
    )  # fmt: skip


def mse(outputs, batch):
    return functional.mse_loss(outputs.squeeze(-1), batch["y"])


def entropy(outputs, batch):
    return functional.cross_entropy(outputs, batch["k"])


def accuracy(batch):
    return {"accuracy": (batch["outputs"].argmax(1) == batch["k"]).float().mean()}


def penalised(outputs, batch):
    outputs = outputs.squeeze(-1)
    return functional.mse_loss(outputs, batch["y"]) + 0.1 * outputs.abs().mean()


def equation(module, outputs, batch):
    return module.of_equation(outputs, batch["y"])


def class_weight(batch):
    return batch["w"].new_tensor([1.0, 5.0, 0.5])[batch["k"]]


ROWS: dict[str, Row] = {
    "optimizer of the framework": row(
        "optimizers of PyTorch", "dense", mse,
        {"loss": "mse", "optimizer": {"name": "nadam", "learning_rate": 0.05, "betas": [0.8, 0.99]}},
        optimizer=lambda module, parameters: module.torch.optim.NAdam(parameters, lr=0.05, betas=(0.8, 0.99)),
    ),
    "own optimizer": row(
        "optimizers of your own, with parameter groups", "dense", mse,
        {"loss": "mse", "optimizer": {"name": "$make_groups", "lr": 0.05, "momentum": 0.9}},
        optimizer=lambda module, parameters: module.make_groups(parameters, 0.05, 0.9),
    ),
    "sequential": row(
        "Sequential modules", "dense", mse, {"loss": "mse", "metrics": ["mae", "mse"]},
        measured=lambda b: {
            "mae": (b["outputs"].squeeze(-1) - b["y"]).abs().mean(),
            "mse": (b["outputs"].squeeze(-1) - b["y"]).square().mean(),
        },
    ),
    "classes": row("class numbers", "classes", entropy, OF_CLASSES, KINDS, measured=accuracy),
    "one-hot": row(
        "one-hot labels", "classes", lambda o, b: functional.cross_entropy(o, b["one_hot"]),
        {"loss": "categorical_crossentropy", "metrics": ["accuracy"]}, {"features": "X", "labels": "one_hot"},
        measured=accuracy,
    ),
    "arguments": row(
        "arguments of losses", "classes",
        lambda o, b: functional.cross_entropy(o, b["k"], label_smoothing=0.1, weight=o.new_tensor([1.0, 5.0, 0.5])),
        {"loss": {"name": "cross_entropy", "label_smoothing": 0.1, "weight": [1, 5, 0.5]}}, KINDS,
        weight=lambda batch: class_weight(batch).sum(),
    ),
    "class of torch.nn": row(
        "classes of torch.nn, with arguments", "classes",
        lambda o, b: functional.cross_entropy(o, b["k"], ignore_index=1),
        {"loss": {"name": "torch.nn:CrossEntropyLoss", "ignore_index": 1}}, KINDS,
        weight=lambda batch: (batch["k"] != 1).sum(),
    ),
    "logits": row(
        "binary labels, logits", "dense",
        lambda o, b: functional.binary_cross_entropy_with_logits(o.squeeze(-1), b["b"].float()),
        {"loss": "binary_cross_entropy_with_logits", "metrics": ["accuracy"]}, {"features": "X", "labels": "b"},
        measured=lambda b: {"accuracy": ((b["outputs"].squeeze(-1) > 0) == (b["b"] > 0)).float().mean()},
    ),
    "counts": row(
        "counts and their rates", "rates",
        lambda o, b: functional.poisson_nll_loss(o.squeeze(-1), b["k"].float(), log_input=False), {"loss": "poisson"},
        KINDS,
    ),
    "imported": row("models of other files", "imported", mse, {"loss": "mse"}),
    "batch normalisation": row(
        "batch normalisation, incomplete batches left out", "classes", entropy, OF_CLASSES, KINDS | {"drop_last": True},
        parameters={"norm": True}, is_exact=False,
    ),
    "dropout": row("dropout", "classes", entropy, OF_CLASSES, KINDS, parameters={"dropout": 0.3}, is_exact=False),
    "frozen": row("frozen parameters", "frozen", mse, {"loss": "mse"}),
    "images": row("images of bytes", "images", entropy, OF_CLASSES, x="image",
                  data={"features": "image", "labels": "k"}, measured=accuracy),
    "segmentation": row(
        "labels per pixel", "segmentation", lambda o, b: functional.cross_entropy(o, b["per_pixel"]), OF_CLASSES,
        {"features": "pixels", "labels": "per_pixel"}, x="pixels",
        measured=lambda b: {"accuracy": (b["outputs"].argmax(1) == b["per_pixel"]).float().mean()},
    ),
    "words": row("embeddings of integers, recurrent cells", "words", mse, {"loss": "mse"}, x="ids"),
    "sparse gradients": row(
        "embeddings with sparse gradients", "words", mse, {"loss": "mse"}, x="ids", parameters={"sparse": True}
    ),
    "used in some steps": row(
        "parameters that a batch does not use: unchanged, also with weight decay and momentum", "experts", mse,
        {"loss": "mse", "optimizer": {"name": "adamw", "learning_rate": 0.05, "weight_decay": 0.5, "epsilon": 1e-12}},
        optimizer=lambda module, parameters: module.torch.optim.AdamW(
            parameters, lr=0.05, weight_decay=0.5, eps=1e-12,
        ),
    ),
    "used in some steps, optimizer of the framework": row(
        "the same with optimizers of PyTorch", "experts", mse,
        {"loss": "mse", "optimizer": {"name": "nadam", "learning_rate": 0.05, "weight_decay": 0.5}},
        optimizer=lambda module, parameters: module.torch.optim.NAdam(
            parameters, lr=0.05, weight_decay=0.5, decoupled_weight_decay=True,
        ),
    ),
    "buffers": row("buffers of complex and of infinite numbers", "rotating", mse, {"loss": "mse"}, x="ids"),
    "sparse buffer": row("buffers that are sparse matrices", "graph", mse, {"loss": "mse"}),
    "attributes": row("attributes that `forward` changes, such as counters", "annealed", mse, {"loss": "mse"}),
    "hooks": row(
        "hooks that change gradients, for example clip them", "clipped", mse, {"loss": "mse"}, is_exact=False,
    ),
    "scripted": row("modules compiled by `torch.jit.script`", "scripted", mse, {"loss": "mse"}),
    "squeezed": row(
        "modules that cannot be called with one sample, incomplete batches left out", "squeezing", entropy, OF_CLASSES,
        KINDS | {"drop_last": True}, measured=accuracy,
    ),
    "keywords": row(
        "features by the names of arguments of forward", "by_keyword", mse, {"loss": "mse"},
        {"features": {"weight": "inputs/weight", "age": "inputs/age"}, "labels": "y"},
        x={"age": "inputs/age", "weight": "inputs/weight"},
    ),
    "group": row(
        "HDF5 groups, matched with arguments of forward by name", "by_keyword", mse, {"loss": "mse"},
        {"features": "inputs", "labels": "y"}, x={"age": "inputs/age", "weight": "inputs/weight"},
    ),
    "mapping": row(
        "a mapping of features for one argument", "by_mapping", mse, {"loss": "mse"},
        {"features": {"weight": "inputs/weight", "age": "inputs/age"}, "labels": "y"},
        x={"age": "inputs/age", "weight": "inputs/weight"},
    ),
    "several inputs and outputs": row(
        "several inputs and outputs, in an order", "two_by_two",
        lambda o, b: 0.3 * functional.mse_loss(o[0].squeeze(-1), b["y"]) + 2 * functional.cross_entropy(o[1], b["k"]),
        {
            "loss": {"energy": "mse", "kind": "cross_entropy"}, "loss_weights": {"energy": 0.3, "kind": 2.0},
            "metrics": {"kind": ["accuracy"]},
        },
        {"features": ["X", "A"], "labels": ["y", "k"]}, x=["X", "A"],
        measured=lambda b: {"kind_accuracy": (b["outputs"][1].argmax(1) == b["k"]).float().mean()},
    ),
    "output without a loss": row(
        "outputs without a loss", "two_by_two", lambda o, b: functional.cross_entropy(o[1], b["k"]),
        {"loss": [None, "cross_entropy"]}, {"features": ["X", "A"], "labels": "k"}, x=["X", "A"],
    ),
    "outputs by name": row(
        "outputs by name, labels by name", "named",
        lambda o, b: functional.mse_loss(o["z"].squeeze(-1), b["z"]) + functional.mse_loss(o["a"].squeeze(-1), b["y"]),
        {"loss": {"z": "mse", "a": "mse"}, "metrics": {"a": ["mae"]}},
        {"features": "X", "labels": {"a": "y", "z": "z"}},
        measured=lambda b: {"a_mae": (b["outputs"]["a"].squeeze(-1) - b["y"]).abs().mean()},
    ),
    "weights by output": row(
        "sample weights by output", "named",
        lambda o, b: (b["w"] * functional.mse_loss(o["z"].squeeze(-1), b["z"], reduction="none")).mean()
        + functional.mse_loss(o["a"].squeeze(-1), b["y"]),
        {"loss": {"z": "mse", "a": "mse"}},
        {"features": "X", "labels": {"a": "y", "z": "z"}, "weights": {"z": "w"}},
    ),
    "data class": row(
        "outputs in a data class, a named tuple or nested; None among them", "structured",
        lambda o, b: functional.cross_entropy(o.logits, b["k"]),
        {"loss": {"logits": "cross_entropy"}, "metrics": {"logits": ["accuracy"]}},
        {"features": "X", "labels": {"logits": "k"}},
        measured=lambda b: {"logits_accuracy": (b["outputs"].logits.argmax(1) == b["k"]).float().mean()},
    ),
    "tied weights": row(
        "tied weights", "tied", lambda o, b: functional.cross_entropy(o, b["ids"]), {"loss": "cross_entropy"},
        {"features": "ids", "labels": "ids"}, x="ids",
    ),
    "one loss over several outputs": row(
        "one loss over several outputs", "autoencoder", lambda m, o, b: m.evidence(o, b["X"]), {"loss": "$evidence"},
        {"features": "X", "labels": "X"},
    ),
    "one loss of mappings": row(
        "one loss of a mapping of outputs and one of labels", "named",
        lambda m, o, b: m.of_mapping(o, {"z": b["z"], "a": b["y"]}), {"loss": "$of_mapping"},
        {"features": "X", "labels": {"z": "z", "a": "y"}},
    ),
    "own loss": row(
        "losses and metrics of your own: functions of (outputs, targets)", "classes",
        lambda m, o, b: m.weighted_entropy(o, b["k"]), {"loss": "$weighted_entropy", "metrics": ["accuracy"]}, KINDS,
        measured=accuracy, is_exact=False,
    ),
    "own class": row(
        "modules as losses, with arguments", "classes", lambda m, o, b: m.Focal(2.0)(o, b["k"]),
        {"loss": {"name": "$Focal", "gamma": 2.0}}, KINDS,
    ),
    "loss of each sample": row(
        "losses of one value per sample", "dense", lambda m, o, b: m.of_each(o, b["y"]).mean(),
        {"loss": "$of_each", "metrics": ["$bias"]},
        measured=lambda b: {"bias": (b["outputs"].squeeze(-1) - b["y"]).mean()},
    ),
    "sample weights": row(
        "sample weights", "classes",
        lambda o, b: (b["w"] * functional.cross_entropy(o, b["k"], reduction="none")).mean(), OF_CLASSES,
        KINDS | {"weights": "w"}, measured=accuracy,
    ),
    "weights of a loss of your own": row(
        "sample weights with a loss of one value per sample", "dense",
        lambda m, o, b: (b["w"] * m.of_each(o, b["y"])).mean(),
        {"loss": "$of_each"}, {"features": "X", "labels": "y", "weights": "w_column"},
    ),
    "torchmetrics": row(
        "metrics of torchmetrics", "classes", entropy,
        {
            "loss": "cross_entropy",
            "metrics": ["AUROC", {"name": "F1Score", "average": "macro"},
                        {"name": "torchmetrics.classification:MulticlassRecall", "num_classes": 3}],
        },
        KINDS,
        measured=lambda b: {
            "AUROC": _torchmetrics("auroc", b, task="multiclass", num_classes=3, thresholds=200),
            "F1Score": _torchmetrics("f1_score", b, task="multiclass", num_classes=3, average="macro"),
            "MulticlassRecall": _torchmetrics("recall", b, task="multiclass", num_classes=3, average="macro"),
        },
    ),
    "derivatives": row(
        "derivatives with respect to the inputs (physics-informed networks), inside `torch.enable_grad`", "oscillator",
        equation, {"loss": "$of_equation"}, x="z_column",
    ),
    "lightning": row(
        "`training_step` and `validation_step` of a LightningModule, and what they log", "of_lightning", penalised, {},
        measured=lambda b: {"mae": (b["outputs"].squeeze(-1) - b["y"]).abs().mean()},
    ),
    # refused
    **{
        f"lightning, {kind}": row(
            f"a LightningModule {says}", "of_lightning", penalised, {}, parameters={"kind": kind}, refused=refused
        )
        for kind, says, refused in (
            ("manual", "with manual optimization", "Module has automatic_optimization = False"),
            ("hook", "with methods that only a Trainer calls", "Module overrides on_train_epoch_end"),
            ("epoch", "that uses the number of the epoch", "uses current_epoch of the Trainer"),
            ("step", "that uses the number of the step", "uses global_step of the Trainer"),
            ("index", "that uses the number of the batch", "training_step of Module uses the number of the batch"),
            ("optimizers", "that calls its optimizers", "uses strategy of the Trainer"),
            ("no loss", "whose `training_step` returns no loss", "returns no loss from training_step"),
            ("no val_loss", "whose `validation_step` logs no `val_loss`", "returns no loss from validation_step"),
            ("no validation", "without a `validation_step`, with validation data", "Module has no validation_step"),
            ("array", "that logs arrays", "self.log of train_tensor receives an object of class Tensor"),
        )
    },
    "lightning and a loss": row(
        "a LightningModule with a `training_step`, and a loss in the file", "of_lightning", penalised, {"loss": "mse"},
        refused="computes the loss, and the file has `loss`",
    ),
    "lightning without an optimizer": row(
        "a LightningModule without an optimizer in the file", "of_lightning", penalised, {"optimizer": None},
        refused="write `optimizer: {name: torch.optim:SGD, lr: 0.1, momentum: 0.9}`",
    ),
    "training_step": row(
        "a `training_step` of other modules", "with_step", mse, {"loss": "mse"},
        refused="WithStep has a training_step, which MPI Learn calls only if the class is a LightningModule",
    ),
    "sum over the batch": row(
        "losses that are sums over the batch, on several ranks", "dense", mse, {"loss": "$summed"},
        refused="the loss is a sum over the batch", ranks=3,
    ),
    "sum in a loss": row(
        "losses with a term that is a sum over the batch, on several ranks", "dense", mse, {"loss": "$with_a_sum"},
        refused="the loss is a sum over the batch, or has a term that is", ranks=3,
    ),
    "changed parameters": row(
        "modules that change their parameters when they are called, such as `max_norm`, on several ranks", "bounded",
        mse, {"loss": "mse"}, x="ids", refused="embedding.weight changes when the module is called", ranks=3,
    ),
    "shared memory": row(
        "different parameters in the same memory, as after `a.weight.data = b.weight.data`", "shared_memory",
        lambda o, b: functional.mse_loss(o, b["X"]), {"loss": "mse"}, {"features": "X", "labels": "X"},
        refused="encode.weight share memory",
    ),
    "loss with parameters": row(
        "losses with parameters", "dense", mse, {"loss": "$Learned"},
        refused="the loss has parameters, which would not be trained",
    ),
    "loss with a state": row(
        "losses that change a state of their own", "classes", entropy, {"loss": "$Centring"}, KINDS,
        refused="the loss changes a state of its own",
    ),
    "synchronised batch normalisation": row(
        "batch normalisation over the processes of torch.distributed, on several ranks", "classes", entropy, OF_CLASSES,
        KINDS, parameters={"norm": True, "synchronized": True}, refused="synchronises its batch statistics", ranks=3,
    ),
    "batch of one sample": row(
        "batch normalisation of a batch of one sample", "classes", entropy, OF_CLASSES | {"batch_size": 17}, KINDS,
        parameters={"norm": True}, refused="the smallest batch has 1 sample",
    ),
    "shapes that broadcast": row(
        "losses of outputs (n, 1) and labels (n,)", "dense", mse, {"loss": "$crossed"}, refused="Using a target size",
    ),
    "weights of one number": row(
        "sample weights with a loss of one number", "classes", entropy, {"loss": "$Focal"}, KINDS | {"weights": "w"},
        refused="the loss must not return one number for the whole batch",
    ),
    "weights by output with one loss": row(
        "sample weights by output with one loss for all outputs", "named", mse, {"loss": "$of_mapping"},
        {"features": "X", "labels": {"z": "z", "a": "y"}, "weights": {"z": "w"}},
        refused="one loss for all outputs takes one weight per sample",
    ),
    "weights of no output": row(
        "sample weights by other names than those of the outputs", "named", mse, {"loss": {"z": "mse", "a": "mse"}},
        {"features": "X", "labels": {"a": "y", "z": "z"}, "weights": {"q": "w"}},
        refused="data.weights: the model has no output q",
    ),
    "metric that is not a sum": row(
        "metrics that are not sums over samples", "dense", mse, {"loss": "mse", "metrics": ["PearsonCorrCoef"]},
        refused="PearsonCorrCoef does not add up",
    ),
    "metric of several numbers": row(
        "metrics of several numbers, such as one per class", "classes", entropy,
        OF_CLASSES | {"metrics": [{"name": "F1Score", "average": "none"}]}, KINDS,
        refused="the metric F1Score gives 3 values, expected one number",
    ),
    "outputs by name, in an order": row(
        "labels in an order for outputs by name", "named", mse, {"loss": {"z": "mse", "a": "mse"}},
        {"features": "X", "labels": ["z", "y"]}, refused="write a mapping: {z: …, a: …}",
    ),
    "other names": row(
        "features of other names than the arguments of forward", "two_by_two", mse, {"loss": ["mse", "mse"]},
        {"features": {"x": "X", "y": "A"}, "labels": ["y", "z"]}, refused="forward takes a, b",
    ),
    "other outputs in training": row(
        "outputs of the training alone, without a loss of your own for all of them", "structured", entropy,
        {"loss": "cross_entropy"}, KINDS, parameters={"has_auxiliary": True},
        refused="returns 2 outputs in training, but one output in evaluation",
    ),
    "lazy layers": row(
        "lazy layers that have not been called", "lazy", entropy, {"loss": "cross_entropy"}, KINDS,
        refused="lazy layers",
    ),
    "name of Keras": row(
        "`kl_divergence`, for which PyTorch takes logarithms", "classes", entropy, {"loss": "kl_divergence"},
        {"features": "X", "labels": "one_hot"}, refused="PyTorch has no loss kl_divergence",
    ),
    "text": row("outputs that are no tensors", "speaking", mse, {"loss": "mse"}, refused="the model returns str"),
    "complex numbers": row(
        "complex parameters", "complex_weights", mse, {"loss": "mse"},
        refused="make real and imaginary part two parameters of float32",
    ),
    "derivatives without enable_grad": row(
        "derivatives in `forward` without `torch.enable_grad`", "oscillator", equation, {"loss": "$of_equation"},
        x="z_column", parameters={"is_enabled": False}, refused="inside `with torch.enable_grad():` in forward",
    ),
    "distribution": row(
        "modules that return a distribution", "density", mse, {"loss": "mse"},
        refused="return -distribution.log_prob(x) from forward",
    ),
    "bare flow": row(
        "a flow of nflows without a module around it", "density", mse, {"loss": "mse"},
        parameters={"is_of_nflows": True}, refused="return a module whose forward returns -flow.log_prob(x)",
    ),
    "misspelt": row(
        "exceptions of `forward` that no data cause", "misspelt", mse, {"loss": "mse"},
        refused="model: calling the model with samples of shape (5,) (float32) raised AttributeError",
    ),
    "real class numbers": row(
        "class numbers that are real numbers", "classes", entropy, {"loss": "cross_entropy"},
        {"features": "X", "labels": "k_real"}, refused="class numbers must be integers, the data have float32",
    ),
    "double precision": row(
        "parameters in float64", "in_double", mse, {"loss": "mse"}, refused="0.weight is of float64",
    ),
    "no values": row(
        "parameters without values", "elsewhere", mse, {"loss": "mse"}, refused="on the device meta, without values",
    ),
    "another framework": row(
        "models of another framework than `framework:`", "dense", mse, {"loss": "mse", "framework": "keras"},
        refused="expected a model of Keras, it returned one of PyTorch",
    ),
    "no loss": row("models without a loss", "dense", mse, {}, refused="a PyTorch model needs a loss"),
}  # fmt: skip


def _torchmetrics(name: str, batch: Any, **options: Any) -> Any:
    import torchmetrics

    return getattr(torchmetrics.functional, name)(batch["outputs"].softmax(1), batch["k"], **options)
