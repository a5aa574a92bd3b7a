"""Datasets of HDF5 files whose values are missing are refused, where HDF5 returns zeros; and files are closed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.data_plan import count_samples
from mpi_learn.errors import DataError
from mpi_learn.mpi.library import MPI
from mpi_learn.training.configuration import read_configuration
from mpi_learn.training.context import open_context
from mpi_learn.training.result import validation_of

N = 40
X = np.random.default_rng(0).normal(size=(N, 8)).astype(np.float32)
Write = Callable[[h5py.File], object]


def virtual(file: str, name: str = "X", rows: int = N, fill: float | None = None) -> Write:
    """A virtual dataset whose first rows are those of one source."""

    def write(group: h5py.File) -> None:
        layout = h5py.VirtualLayout(X.shape, "f4")
        layout[:rows] = h5py.VirtualSource(file, name, X.shape)[:rows]
        group.create_virtual_dataset("X", layout, fillvalue=fill)

    return write


def numbered(file: h5py.File) -> None:
    """A virtual dataset of ten rows of each of the files block_0.h5, block_1.h5, …"""
    rows, source = h5py.h5s.create_simple((0, 8), (h5py.h5s.UNLIMITED, 8)), h5py.h5s.create_simple((10, 8))
    rows.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), stride=(10, 1), block=(10, 8))
    source.select_all()
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_virtual(rows, b"block_%b.h5", b"X", source)
    shape = h5py.h5s.create_simple((0, 8), (h5py.h5s.UNLIMITED, 8))
    h5py.h5d.create(file.id, b"X", h5py.h5t.NATIVE_FLOAT, shape, properties)


def chunked(n_written: int, **options: object) -> Write:
    def write(file: h5py.File) -> None:
        file.create_dataset("X", X.shape, "f4", chunks=(10, 3), **options)[:n_written] = X[:n_written]

    return write


def external(file: h5py.File) -> None:
    path = Path(file.filename).with_name("values.bin")
    file.create_dataset("X", X.shape, "f4", external=[(str(path), 0, h5py.h5f.UNLIMITED)])


def truncated(file: h5py.File) -> None:
    Path(file.filename).with_name("values.bin").write_bytes(X.tobytes()[:500])
    external(file)


def unwritten(file: h5py.File, **options: object) -> None:
    file.create_dataset("X", X.shape, "f4", **options)


CASES: dict[str, tuple[Write, str]] = {
    "virtual": (virtual("source.h5"), ""),
    "virtual in another folder": (virtual("sub/source.h5"), ""),
    "virtual of a virtual one": (virtual("good.h5"), ""),
    "source is missing": (virtual("gone.h5"), "X: its source gone.h5 is missing"),
    "source of a source is missing": (virtual("bad.h5"), "of its source X in .*bad.h5: its source gone.h5 is missing"),
    "source has no such dataset": (virtual("source.h5", "Z"), "its source Z in .*source.h5 does not exist"),
    "this file has no such dataset": (virtual(".", "Z"), "its source Z in this file does not exist"),
    "source was never written": (virtual("source.h5", "nothing"), "its source nothing .*: it was never written"),
    "source is too short": (virtual("source.h5", "short"), r"short .* has the shape \(30, 8\), expected at least \(40"),
    "source is itself": (virtual(".", "X"), "it is a virtual dataset that contains itself"),
    "rows without a source": (virtual("source.h5", rows=30), "its sources provide 240 of its 320 values"),
    "rows with a fill value": (virtual("source.h5", rows=30, fill=0.0), ""),
    "one of numbered files is missing": (numbered, "its source block_2.h5 is missing"),
    "never written": (unwritten, "X: it was never written"),
    "never written, in chunks": (chunked(0), "it was never written"),
    "fill value": (lambda file: unwritten(file, fillvalue=1.0), ""),
    "all chunks": (chunked(N), ""),
    "zeros in compressed chunks": (lambda file: chunked(N, compression="gzip")(file), ""),
    "some chunks": (chunked(20), "only 6 of its 12 chunks were written"),
    "some chunks and a fill value": (chunked(20, fillvalue=0.0), ""),
    "other file is missing": (external, "its values are in the file .*values.bin, which is missing"),
    "other file is too short": (truncated, "which has 500 bytes, expected at least 1,280"),
    "link to another file": (lambda file: file.__setitem__("X", h5py.ExternalLink("source.h5", "X")), ""),
    "broken link": (
        lambda file: file.__setitem__("X", h5py.ExternalLink("gone.h5", "X")), "X: it is a link to X in gone.h5",
    ),
    "records": (lambda file: file.create_dataset("X", N, [("a", "f4"), ("b", "f4")]), "X: it was never written"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("missing")
    (path / "sub").mkdir()
    for name in ("source.h5", "sub/source.h5"):
        with h5py.File(path / name, "w") as file:
            file["X"], file["short"] = X, X[:30]
            file.create_dataset("nothing", X.shape, "f4")
    for name, source in (("good.h5", "source.h5"), ("bad.h5", "gone.h5")):
        with h5py.File(path / name, "w") as file:
            virtual(source)(file)
    for number in (0, 1, 3):
        with h5py.File(path / f"block_{number}.h5", "w") as file:
            file["X"] = X[:10]
    return path


@pytest.mark.parametrize(("write", "problem"), CASES.values(), ids=CASES)
def test_a_dataset_whose_values_are_missing_is_refused(folder, write, problem):
    with h5py.File(folder / "data.h5", "w") as file:
        write(file)
    configuration = DataConfiguration(train=[f"{folder}/data.h5"], features="X", labels=None)
    if not problem:
        assert count_samples(configuration) == (N, 0)
        return
    with pytest.raises(DataError, match=problem) as caught:
        count_samples(configuration)
    assert f"{folder}/data.h5" in caught.value.where
    assert caught.value.cure


def is_closed(path: Path) -> bool:
    """Whether another program, or this one, can write the file: HDF5 refuses this while the file is open."""
    try:
        with h5py.File(path, "r+"):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("memory", ["hold", "stream"])
def test_files_are_closed_after_a_training_and_after_an_error(tmp_path, memory):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"], file["y"], file["short"] = X, X[:, 0], X[:30, 0]
    section = {"train": [f"{tmp_path}/data.h5"], "validation_fraction": 0.5, "features": "X", "memory": memory}
    whole = read_configuration({"model": "m.py:f", "data": section | {"labels": "y"}})
    with open_context(whole, MPI.COMM_SELF, None) as context:
        expected = context.dataset.take_validation(slice(None)).x[0]
    assert is_closed(tmp_path / "data.h5")
    np.testing.assert_array_equal(validation_of(context.dataset).x[0], expected)
    assert is_closed(tmp_path / "data.h5"), "reading the validation data after the training opens the file again"
    with pytest.raises(ZeroDivisionError) as in_training, open_context(whole, MPI.COMM_SELF, None) as failed:
        failed.dataset.take_training(slice(None))
        raise ZeroDivisionError
    assert is_closed(tmp_path / "data.h5"), in_training
    broken = read_configuration({"model": "m.py:f", "data": section | {"labels": "short"}})
    with pytest.raises(DataError) as in_loading, open_context(broken, MPI.COMM_SELF, None):
        pass
    assert is_closed(tmp_path / "data.h5"), in_loading
