"""Trainings of the models for tests, and the data of a GAN without labels, which several test files share."""

from __future__ import annotations

from pathlib import Path

from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.settings import ModelSettings
from tests.mpi_learn.models_for_tests import digits

HERE = Path(__file__).parent
KERAS, TORCH = f"{HERE}/models_for_tests.py", f"{HERE}/torch_models_for_tests.py"
CLASSES = {"model": f"{KERAS}:build_model", "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
NUMBERS = {"model": f"{KERAS}:build_regression", "loss": "mse", "optimizer": {"name": "adam", "learning_rate": 0.02}}
GAN_LOSS = {KERAS: "binary_crossentropy", TORCH: "binary_cross_entropy_with_logits"}


def model_settings(model, parameters=None, loss=None, metrics=None, **more) -> ModelSettings:
    """The settings of a model by the keys of the configuration, and by the other fields of `ModelSettings`."""
    keys = {key: more.pop(key) for key in {*more} & {*ModelConfiguration.model_fields}}
    keys |= {"model": model, "parameters": parameters or {}, "loss": loss, "metrics": metrics or []}
    return ModelSettings(ModelConfiguration(**keys), **more)


def unlabelled() -> Dataset:
    dataset = digits()
    bare = Samples(dataset.training.x, ())
    return Dataset(bare, bare, dataset.training_indices[:600], dataset.validation_indices)


def gan_configuration(file: str, **changes) -> dict:
    gan = {"latent": 8, **changes.pop("gan", {})}
    common = {"model": f"{file}:build_gan", "loss": GAN_LOSS[file], "batch_size": 100, "epochs": 2, "seed": 3}
    return common | {"gan": gan} | changes
