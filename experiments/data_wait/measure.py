"""Measures how long training steps wait for data that are streamed from HDF5 files, compared with data in memory.

    python experiments/data_wait/measure.py --data mnist.h5 [--ranks 2] [--framework keras] [--window-mb 8]

Trains the CNN conv32-pool-conv64-pool-dense250-10 on MNIST, with 128 samples per rank and step and one thread per rank:
from memory, and from files of two layouts, which are not in the cache of the system at the start. Prints a
Markdown table with the samples per second and the waiting time of each rank: the time that its timeline counts as data,
as a fraction of the time of all steps. The first step, which compiles, is left out; the wait before it has its own
column.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import h5py

from mpi_learn.settings.yaml_file import dumped
from mpi_learn.training.tracing import DATA, read_traces

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from run_ranks import run_ranks

HERE = Path(__file__).resolve().parent
MODELS = HERE.parent / "training_speed"
ONE_THREAD = {f"{name}_THREADS": "1" for name in ("OMP_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP")}


def layouts(source: Path, folder: Path) -> dict[str, Path]:
    """The same samples, stored in two ways."""
    compressed = {"chunks": (256, 28, 28), "compression": "gzip", "compression_opts": 4}
    options = {"files as prepared": {}, "gzip, chunks of 256": compressed}
    files = {}
    with h5py.File(source) as opened:
        x, y = opened["X"][:].reshape(-1, 28, 28), opened["y"][:]
    for name, option in options.items():
        files[name] = folder / f"{name.replace(' ', '_')}.h5"
        with h5py.File(files[name], "w") as file:
            file.create_dataset("X", data=x, **option)
            file["y"] = y
    return files


def trained(
    arguments: argparse.Namespace, file: Path, memory: str, folder: Path
) -> tuple[float, list[float], list[float]]:
    """Samples per second of the best epoch; for each rank its data wait as a part of its steps and the first in s."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())  # pages that are not written yet would stay in the cache
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    training = folder / "training.yaml"
    content = {
        "model": f"{MODELS / arguments.framework}_models.py:cnn",
        "loss": "sparse_categorical_crossentropy" if arguments.framework == "keras" else "cross_entropy",
        "data": {"train": [str(file)], "features": "X", "labels": "y", "memory": memory}
        | {"window_bytes": arguments.window_mb * 2**20},
        "batch_size": 128,
        "epochs": arguments.epochs,
        "trace": "traces",
    }
    training.write_text(dumped(content))
    run_ranks(arguments.ranks, HERE / "one.py", training, folder=folder, variables=ONE_THREAD)
    speeds = json.loads((folder / "speeds.json").read_text())
    waits, first_s = [], []
    for trace in read_traces(folder / "traces"):
        events = [event for event in trace.events if event[0] in ("batch", "gradient", "exchange")]
        first_s.append(next(event[3] for event in events if event[1] == DATA) / 1e9)
        events = events[3:]
        waits.append(sum(event[3] for event in events if event[1] == DATA) / sum(event[3] for event in events))
    return max(speeds), waits, first_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--framework", default="keras", choices=["keras", "torch"])
    parser.add_argument("--window-mb", type=int, default=8)
    arguments = parser.parse_args()
    print("| samples | samples/s, best epoch | data wait by rank | before the first step |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        files = layouts(arguments.data, Path(folder))
        runs = [("in memory", files["files as prepared"], "hold")]
        runs += [(f"streamed, {name}", file, "stream") for name, file in files.items()]
        for name, file, memory in runs:
            speed, waits, first_s = trained(arguments, file, memory, Path(folder))
            shares = ", ".join(f"{100 * wait:.2f} %" for wait in waits)
            print(f"| {name} | {speed:,.0f} | {shares} | {1000 * max(first_s):.0f} ms |", flush=True)


main()
