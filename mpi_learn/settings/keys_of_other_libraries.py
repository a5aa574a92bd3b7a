"""Keys of Keras, PyTorch and Horovod that a user may try, and their equivalents here.

Only keys whose equivalent is not the nearest known name: a suggestion by spelling would be ``loss_weights`` for
``class_weight``, ``trace`` for ``strategy``, and none for ``lr``, ``amp`` and ``labels``.
"""

from __future__ import annotations

_EVERY_STEP = "an epoch is always one pass over all samples"
_RANKS = "the number of ranks is that of mpirun -np N, or of mpi-learn train -n N"

TRAINING = {
    "accumulate_grad_batches": "write `algorithm: {name: allreduce, accumulate: N}`",
    "amp": "write `precision: mixed_bfloat16`",
    "backward_passes_per_step": "write `algorithm: {name: allreduce, accumulate: N}`",
    "class_weight": "write `data: {class_weight: {0: 1.0, 1: 5.0}}`, or `class_weight: balanced`",
    "compression": "write `algorithm: {name: allreduce, compression: float16}`",
    "criterion": "write `loss: NAME`",
    "devices": _RANKS,
    "drop_last": "write `data: {drop_last: true}`",
    "features": "write `data: {features: NAME}`",
    "fp16": "write `precision: mixed_bfloat16`, or for PyTorch `precision: mixed_float16`",
    "global_batch_size": "write `batch_size: {total: N}`",
    "gradient_clip_val": "write `optimizer: {clip_norm: X}`, or `clip_value`",
    "initial_epoch": "write `checkpoint: {path: FOLDER}`: the same command continues from the last checkpoint",
    "jit_compile": "write `xla: true`",
    "labels": "write `data: {labels: NAME}`",
    "learning_rate": "write `optimizer: {learning_rate: X}`",
    "lr": "write `optimizer: {learning_rate: X}`",
    "lr_scheduler": "write `optimizer: {schedule: …}`",
    "mixed_precision": "write `precision: mixed_bfloat16`",
    "num_workers": _RANKS,
    "op": "gradients are averaged; other rules are those of `algorithm:`",
    "run_eagerly": "steps are always compiled",
    "sample_weight": "write `data: {weights: NAME}`",
    "schedule": "write `optimizer: {schedule: …}`",
    "shuffle": "write `data: {shuffle: true}`",
    "steps_per_epoch": _EVERY_STEP,
    "steps_per_execution": "one step is one call; leave it out",
    "strategy": "write `algorithm: {name: …}`",
    "validation_batch_size": "write `validation: {batch_size: N}`",
    "validation_data": "write `data: {validation: [FILES]}`",
    "validation_freq": "write `validation: {every: N}`",
    "validation_split": "write `data: {validation_fraction: X}`",
    "validation_steps": "all validation samples are evaluated",
    "verbose": "leave it out; one line is printed per epoch, and a live view on a terminal",
    "weights": "write `data: {weights: NAME}`",
    "workers": _RANKS,
}
"""Keys at the top level of a ``training.yaml``."""

DATA = {
    "batch_size": "write it at the top level, outside of data",
    "sample_weight": "write `weights: NAME`",
    "steps_per_epoch": _EVERY_STEP,
    "targets": "write `labels: NAME`",
    "test": "write `validation: [FILES]`",
    "validation_data": "write `validation: [FILES]`",
    "validation_split": "write `validation_fraction: X`",
    "x": "write `features: NAME`",
    "y": "write `labels: NAME`",
}
"""Keys in the section ``data:``."""

OPTIMIZER = {
    "betas": "write `beta_1: X, beta_2: Y`",
    "lr": "write `learning_rate: X`",
    "warmup_steps": "write `schedule: {warmup_epochs: N}`",
}
"""Keys in the section ``optimizer:``."""
