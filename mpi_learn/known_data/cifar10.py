"""CIFAR-10: the binary version of the published archive, or an excerpt of it in HDF5."""

from __future__ import annotations

import io
import tarfile

import numpy as np

from mpi_learn.errors import DataError
from mpi_learn.known_data.data_set import DataSet, FileArray, NamedArrays, Origin, Original, hdf5_arrays

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARCHIVE, EXCERPT = "cifar-10-binary.tar.gz", "cifar10_small.h5"
IMAGE_BYTES = 3 * 32 * 32
TRAINING_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_BATCHES = ("test_batch.bin",)


def _read(origin: Origin) -> dict[str, NamedArrays]:
    where, content = origin.read(ARCHIVE, EXCERPT)
    if where.endswith(".h5"):
        found = hdf5_arrays(content, where, "train_images", "train_labels", "test_images", "test_labels")
        parts = {"": "train", "_test": "test"}
        return {key: {"X": found[f"{part}_images"], "y": found[f"{part}_labels"]} for key, part in parts.items()}
    batches = _batches(content, where)
    return {"": _images(batches, TRAINING_BATCHES, where), "_test": _images(batches, TEST_BATCHES, where)}


def _batches(archive: bytes, where: str) -> dict[str, bytes]:
    """File name -> content of the binary files in the archive."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            members = [member for member in files.getmembers() if member.name.endswith(".bin")]
            opened = {member.name.rpartition("/")[2]: files.extractfile(member) for member in members}
            return {name: file.read() for name, file in opened.items() if file is not None}
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"the file is damaged: {error}", where=where, cure="download it again") from error


def _images(batches: dict[str, bytes], names: tuple[str, ...], where: str) -> NamedArrays:
    """Images and labels of batches of records: a byte of label, then the red, green and blue plane."""
    missing = [name for name in names if not batches.get(name) or len(batches[name]) % (1 + IMAGE_BYTES)]
    if missing:
        raise DataError(f"{missing[0]} is missing or not complete", where=where, cure="download it again")
    records = np.frombuffer(b"".join(batches[name] for name in names), np.uint8).reshape(-1, 1 + IMAGE_BYTES)
    return {"X": records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), "y": records[:, 0]}


CIFAR10 = DataSet(
    name="cifar10",
    summary="50,000 colour photographs of 32×32 pixels in ten classes to train on, and 10,000 to test on",
    source="Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009), cs.toronto.edu/~kriz/cifar.html",
    licence="none stated by its authors; free for research with citation",
    arrays=(
        FileArray("X", "(n, 32, 32, 3)", "uint8", "0 to 255", "pixels: red, green, blue"),
        FileArray("y", "(n,)", "uint8", "class 0 to 9", ", ".join(CLASSES)),
    ),
    training="{{train: [{file}], validation: [{test}], features: X, labels: y}}",
    read=_read,
    originals=(
        Original(ARCHIVE, (f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",), "c32a1d4ab5d03f1284b67883e8d87530"),
        Original(EXCERPT),
    ),
    folder="cifar10",
)
