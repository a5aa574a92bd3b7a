"""The conformance table of Keras models with ``KERAS_BACKEND=torch``: the rows of Keras, some of which are refused."""

from __future__ import annotations

from dataclasses import replace

from tests.mpi_learn.conformance.keras_rows import ROWS as KERAS
from tests.mpi_learn.conformance.rows import Row

OPTIMIZER = " of Keras is not available"
MASK = "a mask of the output (Masking, or mask_zero=True) is not available"
NO_LOSS = "a loss of the model itself is not available"
REDUCTION = "a loss with ignore_class or another reduction than the mean over the batch is not available"
BY_OUTPUT = "sample weights by output is not available"
PRECISION = "a precision other than float32 is not available"
REFUSED = {
    "optimizer of the framework": f"the optimizer nadam{OPTIMIZER}",
    "moving averages of the weights": f"the optimizer keras.optimizers:SGD{OPTIMIZER}",
    "own optimizer": f"make_optimizer{OPTIMIZER}",
    "segmentation": "grad_input must be contiguous",  # as `fit` says
    "masks": MASK,
    "masks of several outputs": MASK,
    "masks that differ between outputs": MASK,
    "weights by output": BY_OUTPUT,
    "weights of one output": BY_OUTPUT,
    "overridden compute_loss": "the method compute_loss of Growing is not available",
    "overridden train_step": "the method train_step of Autoencoder is not available",
    "train_step that calls Keras'": "the method train_step of Distilled is not available",
    "train_step that updates metrics": "the method train_step of Adversarial is not available",
    "add_loss": NO_LOSS,
    "weighted mean": REDUCTION,
    "compiled": NO_LOSS,
    "derivatives": "not tf.Tensor",
    "two optimizers": "the method train_step of TwoOptimizers is not available",
    "learning rate in the loss": "the method compute_loss of RateInLoss is not available",
    "moving mean of the weights": "the method train_step of Teacher is not available",
    "sum over the batch": REDUCTION,
    "negative weights": REDUCTION,
    "synchronised batch normalisation": "is only supported with the TensorFlow backend",
    "loss of each sample": REDUCTION,
    "compiled with another optimizer": NO_LOSS,
    "state changed in inference": "a weight that is not trained changes when the model is called with training=False",
    "float16": PRECISION,
    "float16 everywhere": PRECISION,
    "bfloat16": PRECISION,
    "weights of no output": BY_OUTPUT,
    "no loss": NO_LOSS,
}
"""Name of a row -> a part of the message, where it differs from that on TensorFlow."""
ROWS: dict[str, Row] = {
    name: replace(row, refused=REFUSED.get(name, row.refused))
    for name, row in KERAS.items()
    if name != "scope of a strategy"  # of TensorFlow
} | {
    "weights changed by a layer": replace(
        KERAS["weights changed by a layer"], refused="changes when the module is called; this needs one rank", ranks=3
    )
}
