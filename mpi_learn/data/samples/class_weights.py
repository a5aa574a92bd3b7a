"""Weights of the training samples by their class, as `keras.Model.fit` applies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpi_learn.errors import DataError


@dataclass(frozen=True)
class ClassWeights:
    """Weights by class; other classes have weight 1.

    Attributes:
        factors: Class number -> weight.
    """

    factors: Mapping[int, float]

    def applied(
        self, labels: tuple[np.ndarray, ...], weights: tuple[np.ndarray, ...], is_training: bool
    ) -> tuple[np.ndarray, ...]:
        """The sample weights of a batch, multiplied by the class weights during training.

        Args:
            labels: One array of n labels, as for `make_class_weights`.
            weights: Arrays with n weights, or of shape (n, …), or none.

        Returns:
            Float arrays like `weights`, or one of shape (n,).
        """
        factors = np.ones(len(labels[0]), np.float32)
        if is_training:
            classes = _classes(labels[0])
            for number, factor in self.factors.items():
                factors[classes == number] = factor
        if not weights:
            return (factors,)
        return tuple(array * factors.reshape(-1, *(1,) * (array.ndim - 1)) for array in weights)


def make_class_weights(wanted: Mapping[int, float] | str, labels: tuple[np.ndarray, ...]) -> ClassWeights:
    """The class weights of a configuration; ``balanced``: samples / (classes × samples of the class).

    Raises:
        DataError: There is more than one label or class per sample, or none.
    """
    if len(labels) != 1:
        raise DataError(
            f"expected one label, found {len(labels)}", where="data.class_weight", cure="write data.weights instead"
        )
    classes = _classes(labels[0])
    if classes.ndim > 1:
        raise DataError(
            f"expected one class per sample, found labels of shape {labels[0].shape[1:]}",
            where="data.class_weight",
            cure="write data.weights instead, or class weights as an argument of the loss",
        )
    if not isinstance(wanted, str):
        return ClassWeights(wanted)
    numbers, counts = np.unique(classes, return_counts=True)
    factors = len(classes) / (len(numbers) * counts)
    return ClassWeights(dict(zip(numbers.tolist(), factors.tolist(), strict=True)))


def _classes(labels: np.ndarray) -> np.ndarray:
    """Class numbers, shape (n,) for one class per sample, from class numbers or from one-hot labels."""
    if labels.ndim > 1 and labels.shape[-1] > 1:
        return np.asarray(labels.argmax(-1))
    classes = np.round(labels).astype(np.int64)
    return np.asarray(classes.squeeze(-1) if classes.ndim > 1 else classes)
