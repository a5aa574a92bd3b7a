"""A part of a dataset, with which times are measured."""

from __future__ import annotations

import numpy as np

from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples


def dataset(n: int, training_indices=None) -> Dataset:
    samples = Samples((np.arange(n, dtype=np.float32),), (np.arange(n),))
    return Dataset(samples, samples, training_indices, np.arange(n))


def labels(part: Dataset) -> list[int]:
    return part.take_training(slice(0, part.n_training)).y[0].tolist()


def test_a_part_is_spread_evenly_over_the_samples_so_that_it_has_all_classes():
    part = dataset(100).part(4, 2)
    assert labels(part) == [0, 25, 50, 75]
    assert (part.n_training, part.n_validation) == (4, 2)


def test_a_part_of_a_fold_has_samples_of_the_fold_only():
    part = dataset(100, np.arange(1, 100, 2)).part(5, 100)
    assert labels(part) == [1, 21, 41, 61, 81]
    assert part.n_validation == 100


def test_a_part_that_is_larger_than_the_dataset_is_the_dataset():
    assert labels(dataset(3).part(10, 10)) == [0, 1, 2]
