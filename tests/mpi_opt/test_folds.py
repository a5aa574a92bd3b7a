from __future__ import annotations

import numpy as np
import pytest

from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.core.folds.fold_splits import split
from mpi_opt.errors import ConfigurationError


def test_every_sample_validates_in_exactly_one_fold():
    parts = [split(103, fold, 5, seed=3) for fold in range(5)]
    assert sorted(np.concatenate([validation for _, validation in parts])) == list(range(103))
    for training, validation in parts:
        assert sorted([*training, *validation]) == list(range(103))


def test_classes_are_dealt_in_equal_shares():
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    for fold in range(5):
        _, validation = split(100, fold, 5, seed=1, labels=labels)
        assert np.bincount(labels[validation]).tolist() == [12, 6, 2]


def test_one_hot_labels_count_as_classes():
    labels = np.eye(2)[np.repeat([0, 1], [80, 20])]
    _, validation = split(100, 0, 4, seed=1, labels=labels)
    assert labels[validation].sum(axis=0).tolist() == [20, 5]


def test_continuous_labels_are_no_classes():
    labels = np.random.default_rng(0).normal(size=50)
    training, validation = split(50, 0, 5, seed=1, labels=labels)
    assert (len(training), len(validation)) == (40, 10)


def test_a_class_rarer_than_folds_does_not_stop_the_search():
    labels = np.array([0] * 20 + [1])
    assert len(split(21, 2, 5, seed=0, labels=labels)[1]) in (4, 5)


def test_classes_that_are_all_rarer_than_folds_do_not_stop_the_search():
    assert len(split(20, 2, 5, seed=0, labels=np.arange(20))[1]) == 4


def test_one_fold_validates_on_a_fifth_of_the_samples():
    training, validation = split(100, 0, 1, seed=0)
    assert (len(training), len(validation)) == (80, 20)


def test_only_the_seed_determines_the_folds():
    assert np.array_equal(split(50, 1, 3, seed=9)[1], split(50, 1, 3, seed=9)[1])
    assert not np.array_equal(split(50, 1, 3, seed=9)[1], split(50, 1, 3, seed=10)[1])


def test_fewer_samples_than_folds_are_refused():
    with pytest.raises(ConfigurationError, match="3 samples cannot be split into 5 folds"):
        split(3, 0, 5, seed=0)


@pytest.mark.parametrize(("n_samples", "folds", "cure"), [(3, 5, "folds: 3"), (3, 1, "folds: 3"), (2, 1, "folds: 2")])
def test_too_few_samples_can_be_split_as_the_message_says(n_samples, folds, cure):
    with pytest.raises(ConfigurationError) as refused:
        split(n_samples, 0, folds, seed=0)
    assert refused.value.cure == cure
    n_training = [len(split(n_samples, fold, n_samples, seed=0)[0]) for fold in range(n_samples)]
    assert n_training == [n_samples - 1] * n_samples


@pytest.mark.parametrize("folds", [1, 5])
@pytest.mark.parametrize("n_samples", [0, 1])
def test_a_single_sample_needs_other_validation_samples_and_not_other_folds(n_samples, folds):
    with pytest.raises(ConfigurationError, match="cannot be split into") as refused:
        split(n_samples, 0, folds, seed=0)
    assert "folds" not in refused.value.cure
    assert "more samples" in refused.value.cure


@pytest.mark.parametrize(
    ("data", "folds", "named"),
    [
        ({"train": ["a.h5"], "validation_fraction": 0.2}, 3, "`data.validation_fraction: 0.2`"),
        ({"train": ["a.h5"], "validation": ["b.h5"]}, {"number": 2, "stop_early": True}, "`data.validation`"),
        ({"train": ["a.h5"]}, 3, ""),
        ({"train": ["a.h5"], "validation_fraction": 0.2}, 1, ""),
    ],
)
def test_samples_that_no_fold_uses_are_named(data, folds, named):
    content = {"folds": folds, "space": {"x": {"type": "real", "low": 0, "high": 1}}, "training": {"data": data}}
    note = StudyConfiguration.model_validate(content).note_on_folds()
    assert (named in note and "no fold uses" in note) if named else note == ""
