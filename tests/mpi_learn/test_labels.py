"""Which labels fit an output and its loss, without a framework."""

from __future__ import annotations

import numpy as np
import pytest

from mpi_learn.errors import DataError, ModelError
from mpi_learn.models.labels import LabelRule

CLASSES = LabelRule("cross_entropy", (None, 4), class_axis=1)
PIXELS = LabelRule("cross_entropy", (None, 4, 8, 8), class_axis=1)
IGNORING = LabelRule("cross_entropy", (None, 4), class_axis=1, ignored=-100)
LIKELY = LabelRule("binary_crossentropy", (None, 1), is_elementwise=True, is_probability=True)


@pytest.mark.parametrize(
    ("rule", "labels", "said"),
    [
        (CLASSES, [0, 3], None),
        (CLASSES, [], None),
        (CLASSES, [0, 4], "label 4 is outside of the model's 4 classes 0…3\n  → give the model at least 5 outputs"),
        (CLASSES, [-1, 9], "label -1 is outside of the model's 4 classes 0…3\n  → number the classes from 0"),
        (IGNORING, [-100, 3, -100], None),
        (IGNORING, [-100, -100], None),
        (IGNORING, [-100, -1], "label -1 is outside"),
        (LIKELY, [0.0, 0.5, 1.0], None),
        (LIKELY, [-1.0, 1.0], "binary_crossentropy needs labels from 0 to 1, found -1.0…1.0\n  → write 0 and 1"),
        (LIKELY, [0, 2], "needs labels from 0 to 1, found 0…2\n  → use sparse_categorical_crossentropy"),
    ],
)
def test_class_numbers_and_probabilities_have_a_range(rule, labels, said):
    if said is None:
        rule.check_range(np.array(labels))
        return
    with pytest.raises(DataError) as error:
        rule.check_range(np.array(labels))
    assert said in str(error.value)
    assert error.value.where == "data.labels"


@pytest.mark.parametrize(
    ("rule", "shape", "dtype", "fits"),
    [
        (CLASSES, (5,), "int64", True),
        (CLASSES, (5, 1), "int64", True),
        (CLASSES, (5, 4), "int64", False),
        (CLASSES, (5,), "float32", False),
        (PIXELS, (5, 8, 8), "int64", True),
        (PIXELS, (5, 8, 8, 1), "int64", True),
        (PIXELS, (5, 8), "int64", False),
        (LIKELY, (5, 1), "float32", True),
        (LIKELY, (5,), "float32", True),
        (LIKELY, (5, 2), "float32", False),
        (LabelRule("mse", (None, 3), is_elementwise=True), (5,), "float32", False),
        (LabelRule("own", (None, 3)), (5, 9), "float32", True),
    ],
)
def test_labels_have_the_shape_that_the_loss_needs(rule, shape, dtype, fits):
    labels = np.zeros(shape, dtype)
    if fits:
        rule.check_shape(labels)
        return
    with pytest.raises(ModelError) as error:
        rule.check_shape(labels)
    assert error.value.where == "data.labels"
    if labels.dtype.kind == "f" and rule is CLASSES:
        assert "must be integers, the data have float32" in str(error.value)


def test_one_hot_labels_are_named_as_such_and_not_as_class_numbers_of_another_type():
    with pytest.raises(
        ModelError, match=r"(?s)needs labels of shape .* use categorical_crossentropy for one-hot labels"
    ):
        CLASSES.check_shape(np.zeros((5, 4), np.float32))
    with pytest.raises(ModelError, match="use sparse_categorical_crossentropy for class numbers"):
        LabelRule("categorical_crossentropy", (None, 4), is_elementwise=True).check_shape(np.zeros(5, np.float32))
