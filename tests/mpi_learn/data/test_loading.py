"""From files to samples in memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.data_plan import count_samples
from mpi_learn.data.files.finding import find_files
from mpi_learn.data.files.reader import Reader
from mpi_learn.data.loading import load
from mpi_learn.errors import DataError
from tests.mpi_learn.data.formats import FORMATS
from tests.optional_packages import needs
from tests.world import in_world

SCRIPT = Path(__file__).with_name("load_everywhere.py")


def write(path: Path, **arrays) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name.replace("__", "/")] = array
    return path


@contextlib.contextmanager
def not_to_be_entered(folder: Path):
    """Root may enter every folder and becomes another user, who may not enter those of pytest."""
    user = os.geteuid()
    folder.chmod(0o600)
    try:
        if user == 0:
            os.seteuid(65534)
        yield
    finally:
        if user == 0:
            os.seteuid(0)
        folder.chmod(0o700)


def configured(train, **others) -> DataConfiguration:
    return DataConfiguration(**{"train": train, "features": "X", "labels": "y"} | others)


def loaded(train, **others):
    return load(configured(train, **others), MPI.COMM_SELF, seed=3)


def test_files_of_a_glob_are_concatenated_in_sorted_order(tmp_path):
    for i in (2, 0, 1):
        write(tmp_path / f"part_{i}.h5", X=np.full((i + 1, 3), i), y=np.full(i + 1, i))
    dataset = loaded(str(tmp_path / "part_*.h5"))
    assert dataset.training.y[0].tolist() == [0, 1, 1, 2, 2, 2]
    assert dataset.training.x[0][:, 0].tolist() == [0, 1, 1, 2, 2, 2]


def test_a_list_of_files_keeps_its_order_and_takes_each_once(tmp_path):
    a = write(tmp_path / "a.h5", X=np.zeros((1, 2)), y=[0])
    b = write(tmp_path / "b.h5", X=np.zeros((1, 2)), y=[1])
    assert loaded([str(b), str(a), str(tmp_path / "*.h5")]).training.y[0].tolist() == [1, 0]


@pytest.mark.parametrize("other", ["folder/../a.h5", "link.h5", "linked/a.h5"])
def test_a_file_with_two_paths_is_taken_once(tmp_path, other):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.h5").symlink_to(tmp_path / "a.h5")
    (tmp_path / "linked").symlink_to(tmp_path)
    write(tmp_path / "a.h5", X=np.zeros((4, 2)), y=np.arange(4))
    configuration = configured(["a.h5", other]).with_absolute_paths(tmp_path)
    assert find_files(configuration.train, "data.train") == [str(tmp_path / "a.h5")]
    assert count_samples(configuration) == (4, 0)


def test_a_linked_npy_file_belongs_to_the_folder_of_the_link(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        FORMATS["npy"].write(tmp_path / name / "X.npy", {"X": np.zeros((4, 2)), "y": np.arange(4)})
    (tmp_path / "other" / "X.npy").unlink()
    (tmp_path / "other" / "X.npy").symlink_to(tmp_path / "one" / "X.npy")
    assert count_samples(configured([str(tmp_path / "one" / "X.npy"), str(tmp_path / "other" / "X.npy")])) == (8, 0)


def test_a_glob_is_found_in_a_folder_with_brackets_in_its_name(tmp_path):
    folder = tmp_path / "run[1]"
    folder.mkdir()
    write(folder / "a.h5", X=np.zeros((3, 2)), y=np.arange(3))
    write(folder / "b[2].h5", X=np.zeros((4, 2)), y=np.arange(4))
    configuration = configured("*.h5", validation=["b[2].h5", "a*.h5"], cache="c*").with_absolute_paths(folder)
    assert count_samples(configuration.model_copy(update={"cache": None})) == (7, 7)
    assert configuration.cache == str(folder / "c*")
    assert configuration.with_absolute_paths(tmp_path) == configuration


@pytest.mark.parametrize("folder", ["", "../linked/"])
def test_validation_arrays_beside_the_training_arrays_in_npy_files_are_refused(tmp_path, folder):
    (tmp_path / "linked").symlink_to(tmp_path / "arrays")
    (tmp_path / "arrays").mkdir()
    arrays = {"x_train": np.zeros((10, 2)), "y_train": np.arange(10), "x_val": np.ones((4, 2)), "y_val": np.arange(4)}
    FORMATS["npy"].write(tmp_path / "arrays" / "x_train.npy", arrays)
    places = {"train": "x_train.npy", "validation": f"{folder}x_val.npy", "features": "x_train", "labels": "y_train"}
    configuration = DataConfiguration(**places).with_absolute_paths(tmp_path / "arrays")
    with pytest.raises(DataError, match="NPY files") as caught:
        count_samples(configuration)
    assert caught.value.where == f"data.validation: {tmp_path}/arrays/{folder}x_val.npy"
    assert "folder of their own, with the same names" in caught.value.cure


def test_a_list_of_names_is_several_inputs_and_a_group_is_all_of_its_datasets(tmp_path):
    path = write(tmp_path / "a.h5", X=np.zeros((4, 2)), g__b=np.ones((4, 3)), g__a=np.zeros((4, 5)), y=np.arange(4))
    assert [x.shape for x in loaded(str(path), features=["X", "g/b"]).training.x] == [(4, 2), (4, 3)]
    assert [x.shape for x in loaded(str(path), features="g").training.x] == [(4, 5), (4, 3)]


def test_a_list_in_the_list_is_one_input_of_columns(tmp_path):
    path = write(tmp_path / "a.h5", p=np.arange(3.0), q=np.arange(3.0) + 10, X=np.zeros((3, 2)), y=np.arange(3))
    (first, second) = loaded(str(path), features=[["p", "q", "X"], "X"]).training.x
    assert first.tolist() == [[0, 10, 0, 0], [1, 11, 0, 0], [2, 12, 0, 0]]
    assert second.shape == (3, 2)


def test_integers_stay_integers_and_real_numbers_become_float32(tmp_path):
    path = write(
        tmp_path / "a.h5",
        u=np.ones((2, 1), np.uint8),
        h=np.ones((2, 1), np.float16),
        d=np.ones((2, 1), np.float64),
        i=np.ones((2, 1), np.int64),
        b=np.ones((2, 1), bool),
        big=np.ones((2, 1), ">i2"),
        y=np.ones(2, np.float64),
    )
    dataset = loaded(str(path), features=["u", "h", "d", "i", "b", "big"])
    held = [array.dtype for array in dataset.training.x]
    assert held == [np.uint8, np.float16, np.float32, np.int64, bool, np.int16]
    assert dataset.training.y[0].dtype == np.float32
    taken = [array.dtype for array in dataset.take_training(slice(0, 1)).x]
    assert taken == [np.uint8, np.float32, np.float32, np.int64, bool, np.int16]


def test_integers_of_one_file_are_real_numbers_if_those_of_another_are(tmp_path):
    write(tmp_path / "a.h5", X=np.zeros((1, 1), np.int32), y=[0])
    write(tmp_path / "b.h5", X=np.full((1, 1), 0.5, np.float32), y=[1])
    assert loaded(str(tmp_path / "*.h5")).training.x[0].ravel().tolist() == [0.0, 0.5]


def test_labels_are_integers_if_those_of_all_files_are(tmp_path):
    """The promoted dtype of int64 and uint64 is float64 in NumPy."""
    write(tmp_path / "a.h5", X=np.zeros((2, 1)), y=np.array([-1, 1], np.int64))
    write(tmp_path / "b.h5", X=np.zeros((2, 1)), y=np.array([2, 2**53 + 1], np.uint64))
    labels = loaded(str(tmp_path / "?.h5")).training.y[0]
    assert (labels.dtype, labels.tolist()) == (np.int64, [-1, 1, 2, 2**53 + 1])
    assert loaded(str(tmp_path / "a.h5"), validation=str(tmp_path / "b.h5")).validation.y[0].dtype == np.int64
    write(tmp_path / "c.h5", X=np.zeros((1, 1)), y=np.array([2**63], np.uint64))
    with pytest.raises(DataError, match="sample 0 is 9223372036854775808, which int64 cannot represent"):
        loaded(str(tmp_path / "?.h5"))
    write(tmp_path / "d.h5", X=np.zeros((1, 1)), y=np.array([0.5]))
    assert loaded(str(tmp_path / "[abd].h5")).training.y[0].dtype == np.float32


def test_small_integer_labels_of_several_files_stay_small_in_memory(tmp_path):
    write(tmp_path / "a.h5", X=np.zeros((2, 1)), y=np.array([0, 1], np.uint8))
    write(tmp_path / "b.h5", X=np.zeros((2, 1)), y=np.array([True, False]))
    assert loaded(str(tmp_path / "?.h5")).training.y[0].dtype == np.uint8


def test_a_fraction_is_drawn_by_the_seed_and_nothing_is_in_both(tmp_path):
    path = write(tmp_path / "a.h5", X=np.zeros((20, 1)), y=np.arange(20))
    one, same = (loaded(str(path), validation_fraction=0.28) for _ in range(2))
    other = load(configured(str(path), validation_fraction=0.28), MPI.COMM_SELF, seed=4)
    assert (one.n_training, one.n_validation) == (14, 6), "5.6 is rounded"
    assert sorted([*one.training_indices, *one.validation_indices]) == list(range(20))
    np.testing.assert_array_equal(one.validation_indices, same.validation_indices)
    assert one.validation_indices.tolist() != other.validation_indices.tolist()


def test_without_validation_there_are_no_validation_samples(tmp_path):
    dataset = loaded(str(write(tmp_path / "a.h5", X=np.zeros((5, 1)), y=np.arange(5))))
    assert (dataset.n_training, dataset.n_validation) == (5, 0)
    assert dataset.take_validation(slice(None)).x[0].shape == (0, 1)


def test_labels_may_be_left_out_on_purpose(tmp_path):
    dataset = loaded(str(write(tmp_path / "a.h5", X=np.zeros((5, 1)))), labels=None)
    assert dataset.training.y == ()


def test_files_without_samples_are_passed_over(tmp_path):
    write(tmp_path / "a.h5", X=np.zeros((0, 1)), y=np.zeros(0))
    write(tmp_path / "b.h5", X=np.zeros((2, 1)), y=np.zeros(2))
    assert loaded(str(tmp_path / "*.h5")).n_training == 2


def test_the_users_function_is_not_called_for_a_file_without_samples(tmp_path):
    write(tmp_path / "a.h5", X=np.zeros((0, 2)), y=np.zeros(0))
    write(tmp_path / "b.h5", X=np.ones((3, 2)), y=np.arange(3))
    (tmp_path / "f.py").write_text("def f(x):\n    return x / x.max()\n")
    configuration = configured("?.h5", features={"names": "X", "function": "f.py:f"}).with_absolute_paths(tmp_path)
    assert load(configuration, MPI.COMM_SELF, 0).n_training == 3


def test_the_users_function_transforms_the_arrays_of_a_file(tmp_path):
    path = write(tmp_path / "a.h5", X=np.arange(12.0).reshape(6, 2), y=np.arange(6))
    (tmp_path / "f.py").write_text("def f(x):\n    return x.sum(axis=1, keepdims=True), x[:, :1] * 2\n")
    configuration = configured("a.h5", features={"names": "X", "function": "f.py:f"}).with_absolute_paths(tmp_path)
    sums, doubles = load(configuration, MPI.COMM_SELF, 0).training.x
    assert sums.shape == doubles.shape == (6, 1)
    assert sums[:, 0].tolist() == [1, 5, 9, 13, 17, 21]
    assert doubles[:, 0].tolist() == [0, 4, 8, 12, 16, 20]
    assert str(path) in configuration.train


def test_reading_in_pieces_gives_the_same(tmp_path, monkeypatch):
    x = np.random.default_rng(0).random((50, 7)).astype(np.float32)
    path = write(tmp_path / "a.h5", X=x, y=np.arange(50))
    monkeypatch.setattr("mpi_learn.data.files.copying.CHUNK_BYTES", 100)
    np.testing.assert_array_equal(loaded(str(path)).training.x[0], x)


def test_pieces_are_small_before_the_users_function_makes_them_smaller(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", X=np.ones((50, 6, 5), np.float32), y=np.arange(50))
    (tmp_path / "f.py").write_text(
        "lengths = []\ndef f(x):\n    lengths.append(len(x))\n    return x.sum((1, 2)) + max(lengths)\n"
    )
    configuration = configured("a.h5", features={"names": "X", "function": "f.py:f"}).with_absolute_paths(tmp_path)
    monkeypatch.setattr("mpi_learn.data.files.copying.CHUNK_BYTES", 10 * 6 * 5 * 4)
    assert load(configuration, MPI.COMM_SELF, 0).training.x[0][-1] == 6 * 5 + 10, "ten samples at once"


@needs("pyarrow")
@pytest.mark.parametrize("memory", ["hold", "stream"])
def test_what_a_file_decodes_as_a_whole_is_read_once(tmp_path, monkeypatch, memory):
    from pyarrow import parquet

    columns = {"x1": np.arange(23.0), "x2": np.arange(23.0), "y": np.arange(23)}
    FORMATS["parquet"].write(tmp_path / "a.parquet", columns)  # in groups of 5 rows
    decoded, read = [], parquet.ParquetFile.read_row_groups

    def recorded(file, groups, columns):
        decoded.extend((group, *columns) for group in groups)
        return read(file, groups, columns)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_groups", recorded)
    monkeypatch.setattr("mpi_learn.data.files.copying.CHUNK_BYTES", 1)
    dataset = loaded(str(tmp_path / "a.parquet"), features="x*", memory=memory)
    np.testing.assert_array_equal(
        dataset.take_training(slice(None)).x[0], np.repeat(np.arange(23.0)[:, np.newaxis], 2, 1)
    )
    assert sorted(decoded) == [(group, *names) for group in range(5) for names in [("x1", "x2"), ("y",)]]


@needs("pyarrow")
def test_pieces_have_a_largest_size_whatever_the_file_stores_as_one(tmp_path, monkeypatch):
    FORMATS["parquet"].write(tmp_path / "a.parquet", {"x": np.arange(23.0), "y": np.arange(23)})  # in groups of 5 rows
    pieces, read = [], Reader.read
    monkeypatch.setattr(Reader, "read", lambda *arguments: pieces.append(arguments[1:]) or read(*arguments))
    monkeypatch.setattr("mpi_learn.data.files.copying.CHUNK_BYTES", 1)
    monkeypatch.setattr("mpi_learn.data.files.copying.MOST_BYTES", 39)
    loaded(str(tmp_path / "a.parquet"), features="x")
    assert {stop - start for start, stop in pieces} == {1}


@pytest.mark.parametrize(
    ("validation", "expected"),
    [({}, (10, 0)), ({"validation": "b.h5"}, (10, 3)), ({"validation_fraction": 0.2}, (8, 2))],
)
def test_samples_are_counted_as_they_are_loaded(tmp_path, monkeypatch, validation, expected):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.h5", X=np.zeros((10, 4)), y=np.arange(10))
    write(tmp_path / "b.h5", X=np.zeros((3, 4)), y=np.arange(3))
    configuration = configured("a.h5", **validation)
    dataset = load(configuration, MPI.COMM_SELF, 0)
    assert count_samples(configuration) == (dataset.n_training, dataset.n_validation) == expected


def test_counting_samples_needs_no_mpi_and_no_framework(tmp_path):
    path = write(tmp_path / "a.h5", X=np.zeros((2, 1)), y=np.zeros(2))
    script = (
        "import sys; from mpi_learn.data.configuration import DataConfiguration\n"
        "from mpi_learn.data.files.data_plan import count_samples\n"
        f"count_samples(DataConfiguration(train={str(path)!r}, features='X', labels='y'))\n"
        "assert not {'mpi4py.MPI', 'tensorflow', 'keras', 'torch', 'uproot', 'pyarrow', 'fsspec'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux lists what is open")
def test_samples_that_are_given_up_leave_nothing_open(tmp_path):
    path = str(write(tmp_path / "a.h5", X=np.zeros((5, 1)), y=np.arange(5)))

    def n_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before, threads = n_open(), set(threading.enumerate())  # other tests may still hold samples
    for _ in range(3):
        assert loaded(path).n_training == 5
    for _ in range(200):  # the thread that offers them ends on its own
        if n_open() <= before:
            break
        time.sleep(0.01)
    assert n_open() <= before
    assert not {one for one in threading.enumerate() if one.name == "offering memory"} - threads


@pytest.mark.mpi
@pytest.mark.parametrize("n", [1, 3])
def test_all_ranks_hold_the_same_samples_in_one_memory(tmp_path, n):
    write(tmp_path / "a.h5", X=np.arange(14.0).reshape(7, 2), y=np.arange(7))
    done = in_world(n, str(SCRIPT), str(tmp_path / "a.h5"), "X")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("samples 7 sum 91.0 seen by all True") == n, done.stdout
    assert done.stderr == ""


@pytest.mark.mpi
def test_an_error_is_the_same_on_every_rank(tmp_path):
    write(tmp_path / "a.h5", X=np.arange(14.0).reshape(7, 2), y=np.arange(7))
    done = in_world(3, str(SCRIPT), str(tmp_path / "a.h5"), "Z")
    assert done.stdout.count("there is no 'Z' in this HDF5 file") == 3, done.stdout + done.stderr


@pytest.mark.parametrize("place", ["closed/a.h5", "closed/*.h5"])
def test_a_folder_that_may_not_be_entered_is_named(tmp_path, place):
    (tmp_path / "closed").mkdir()
    write(tmp_path / "closed" / "a.h5", X=np.zeros((2, 1)), y=np.zeros(2))
    with not_to_be_entered(tmp_path / "closed"), pytest.raises(DataError) as caught:
        count_samples(configured(str(tmp_path / place)))
    assert str(caught.value).startswith(f"data.train: {tmp_path / place}: the file is not accessible: Permission")
    assert "permissions of its folders" in caught.value.cure


def test_a_file_that_is_not_there_names_the_nearest(tmp_path):
    write(tmp_path / "train.h5", X=np.zeros((2, 1)), y=np.zeros(2))
    with pytest.raises(DataError, match=r"did you mean 'train\.h5'"):
        count_samples(configured(str(tmp_path / "trian.h5")))
