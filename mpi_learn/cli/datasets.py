"""Writes known data sets as HDF5 files in the layout that examples use: images in ``X``, classes in ``y``."""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.error
import urllib.request
from pathlib import Path

import h5py
import numpy as np

from mpi_learn.errors import DataError
from mpi_learn.settings.yaml_file import nearest

MNIST_URLS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")

MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
"""The files to download, and what they must contain."""

DOWNLOAD_TIMEOUT_S = 30


def prepare(name: str, to: Path, source: Path | None = None) -> str:
    """Writes a data set; a file is written aside and then renamed, so it is whole or not there.

    ``digits`` is scikit-learn's: one file with ``X`` (1797, 64) float32 in [0, 1] and ``y`` (1797,) int64 in 0 … 9. In
    a training.yaml: ``{train: [digits.h5], validation_fraction: 0.2, features: X, labels: y}``.

    ``mnist`` becomes two files, `to` and beside it one with ``_test`` in its name: ``X`` (60000 and 10000, 28, 28, 1)
    uint8 in 0 … 255 and ``y`` uint8 in 0 … 9. In a training.yaml:
    ``{train: [mnist.h5], validation: [mnist_test.h5], features: X, labels: y}``.

    Args:
        name: ``"digits"`` or ``"mnist"``.
        to: The HDF5 file to write.
        source: A folder with MNIST's four idx files, gzipped or not; None downloads them.

    Returns:
        What was written, and the lines of a training.yaml that read it, for people.

    Raises:
        DataError: `name` is unknown, `source` is incomplete or damaged, the download or writing failed.
    """
    if name not in DATA_SETS:
        near = nearest(name, DATA_SETS)
        raise DataError(
            f"there is no data set {name!r}",
            cure=f"{f'did you mean {near}? ' if near else ''}known: {', '.join(DATA_SETS)}",
        )
    if to.suffix not in (".h5", ".hdf5"):
        raise DataError(f"{to.name!r} does not look like an HDF5 file", where=str(to), cure="call it ….h5")
    return DATA_SETS[name](to, source)


def _prepare_digits(to: Path, source: Path | None) -> str:
    from sklearn.datasets import load_digits

    if source is not None:
        raise DataError("digits come with scikit-learn, not from a folder", where=str(source), cure="leave out --from")
    digits = load_digits()
    _write(to, (digits.data / 16).astype(np.float32), digits.target.astype(np.int64))
    return (
        f"wrote {to}: {len(digits.target)} images of 8×8 pixels\n"
        f"data: {{train: [{to.name}], validation_fraction: 0.2, features: X, labels: y}}"
    )


def _prepare_mnist(to: Path, source: Path | None) -> str:
    test = to.with_name(f"{to.stem}_test{to.suffix}")
    parts = {to: _mnist_part("train", source), test: _mnist_part("t10k", source)}  # all is read before any is written
    for path, (images, labels) in parts.items():
        _write(path, images, labels)
    counts = " and ".join(str(len(labels)) for _, labels in parts.values())
    return (
        f"wrote {to} and {test}: {counts} images of 28×28 pixels, 0 to 255\n"
        f"data: {{train: [{to.name}], validation: [{test.name}], features: X, labels: y}}"
    )


def _mnist_part(part: str, source: Path | None) -> tuple[np.ndarray, np.ndarray]:
    images = _idx(f"{part}-images-idx3-ubyte", source, n_axes=3)
    labels = _idx(f"{part}-labels-idx1-ubyte", source, n_axes=1)
    if len(images) != len(labels):
        raise DataError(
            f"{len(images)} images but {len(labels)} labels in {part}-…", where=str(source), cure="fetch them again"
        )
    return images[..., np.newaxis], labels


DATA_SETS = {"digits": _prepare_digits, "mnist": _prepare_mnist}


def _write(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(aside, "w") as file:
            file["X"] = images
            file["y"] = labels
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise DataError(f"cannot be written: {error}", where=str(path), cure="name a place that can be") from error


def _idx(name: str, source: Path | None, *, n_axes: int) -> np.ndarray:
    """The array of unsigned bytes in an idx file: shape as its header says."""
    content, where = _downloaded(f"{name}.gz") if source is None else _found(name, source)
    header_bytes = 4 + 4 * n_axes
    shape = tuple(np.frombuffer(content[4:header_bytes], ">u4").tolist())
    if content[:4] != bytes((0, 0, 8, n_axes)) or len(content) != header_bytes + int(np.prod(shape)):
        raise DataError("this is no complete idx file", where=where, cure="fetch it again")
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


def _found(name: str, folder: Path) -> tuple[bytes, str]:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return _unpacked(path.read_bytes(), str(path)), str(path)
    raise DataError(
        f"there is no {name} or {name}.gz", where=str(folder), cure="--from names the folder of MNIST's four idx files"
    )


def _downloaded(file: str) -> tuple[bytes, str]:
    reasons = []
    for url in MNIST_URLS:
        try:
            with urllib.request.urlopen(url + file, timeout=DOWNLOAD_TIMEOUT_S) as response:
                content = response.read()
        except (urllib.error.URLError, OSError) as error:
            reasons.append(f"{url}: {getattr(error, 'reason', error)}")
            continue
        if hashlib.md5(content, usedforsecurity=False).hexdigest() == MNIST_MD5[file]:
            return _unpacked(content, url + file), url + file
        reasons.append(f"{url}: not the file expected")
    raise DataError(
        f"cannot be downloaded ({'; '.join(reasons)})",
        where=file,
        cure="without internet: --from FOLDER with MNIST's four idx files",
    )


def _unpacked(content: bytes, where: str) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise DataError(f"is damaged: {error}", where=where, cure="fetch it again") from error
