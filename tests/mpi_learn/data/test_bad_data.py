"""Invalid data, as a table: each row is one `DataError` that names the file, the key and the cure."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.loading import load
from mpi_learn.errors import DataError
from tests.optional_packages import needs

N = 20
X = np.arange(N * 3, dtype=np.float32).reshape(N, 3)
Y = np.arange(N) % 4


def write(path: Path, **arrays: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def changed(array: np.ndarray, index: Any, value: float) -> np.ndarray:
    array = array.copy()
    array[index] = value
    return array


@dataclass(frozen=True)
class Bad:
    """One line of the table.

    Args:
        write: Writes the files into a folder.
        names: What the message must contain: file or place, key, dataset.
        cure: What the cure must contain.
        others: The configuration where it differs from a.h5, X and y.
    """

    write: Callable[[Path], Any]
    names: list[str]
    cure: str
    others: dict[str, Any] = field(default_factory=dict)


def good(folder: Path) -> None:
    write(folder / "a.h5", X=X, y=Y)


def truncated(folder: Path) -> None:
    good(folder)
    content = (folder / "a.h5").read_bytes()
    (folder / "a.h5").write_bytes(content[: len(content) // 2])


def two(folder: Path, **second: Any) -> None:
    good(folder)
    write(folder / "b.h5", **second)


def function(folder: Path, body: str) -> None:
    good(folder)
    (folder / "f.py").write_text(f"import numpy as np\ndef f(x):\n    return {body}\n")


def fields(folder: Path) -> None:
    write(folder / "a.h5", X=np.zeros(N, [("a", "f4", (2,)), ("b", "f4")]), y=Y)


def compressed(folder: Path) -> None:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("X", data=np.random.default_rng(0).random((N, 3000)), chunks=(5, 3000), compression="gzip")
        file["y"] = Y
        place = file["X"].id.get_chunk_info(1).byte_offset
    content = bytearray((folder / "a.h5").read_bytes())
    content[place : place + 400] = bytes(400)
    (folder / "a.h5").write_bytes(content)


BOTH = {"train": "?.h5"}
BY_FUNCTION = {"features": {"names": "X", "function": "f.py:f"}}
CSV = {"train": "a.csv", "features": ["p", "q"], "labels": "y"}

TABLE = {
    "no such file": Bad(lambda d: None, ["data.train", "a.h5", "no such file"], "no file with a similar name"),
    "no such file beside another kind": Bad(
        lambda d: (d / "a.py").write_text(""), ["data.train", "a.h5"], "no file with a similar name"
    ),
    "a misspelt file": Bad(good, ["data.train", "A.h5"], "did you mean 'a.h5'", {"train": "A.h5"}),
    "a file name that is too long": Bad(
        good,
        ["data.train", "a.h5", "not accessible: File name too long"],
        "check the path",
        {"train": "a" * 300 + "a.h5"},
    ),
    "no such folder": Bad(good, ["data.train", "data"], "check the path", {"train": "data/a.h5"}),
    "a folder": Bad(lambda d: (d / "a.h5").mkdir(), ["data.train", "a.h5", "folder"], "a.h5/*.h5"),
    "a glob that fits nothing": Bad(good, ["data.train", "b*.h5"], "check the path", {"train": "b*.h5"}),
    "one of two places finds nothing": Bad(good, ["data.train", "b.h5"], "similar name", {"train": ["a.h5", "b.h5"]}),
    "no validation file": Bad(good, ["data.validation", "v.h5"], "similar name", {"validation": "v.h5"}),
    "an unknown suffix": Bad(lambda d: (d / "a.txt").write_text("1"), ["a.txt"], ".parquet", {"train": "a.txt"}),
    "an empty file": Bad(lambda d: (d / "a.h5").touch(), ["a.h5", "HDF5"], "damaged"),
    "not HDF5": Bad(lambda d: (d / "a.h5").write_text("hello\n" * 99), ["a.h5", "HDF5"], "damaged"),
    "a truncated HDF5 file": Bad(truncated, ["a.h5", "HDF5", "truncated"], "copy it again"),
    "a damaged chunk": Bad(compressed, ["a.h5", "HDF5"], "damaged"),
    "not NPZ": Bad(lambda d: (d / "a.npz").write_text("x" * 99), ["a.npz", "NPZ"], "damaged", {"train": "a.npz"}),
    "not Parquet": Bad(
        lambda d: (d / "a.parquet").write_text("x" * 99), ["a.parquet"], "damaged", {"train": "a.parquet"}
    ),
    "not ROOT": Bad(lambda d: (d / "a.root").write_text("x" * 99), ["a.root"], "damaged", {"train": "a.root"}),
    "not gzip": Bad(lambda d: (d / "a.csv.gz").write_text("p,q\n"), ["a.csv.gz"], "damaged", {"train": "a.csv.gz"}),
    "no such dataset": Bad(good, ["data.features", "a.h5", "'pixels'"], "there are: X, y", {"features": "pixels"}),
    "a misspelt dataset": Bad(good, ["data.features", "a.h5", "'x'"], "did you mean X", {"features": "x"}),
    "no such labels": Bad(good, ["data.labels", "a.h5", "'label'"], "there are: X, y", {"labels": "label"}),
    "a dataset missing in the second file": Bad(
        lambda d: two(d, X=X), ["data.labels", "b.h5", "'y'"], "there are: X", BOTH
    ),
    "nothing to read": Bad(lambda d: write(d / "a.h5"), ["data.features", "a.h5"], "no readable array"),
    "an empty group": Bad(
        lambda d: h5py.File(d / "a.h5", "w").create_group("X").file.close(), ["data.features", "X"], "no readable array"
    ),
    "a single number": Bad(lambda d: write(d / "a.h5", X=1.0, y=Y), ["data.features", "'X'"], "there are: y"),
    "no samples": Bad(
        lambda d: write(d / "a.h5", X=X[:0], y=Y[:0]), ["data.train", "a.h5", "no sample"], "with samples"
    ),
    "fewer labels than features": Bad(
        lambda d: write(d / "a.h5", X=X, y=Y[:-1]), ["data.labels", "a.h5", "y", "20", "19"], "one entry for each"
    ),
    "inputs of different length": Bad(
        lambda d: write(d / "a.h5", X=X, Z=X[:4], y=Y),
        ["data.features", "a.h5", "X has 20", "Z has 4"],
        "one entry a sample",
        {"features": ["X", "Z"]},
    ),
    "another shape in the second file": Bad(
        lambda d: two(d, X=X[:, :2], y=Y), ["data.features", "b.h5", "(2,)", "(3,)", "a.h5"], "the same in all", BOTH
    ),
    "labels of another shape in the second file": Bad(
        lambda d: two(d, X=X, y=Y[:, np.newaxis]), ["data.labels", "b.h5", "(1,)"], "the same in all", BOTH
    ),
    "validation of another shape": Bad(
        lambda d: two(d, X=X[:, :2], y=Y),
        ["data.features", "b.h5", "(2,)", "(3,)", "validation"],
        "must be the same",
        {"validation": "b.h5"},
    ),
    "text as features": Bad(
        lambda d: write(d / "a.h5", X=["a"] * N, y=Y), ["data.features", "a.h5", "X"], "name numeric data"
    ),
    "text as labels": Bad(
        lambda d: write(d / "a.h5", X=X, y=["a"] * N), ["data.labels", "a.h5", "y"], "file.py:function"
    ),
    "complex numbers": Bad(
        lambda d: write(d / "a.h5", X=X + 1j, y=Y), ["data.features", "X", "complex numbers"], "numeric"
    ),
    "text in a compound array": Bad(
        lambda d: write(d / "a.h5", X=np.zeros(N, [("p", "f4"), ("q", "S4")]), y=Y),
        ["data.features", "X/q", "text"],
        "numeric",
    ),
    "a group among inputs in an order": Bad(
        lambda d: write(d / "a.h5", **{"X/a": X, "X/b": X, "Z": X, "y": Y}),
        ["data.features", "X", "2 arrays, which have names but no order"],
        "name each array",
        {"features": ["Z", "X"]},
    ),
    "weights of another length": Bad(
        lambda d: write(d / "a.h5", X=X, y=Y, w=np.ones(N + 1)),
        ["data.weights", "w", f"{N} samples of features but {N + 1} of weights"],
        "one entry for each sample",
        {"weights": "w"},
    ),
    "a dtype for an input that is not there": Bad(
        lambda d: write(d / "a.h5", X=X, y=Y),
        ["data.dtype", "no input or label 'Z'"],
        "X, y",
        {"dtype": {"Z": "int32"}},
    ),
    "a dtype without a name": Bad(
        lambda d: write(d / "a.h5", X=X, y=Y), ["data.dtype", "no input or label ''"], "X, y", {"dtype": {"": "int32"}}
    ),
    "a dtype of the weights": Bad(
        lambda d: write(d / "a.h5", X=X, y=Y, w=np.ones(N)),
        ["data.dtype", "no input or label 'w'"],
        "X, y",
        {"weights": "w", "dtype": {"w": "float64"}},
    ),
    "a value that the dtype does not hold": Bad(
        lambda d: write(d / "a.h5", X=np.full((N, 2), 300), y=Y),
        ["data.features", "X", "sample 0 is 300, which uint8 cannot represent"],
        "data.dtype",
        {"dtype": "uint8"},
    ),
    "a pickled array": Bad(
        lambda d: np.savez(d / "a.npz", X=np.array([{}] * N), y=Y),
        ["data.features", "a.npz", "X", "objects"],
        "numeric",
        {"train": "a.npz"},
    ),
    "a missing feature": Bad(
        lambda d: write(d / "a.h5", X=changed(X, (7, 1), np.nan), y=Y),
        ["data.features", "a.h5", "X", "sample 7, element (1,) is nan"],
        "remove such samples",
    ),
    "a missing integer": Bad(
        lambda d: write(d / "a.h5", X=changed(X, (7, 1), np.nan), y=Y),
        ["data.features", "X", "sample 7, element (1,) is nan"],
        "remove such samples",
        {"dtype": "int32"},
    ),
    "an infinite feature": Bad(
        lambda d: write(d / "a.h5", X=changed(X, (19, 2), -np.inf), y=Y),
        ["data.features", "X", "sample 19, element (2,) is -inf"],
        "remove such samples",
    ),
    "a feature too large for float32": Bad(
        lambda d: write(d / "a.h5", X=changed(X.astype(float), (3, 0), 1e300), y=Y),
        ["data.features", "X", "sample 3", "1e+300"],
        "remove such samples",
    ),
    "a missing label": Bad(
        lambda d: write(d / "a.h5", X=X, y=changed(Y.astype(float), 5, np.nan)),
        ["data.labels", "a.h5", "y", "sample 5 is nan"],
        "remove such samples",
    ),
    "a missing feature in validation": Bad(
        lambda d: two(d, X=changed(X, (2, 0), np.nan), y=Y),
        ["data.features", "b.h5", "sample 2"],
        "remove such samples",
        {"validation": "b.h5"},
    ),
    "nothing left to validate on": Bad(good, ["data.validation_fraction", "20"], "more", {"validation_fraction": 0.01}),
    "nothing left to train on": Bad(good, ["data.validation_fraction"], "more", {"validation_fraction": 0.99}),
    "images among columns": Bad(
        lambda d: write(d / "a.h5", X=X.reshape(N, 3, 1), y=Y),
        ["data.features", "X", "(3, 1)"],
        "a separate input",
        {"features": [["X"]]},
    ),
    "fields of different shape as one input": Bad(
        fields,
        ["data.features", "a.h5", "X/a, X/b", "shapes (2,), ()"],
        "a separate input",
        {"features": [["X/a", "X/b"]]},
    ),
    "fields of different shape as the argument of a function": Bad(
        lambda d: function(d, "x") or fields(d),
        ["data.features", "a.h5", "X/a, X/b", "shapes (2,), ()"],
        "a separate input",
        {"features": {"names": [["X/a", "X/b"]], "function": "f.py:f"}},
    ),
    "a width for what has one": Bad(good, ["data.features", "X[2]"], "write X", {"features": "X[2]"}),
    "a function that loses samples": Bad(
        lambda d: function(d, "x[1:]"), ["data.features", "a.h5", "f", "(7, 3)"], "one entry for each", BY_FUNCTION
    ),
    "a function that returns one number": Bad(
        lambda d: function(d, "1.0"), ["data.features", "f", "shape ()"], "one entry for each", BY_FUNCTION
    ),
    "a function that returns text": Bad(
        lambda d: function(d, "['a'] * len(x)"), ["data.features", "text"], "numeric", BY_FUNCTION
    ),
    "a function that raises": Bad(
        lambda d: function(d, "1 / 0"),
        ["data.features", "a.h5", "ZeroDivisionError: division by zero"],
        "correct the function",
        BY_FUNCTION,
    ),
    "a function that exits": Bad(
        lambda d: function(d, "exit('no calibration')"),
        ["data.features", "SystemExit: no calibration"],
        "correct the function",
        BY_FUNCTION,
    ),
    "a function that changes its mind": Bad(
        lambda d: function(d, "x if len(x) < 9 else x[:, :1]"),
        ["data.features", "(20, 1)"],
        "the same shape",
        BY_FUNCTION,
    ),
    "an empty cell": Bad(
        lambda d: (d / "a.csv").write_text("p,q,y\n1,2,0\n1,,1\n"),
        ["data.features", "a.csv", "sample 1"],
        "remove",
        CSV,
    ),
    "a cell of text": Bad(
        lambda d: (d / "a.csv").write_text("p,q,y\n1,2,0\n1,?,1\n"), ["data.features", "a.csv", "q"], "numeric", CSV
    ),
    "a line with a cell too few": Bad(
        lambda d: (d / "a.csv").write_text("p,q,y\n1,2,0\n1,2\n"),
        ["a.csv", "Row #3: Expected 3 columns, got 2"],
        "damaged",
        CSV,
    ),
    "a table of names alone": Bad(
        lambda d: (d / "a.csv").write_text("p,q,y\n"), ["data.train", "a.csv", "no sample"], "with samples", CSV
    ),
    "an empty table": Bad(lambda d: (d / "a.csv").touch(), ["data.features", "a.csv"], "no readable array", CSV),
    "a truncated table": Bad(
        lambda d: (d / "a.csv.gz").write_bytes(gzip.compress(b"p,q,y\n" + b"1,2,0\n" * 999)[:-20]),
        ["a.csv.gz", "CSV"],
        "damaged",
        CSV | {"train": "a.csv.gz"},
    ),
}


def package_of(bad: Bad) -> str:
    """The optional package that reads its files."""
    text = f"{bad.names} {bad.others}"
    return "uproot" if ".root" in text else "pyarrow" if ".csv" in text or "a.parquet" in text else ""


@pytest.mark.parametrize(
    "bad",
    [pytest.param(bad, marks=needs(package_of(bad)) if package_of(bad) else ()) for bad in TABLE.values()],
    ids=TABLE,
)
def test_bad_data_are_named_with_their_cure(bad, tmp_path):
    bad.write(tmp_path)
    configuration = DataConfiguration(
        **{"train": "a.h5", "features": "X", "labels": "y"} | bad.others
    ).with_absolute_paths(tmp_path)
    with pytest.raises(DataError) as caught:
        load(configuration, MPI.COMM_SELF, seed=0)
    message = str(caught.value)
    for name in bad.names:
        assert name in message
    assert bad.cure
    assert bad.cure in caught.value.cure
    assert len(message) < 800


@pytest.mark.parametrize(
    "write_file", [lambda path: path.write_bytes(b"no array"), lambda path: np.save(path, [{}, 1])]
)
def test_a_file_that_numpy_takes_for_pickled_objects_is_refused_without_its_advice(write_file, tmp_path):
    write_file(tmp_path / "X.npy")
    configuration = DataConfiguration(train=[str(tmp_path / "X.npy")], features="X", labels=None)
    with pytest.raises(DataError, match="it contains Python objects instead of numbers") as caught:
        load(configuration, MPI.COMM_SELF, 0)
    assert "trust" not in str(caught.value)
