"""Measures how long training steps wait for data that are streamed from HDF5 files, compared with data in memory.

    python experiments/data_wait/measure.py --data mnist.h5 [--turns 5] [--ranks 2] [--framework keras]

Trains the CNN conv32-pool-conv64-pool-dense250-10 on MNIST, with 128 samples per rank and step and one thread per rank:
from memory, and from files of two layouts, which are not in the cache of the system at the start. The three kinds of
samples take turns. Writes results.json and the table of README.md: the samples per second, and the waiting time, which
is the time that the timeline of a rank counts as data, as a fraction of the time of all steps. The first step, which
compiles, is left out; the wait before it has its own column.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py

from mpi_learn.settings.yaml_file import dumped
from mpi_learn.training.timing.tracing import DATA, read_traces

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_deviation, write_end
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


def trained(arguments: argparse.Namespace, file: Path, memory: str, folder: Path) -> dict[str, Any]:
    """Trains once.

    Returns:
        ``speed``: samples per second of the best epoch; and for each rank, ``waits``: its data wait as a fraction of
        its steps, and ``first_s``: the wait before its first step, in seconds.
    """
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
    return {"speed": max(speeds), "waits": waits, "first_s": first_s}


def table(turns: list[dict[str, Any]]) -> str:
    """The table of all turns, each a mapping from the kind of samples to its measurements."""
    rows = []
    for name in turns[0]:
        speeds = [turn[name]["speed"] / 1000 for turn in turns]
        waits = [100 * wait for turn in turns for wait in turn[name]["waits"]]
        first = [max(turn[name]["first_s"]) * 1000 for turn in turns]
        ratios = [turn[name]["speed"] / turn["in memory"]["speed"] for turn in turns]
        wait = f"{with_deviation(waits, 2)} %, at most {max(waits):.2f} %"
        before = f"{with_deviation(first, 0)} ms"
        rows.append([name, with_deviation(speeds, 2), with_deviation(ratios, 3), wait, before])
    return markdown_table(["samples", "1000 samples/s", "ratio in a turn", "data wait", "before the first step"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--framework", default="keras", choices=["keras", "torch"])
    parser.add_argument("--window-mb", type=int, default=8)
    arguments = parser.parse_args()
    turns = []
    with tempfile.TemporaryDirectory() as folder:
        files = layouts(arguments.data, Path(folder))
        runs = [("in memory", files["files as prepared"], "hold")]
        runs += [(f"streamed, {name}", file, "stream") for name, file in files.items()]
        for _ in range(arguments.turns):
            turns.append({name: trained(arguments, file, memory, Path(folder)) for name, file, memory in runs})
            (HERE / "results.json").write_text(json.dumps(turns, indent=1) + "\n")
            write_end(HERE / "README.md", table(turns))


main()
