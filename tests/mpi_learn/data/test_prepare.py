"""Known data sets, written in our layout."""

from __future__ import annotations

import gzip
from pathlib import Path

import h5py
import numpy as np
import pytest
from sklearn.datasets import load_digits

from mpi_learn.cli import datasets as preparation
from mpi_learn.cli.datasets import prepare
from mpi_learn.data import DataConfiguration, inspect
from mpi_learn.errors import DataError

MNIST = Path(__file__).parents[4] / "shared" / "data" / "mnist"


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    content = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def idx_folder(tmp_path) -> Path:
    folder = tmp_path / "idx"
    folder.mkdir()
    for part, n in (("train", 6), ("t10k", 2)):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", np.arange(n * 12).reshape(n, 3, 4))
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(n))
    return folder


def test_digits_are_those_of_scikit_learn(tmp_path):
    said = prepare("digits", tmp_path / "new" / "digits.h5")
    with h5py.File(tmp_path / "new" / "digits.h5") as file:
        np.testing.assert_array_equal(file["X"][:] * 16, load_digits().data)
        np.testing.assert_array_equal(file["y"][:], load_digits().target)
    assert "digits.h5" in said
    assert "features: X, labels: y" in said


def test_mnist_is_made_of_idx_files_gzipped_or_not(idx_folder, tmp_path):
    prepare("mnist", tmp_path / "m.h5", idx_folder)
    configuration = DataConfiguration(
        train=str(tmp_path / "m.h5"), validation=str(tmp_path / "m_test.h5"), features="X", labels="y"
    )
    summary = inspect(configuration)
    assert (summary.n_training, summary.n_validation) == (6, 2)
    assert summary.feature_shapes == ((3, 4, 1),)
    with h5py.File(tmp_path / "m.h5") as file:
        assert file["X"][1, :, :, 0].tolist() == np.arange(12, 24).reshape(3, 4).tolist()


def test_nothing_is_left_beside_the_files(idx_folder, tmp_path):
    prepare("mnist", tmp_path / "out" / "m.h5", idx_folder)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["m.h5", "m_test.h5"]


@pytest.mark.skipif(not MNIST.is_dir(), reason="the shared data are not here")
def test_the_real_mnist_has_its_well_known_first_digits(tmp_path):
    prepare("mnist", tmp_path / "mnist.h5", MNIST)
    with h5py.File(tmp_path / "mnist.h5") as file:
        assert file["X"].shape == (60000, 28, 28, 1)
        assert file["y"][:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]


@pytest.mark.parametrize(
    ("name", "to", "spoil", "said"),
    [
        ("mnits", "m.h5", lambda folder: None, "did you mean mnist"),
        ("mnist", "m.txt", lambda folder: None, "does not look like an HDF5 file"),
        ("digits", "m.h5", lambda folder: None, "leave out --from"),
        ("mnist", "m.h5", lambda folder: (folder / "t10k-labels-idx1-ubyte").unlink(), "there is no t10k-labels"),
        ("mnist", "m.h5", lambda folder: (folder / "train-labels-idx1-ubyte").write_bytes(b"x" * 9), "no complete idx"),
        ("mnist", "m.h5", lambda folder: write_idx(folder / "train-labels-idx1-ubyte", np.arange(5)), "6 images but 5"),
        ("mnist", "m.h5", lambda folder: (folder / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8bxx"), "damaged"),
    ],
)
def test_what_cannot_be_prepared_says_why(idx_folder, tmp_path, name, to, spoil, said):
    spoil(idx_folder)
    with pytest.raises(DataError) as caught:
        prepare(name, tmp_path / to, idx_folder)
    assert said in str(caught.value)
    assert not (tmp_path / to).exists()


def test_without_internet_the_message_names_the_way_without(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "MNIST_URLS", ("http://127.0.0.1:9/",))
    with pytest.raises(DataError, match="--from FOLDER"):
        prepare("mnist", tmp_path / "m.h5")
