"""MNIST: the four idx files, also compressed with gzip."""

from __future__ import annotations

import numpy as np

from mpi_learn.errors import DataError
from mpi_learn.known_data.data_set import DataSet, FileArray, NamedArrays, Origin, Original

MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


def _read(origin: Origin) -> dict[str, NamedArrays]:
    return {"": _part("train", origin), "_test": _part("t10k", origin)}


def _part(part: str, origin: Origin) -> NamedArrays:
    images = _idx(f"{part}-images-idx3-ubyte", origin, n_axes=3)
    labels = _idx(f"{part}-labels-idx1-ubyte", origin, n_axes=1)
    if len(images) != len(labels):
        raise DataError(f"{part}: {len(images)} images but {len(labels)} labels", cure="download the files again")
    return {"X": images[..., np.newaxis], "y": labels}


def _idx(name: str, origin: Origin, *, n_axes: int) -> np.ndarray:
    """The array of unsigned bytes in an idx file, with the shape in its header."""
    where, content = origin.read(f"{name}.gz", name)
    header_bytes = 4 + 4 * n_axes
    shape = tuple(np.frombuffer(content, ">u4", n_axes, offset=4).tolist()) if len(content) >= header_bytes else ()
    if content[:4] != bytes((0, 0, 8, n_axes)) or len(content) != header_bytes + int(np.prod(shape)):
        raise DataError("not a complete idx file", where=where, cure="download it again")
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


MNIST = DataSet(
    name="mnist",
    summary="60,000 handwritten digits of 28×28 pixels to train on, and 10,000 to test on",
    source="LeCun, Cortes & Burges; made of NIST's Special Databases 1 and 3 (LeCun et al., Proc. IEEE 86 (1998) 2278)",
    licence="CC BY-SA 3.0",
    arrays=(
        FileArray("X", "(n, 28, 28, 1)", "uint8", "0 (white) to 255", "pixels"),
        FileArray("y", "(n,)", "uint8", "class 0 to 9", "the digit"),
    ),
    training="{{train: [{file}], validation: [{test}], features: X, labels: y}}",
    read=_read,
    originals=tuple(Original(name, tuple(url + name for url in MIRRORS), md5) for name, md5 in MD5.items()),
    folder="mnist",
)
