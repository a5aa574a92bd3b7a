"""Inputs and labels by name, sample and class weights, dtypes, compound arrays, incomplete batches."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.loading import load
from mpi_learn.data.samples.batches import Batches, BatchOptions, Dataset
from mpi_learn.data.samples.make_batches import make_batches, validation_batches
from mpi_learn.data.samples.stored_samples import ClassWeights, Samples, make_class_weights
from mpi_learn.errors import DataError
from tests.optional_packages import needs

N = 10
AGE, INCOME = np.arange(N, dtype=np.int16), np.linspace(0, 1, N)
LABELS = np.arange(N) % 3


def loaded(folder: Path, arrays: dict[str, np.ndarray], **options) -> Dataset:
    with h5py.File(folder / "a.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return load(DataConfiguration(train=str(folder / "a.h5"), **options), MPI.COMM_SELF, seed=0)


def test_a_mapping_gives_inputs_and_labels_their_names(tmp_path):
    arrays = {"a": AGE, "b": INCOME, "z": LABELS, "y": INCOME}
    dataset = loaded(tmp_path, arrays, features={"income": "b", "age": "a"}, labels={"second": "y", "first": "z"})
    samples = dataset.take_training(slice(None))
    assert (samples.format.x_names, samples.format.y_names) == (("income", "age"), ("second", "first"))
    np.testing.assert_array_equal(samples.x[1], AGE)
    np.testing.assert_array_equal(samples.y[1], LABELS)


def test_a_group_is_taken_by_name_and_leaves_the_labels_out(tmp_path):
    arrays = {"in/b": INCOME, "in/a": AGE, "in/label": LABELS}
    dataset = loaded(tmp_path, arrays, features="in", labels="in/label")
    assert dataset.training.format.x_names == ("a", "b")
    assert dataset.training.format.y_names == ()


def test_arrays_of_a_glob_with_the_same_name_are_refused_with_a_cure(tmp_path):
    arrays = {"jet/pt": AGE, "jet/eta": AGE, "muon/pt": INCOME, "y": LABELS}
    with pytest.raises(DataError, match="jet/pt and muon/pt would have the same name pt in this HDF5 file") as caught:
        loaded(tmp_path, arrays, features="*/*", labels="y")
    assert caught.value.cure == "name each array: {jet_pt: jet/pt, …}"


def test_a_list_of_datasets_has_an_order_and_no_names(tmp_path):
    dataset = loaded(tmp_path, {"b": INCOME, "a": AGE, "y": LABELS}, features=["b", "a"], labels="y")
    assert dataset.training.format.x_names == ()
    np.testing.assert_array_equal(dataset.training.x[1], AGE)


@needs("pyarrow")
def test_columns_of_a_mapping_are_stacked(tmp_path):
    (tmp_path / "a.csv").write_text("p,q,r,y\n1,2,3,0\n4,5,6,1\n")
    wanted = {"train": str(tmp_path / "a.csv"), "features": {"both": ["p", "q"], "one": "r"}, "labels": "y"}
    samples = load(DataConfiguration(**wanted), MPI.COMM_SELF, seed=0).training
    assert samples.format.x_names == ("both", "one")
    np.testing.assert_array_equal(samples.x[0], [[1, 2], [4, 5]])
    assert samples.x[1].shape == (2, 1)


def test_fields_of_a_compound_array_are_inputs_or_its_last_axis(tmp_path):
    jets = np.zeros(N, [("pt", "f4"), ("n", "i2"), ("flavour", "i4")])
    jets["pt"], jets["n"], jets["flavour"] = INCOME, AGE, LABELS
    tracks = np.zeros((N, 4), [("d0", "f4"), ("z0", "f4"), ("hits", "u1", (2,))])
    tracks["d0"], tracks["z0"] = np.arange(N * 4).reshape(N, 4), 7
    arrays = {"jets": jets, "tracks": tracks}
    dataset = loaded(tmp_path, arrays, features={"jets": ["jets/*"], "tracks": ["tracks/d0", "tracks/z0"]},
                     labels="jets/flavour")  # fmt: skip
    jets_taken, tracks_taken = dataset.take_training(slice(None)).x
    np.testing.assert_allclose(jets_taken, np.column_stack([INCOME, AGE]), rtol=1e-6)
    assert tracks_taken.shape == (N, 4, 2)
    np.testing.assert_array_equal(tracks_taken[..., 0], tracks["d0"])
    np.testing.assert_array_equal(dataset.training.y[0], LABELS)
    each = loaded(tmp_path, arrays, features="jets", labels="jets/flavour").training
    assert each.format.x_names == ("pt", "n")
    assert [one.dtype for one in each.x] == [np.float32, np.int16]
    hits = loaded(tmp_path, arrays, features="tracks/hits", labels="jets/flavour").training
    assert hits.x[0].shape == (N, 4, 2)


def test_large_integers_keep_their_digits(tmp_path):
    ids = np.array([16777216, 16777217], np.int64)
    dataset = loaded(tmp_path, {"id": ids, "y": np.zeros(2)}, features="id", labels="y")
    assert dataset.take_training(slice(None)).x[0].tolist() == ids.tolist()


@pytest.mark.parametrize("role", ["features", "labels", "weights"])
def test_complex_numbers_in_memory_are_refused_as_their_imaginary_parts_would_be_lost(role):
    numbers = {
        name: np.ones(N, np.complex64 if name == role else np.float32) for name in ("features", "labels", "weights")
    }
    x, y, weights = ((one,) for one in numbers.values())
    with pytest.raises(DataError, match=f"data.{role}: expected real numbers, found complex numbers"):
        Samples(x, y, weights).take(slice(None))


@pytest.mark.parametrize("memory", ["hold", "stream"])
def test_dtype_of_the_configuration_changes_the_batches_and_not_the_stored_samples(tmp_path, memory):
    arrays = {"image": np.full((N, 2), 250, np.uint8), "id": AGE, "y": LABELS}
    options = {"features": {"image": "image", "id": "id"}, "labels": "y", "memory": memory}
    dataset = loaded(tmp_path, arrays, dtype={"image": "float32", "y": "float32"}, **options)
    samples = dataset.take_training(slice(0, 2))
    assert [one.dtype for one in (*samples.x, *samples.y)] == [np.float32, np.int16, np.float32]
    assert samples.x[0][0, 0] == 250
    if memory == "hold":
        assert dataset.training.x[0].dtype == np.uint8


@pytest.mark.parametrize("memory", ["hold", "stream"])
@pytest.mark.parametrize(
    ("stored", "dtype", "message"),
    [
        (np.array([0, 1.7, 0.2], np.float32), "int64", "sample 1 is 1.7.*, which int64 cannot represent"),
        (np.array([0, 0.2, 1], np.float32), "bool", "sample 1 is 0.2.*, which bool cannot represent"),
        (np.array([0, 1, 3], np.uint8), "bool", "sample 2 is 3, which bool cannot represent"),
        (np.array([0, 1, -1], np.int8), "uint32", "sample 2 is -1, which uint32 cannot represent"),
        (np.array([0, 1e5, 2], np.float32), "float16", "sample 1 is 100000.0, which is not a finite float16 value"),
    ],
)
def test_values_that_a_configured_dtype_cannot_represent_are_refused(tmp_path, memory, stored, dtype, message):
    options = {"features": "X", "labels": "y", "memory": memory, "dtype": {"y": dtype}}
    with pytest.raises(DataError, match=message):
        loaded(tmp_path, {"X": np.zeros(3), "y": stored}, **options).take_training(slice(None))


@pytest.mark.parametrize("memory", ["hold", "stream"])
def test_values_of_another_dtype_become_integers_of_the_configured_dtype(tmp_path, memory):
    arrays = {"X": np.array([0, 3, 2**40], np.float32), "y": np.array([0, 3, 127], np.int8)}
    options = {"features": "X", "labels": "y", "memory": memory, "dtype": {"X": "int64", "y": "uint32"}}
    samples = loaded(tmp_path, arrays, **options).take_training(slice(None))
    assert [one.dtype for one in (*samples.x, *samples.y)] == [np.int64, np.uint32]
    assert [one.tolist() for one in (*samples.x, *samples.y)] == [[0, 3, 2**40], [0, 3, 127]]


@pytest.mark.parametrize("memory", ["hold", "stream"])
def test_zeros_and_ones_become_booleans_of_the_configured_dtype(tmp_path, memory):
    arrays = {"X": np.array([0, 1, 1], np.float32), "y": np.array([1, 0, 1], np.int8)}
    options = {"features": "X", "labels": "y", "memory": memory, "dtype": {"X": "bool", "y": "bool"}}
    samples = loaded(tmp_path, arrays, **options).take_training(slice(None))
    assert [one.dtype for one in (*samples.x, *samples.y)] == [bool, bool]
    assert [one.tolist() for one in (*samples.x, *samples.y)] == [[False, True, True], [True, False, True]]


@pytest.mark.parametrize("memory", ["hold", "stream"])
def test_sample_weights_come_with_their_samples(tmp_path, memory):
    weights = np.arange(N) * 0.5
    options = {"features": "X", "labels": "y", "weights": "w", "memory": memory}
    dataset = loaded(tmp_path, {"X": AGE, "y": LABELS, "w": weights}, **options)
    batches = make_batches(dataset, BatchOptions(4, seed=1))
    for batch in batches.epoch(0):
        np.testing.assert_array_equal(batch.weights[0], batch.x[0] * 0.5)
        assert batch.weights[0].dtype == np.float32
    batches.close()
    (fold,) = Batches(dataset.fold(np.arange(3), np.arange(3, 5)), BatchOptions(9, seed=1)).epoch(0)
    assert sorted(fold.weights[0].tolist()) == [0.0, 0.5, 1.0]


def test_class_weights_count_in_the_training_only():
    samples = Samples((AGE,), (LABELS,), (np.full(N, 2.0, np.float32),))
    dataset = Dataset(samples, samples, class_weights=ClassWeights({0: 5.0, 2: 0.5}))
    (batch,) = Batches(dataset, BatchOptions(N, shuffle=False)).epoch(0)
    np.testing.assert_allclose(batch.weights[0], 2 * np.array([5.0, 1.0, 0.5])[LABELS])
    (batch,) = validation_batches(dataset, batch_size=N)
    np.testing.assert_allclose(batch.weights[0], 2)


@pytest.mark.parametrize("shape", [(N,), (N, 1), (N, 3), (N, 3, 2)])
def test_class_weights_multiply_all_weights_of_a_sample(shape):
    weights = np.random.default_rng(0).random(shape).astype(np.float32)
    samples = Samples((AGE,), (LABELS,), (weights,))
    dataset = Dataset(samples, samples, class_weights=ClassWeights({0: 5.0, 2: 0.5}))
    (batch,) = Batches(dataset, BatchOptions(N, shuffle=False)).epoch(0)
    expected = [of_sample * [5.0, 1.0, 0.5][label] for of_sample, label in zip(weights, LABELS, strict=True)]
    np.testing.assert_allclose(batch.weights[0], expected)
    (batch,) = validation_batches(dataset, batch_size=N)
    np.testing.assert_array_equal(batch.weights[0], weights)


def test_balanced_class_weights_are_those_of_scikit_learn():
    from sklearn.utils.class_weight import compute_class_weight

    labels = np.array([0, 0, 0, 1, 4, 4])
    expected = compute_class_weight("balanced", classes=np.array([0, 1, 4]), y=labels)
    for one in (labels, np.eye(5)[labels]):
        found = make_class_weights("balanced", (one,))
        np.testing.assert_allclose([found.factors[number] for number in (0, 1, 4)], expected)
    with pytest.raises(DataError, match="expected one label, found 2"):
        make_class_weights("balanced", (labels, labels))


@pytest.mark.parametrize("memory", ["hold", "stream"])
@pytest.mark.parametrize("n_workers", [1, 3])
def test_incomplete_batches_can_be_dropped(tmp_path, memory, n_workers):
    dataset = loaded(tmp_path, {"X": np.arange(23), "y": np.zeros(23)}, features="X", labels="y", memory=memory)
    seen: list[int] = []
    for worker in range(n_workers):
        batches = make_batches(dataset, BatchOptions(3, n_workers, worker, drop_last=True))
        found = [batch for epoch in range(2) for batch in batches.epoch(epoch)]
        batches.close()
        assert [len(batch) for batch in found] == [3] * (2 * batches.n_steps)
        assert batches.least_samples == 3
        seen += [int(one) for batch in found[: batches.n_steps] for one in batch.x[0]]
    assert len(set(seen)) == len(seen) == batches.n_samples == 23 // (3 * n_workers) * 3 * n_workers


@pytest.mark.parametrize("memory", ["hold", "stream"])
@pytest.mark.parametrize(("n", "n_workers"), [(22, 1), (23, 1), (22, 3), (24, 3), (19, 2)])
def test_smallest_batch_size_is_computed_before_the_first_batch(tmp_path, memory, n, n_workers):
    dataset = loaded(tmp_path, {"X": np.arange(n), "y": np.zeros(n)}, features="X", labels="y", memory=memory)
    sizes = []
    for worker in range(n_workers):
        batches = make_batches(dataset, BatchOptions(3, n_workers, worker))
        sizes += [len(batch) for batch in batches.epoch(0) if len(batch)]
        batches.close()
    assert batches.least_samples == min(sizes)
