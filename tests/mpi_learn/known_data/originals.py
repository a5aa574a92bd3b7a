"""Small files in the layouts in which the data sets are published."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import h5py
import numpy as np

from mpi_learn.known_data import higgs, jets

N_EVENTS = 6


def write_all(folder: Path) -> Path:
    """Writes the originals of all data sets into folders below `folder`."""
    for name in ("mnist", "cifar10", "hep", "calo"):
        (folder / name).mkdir(parents=True)
    write_mnist(folder / "mnist")
    write_cifar10(folder / "cifar10" / "cifar-10-binary.tar.gz")
    write_dijets(folder / "hep" / "dijet_jets.h5")
    write_higgs(folder / "hep" / "atlas-higgs-challenge-2014-v2.csv.gz")
    write_voxels(folder / "calo" / "odd_voxels.h5")
    return folder


def write_mnist(folder: Path) -> None:
    for part, n in (("train", 6), ("t10k", 2)):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", np.arange(n * 784).reshape(n, 28, 28) % 256)
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(n))


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    content = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def cifar_record(label: int) -> bytes:
    """A red left half, a green right half and a blue last row."""
    red, green, blue = np.zeros((3, 32, 32), np.uint8)
    red[:, :16], green[:, 16:], blue[31] = 200, 100, 50
    return bytes([label]) + red.tobytes() + green.tobytes() + blue.tobytes()


def write_cifar10(path: Path, cut: int = 0) -> None:
    """Two images in each batch; without its last `cut` bytes."""
    with tarfile.open(path, "w:gz") as archive:
        for i, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
            content = cifar_record(i) + cifar_record(9 - i)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content) - cut
            archive.addfile(member, io.BytesIO(content[: member.size]))


def write_dijets(path: Path) -> None:
    """Events with a gluon jet and an up-quark jet each."""
    rng = np.random.default_rng(0)
    columns = ["Energy", *jets.JET[:-1], "Flavor"]  # in another order than ours
    features = rng.normal(size=(N_EVENTS, 2, len(columns)))
    features[..., -1] = [21, 2]
    groups = {
        "jet_features": (features, columns),
        "event_features": (rng.normal(size=(N_EVENTS, 5)), jets.EVENT),
        "jet_eflow_variables": (rng.normal(size=(N_EVENTS, 2, 13)), [str(i) for i in range(13)]),
    }
    with h5py.File(path, "w") as file:
        for name, (data, labels) in groups.items():
            file[f"{name}/data"], file[f"{name}/labels"] = data, np.array(labels, "S")


def write_higgs(path: Path) -> None:
    """Events whose features are 1000 times the event plus the column, but for one that is not defined."""
    header = ["EventId", *higgs.COLUMNS, "Weight", "Label", "KaggleSet", "KaggleWeight"]
    lines = [",".join(header)]
    for event in range(N_EVENTS):
        values = [str(1000.0 * event + column) for column in range(len(higgs.COLUMNS))]
        values[4] = "-999.0" if event == 0 else values[4]
        lines.append(",".join([str(100 + event), *values, "0.1", "sb"[event % 2], "t", str(0.5 + event)]))
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def write_voxels(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for i, name in enumerate(("gamma", "pion")):
            file[name] = np.full((3, 24, 24, 24), 0.5 + i, np.float32)
