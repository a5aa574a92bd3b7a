"""The loss of models in stages whose activations are sent with fewer bits per element.

mpi-learn prepare mnist --to mnist.h5
python experiments/pipeline/small_messages.py --data mnist.h5
python experiments/pipeline/small_messages.py --smoke    # random images
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "common"))

from markdown_tables import markdown_table, with_deviation  # noqa: E402
from run_ranks import run_ranks  # noqa: E402

COMPRESSIONS = ("none", "bfloat16", "float16", "int8", "2-bit")
"""The last one is no value of the key."""
CASES = {"perceptron": (2, 4), "images": (2,)}
"""Function in `networks` -> numbers of stages."""
N_TRAINING, N_VALIDATION, BATCH = 5_120, 2_000, 64


def images(data: Path | None) -> tuple[Any, ...]:
    """Images of MNIST, 0 to 1, and their labels: to train with, and to validate; without `data` random ones."""
    if data is None:
        x, y = np.random.default_rng(0).random((256, 784), np.float32), np.arange(256) % 10
        return x, y, x, y
    found: list[np.ndarray] = []
    for file, n in ((data, N_TRAINING), (data.with_name(f"{data.stem}_test{data.suffix}"), N_VALIDATION)):
        with h5py.File(file) as opened:
            found += [opened["X"][:n].reshape(-1, 784).astype(np.float32) / 255, opened["y"][:n]]
    return tuple(found)


def train_all(wanted: dict[str, Any]) -> None:
    """On each rank: all trainings of one model; rank 0 writes ``result.json``."""
    import torch
    from mpi4py import MPI

    from mpi_learn import train
    from mpi_learn.compression.encodings import ENCODINGS
    from mpi_learn.data.samples.batches import Dataset
    from mpi_learn.data.samples.stored_samples import Samples
    from mpi_learn.models.pipeline import model

    torch.set_num_threads(1)
    x, y, x_val, y_val = images(Path(wanted["data"]) if wanted["data"] else None)
    samples, validation = Samples((x,), (y.astype(np.int64),)), Samples((x_val,), (y_val.astype(np.int64),))
    dataset = Dataset(samples, validation, np.arange(len(x)), np.arange(len(x_val)))
    found: dict[str, list[Any]] = {}
    for seed in range(wanted["seeds"]):
        for compression in COMPRESSIONS:
            key = "int8" if compression == "2-bit" else compression
            model.ENCODINGS = {key: ENCODINGS[compression]} if compression != "none" else {}
            configuration = {
                "model": f"{HERE / 'networks.py'}:{wanted['model']}",
                "loss": "cross_entropy",
                "metrics": ["accuracy"],
                "optimizer": {"name": "adam", "learning_rate": 0.001},
                "batch_size": BATCH,
                "epochs": wanted["epochs"],
                "validation": {"every": wanted["epochs"]},
                "seed": seed,
                "pipeline": {"stages": wanted["stages"], "micro_batches": 4, "compression": key},
            }
            history = train(configuration, MPI.COMM_WORLD, data=dataset).history
            of_run = history["loss"][-1], history["val_loss"][-1], history["val_accuracy"][-1]
            found.setdefault(compression, []).append(of_run)
    if MPI.COMM_WORLD.rank == 0:
        Path("result.json").write_text(json.dumps(found))


def rows(name: str, stages: int, found: dict[str, list[list[float]]]) -> list[tuple[Any, ...]]:
    """Mean and deviation over the seeds, and the mean difference from float32 with the same seed."""
    exact = np.array(found["none"])[:, 1]
    made = []
    for compression, of_seeds in found.items():
        losses, validated, accuracies = np.array(of_seeds).T
        difference = validated - exact
        error = f" ± {difference.std(ddof=1) / len(difference) ** 0.5:.4f}" if len(difference) > 1 else ""
        shown = "" if compression == "none" else f"{difference.mean():+.4f}{error}"
        made.append((name, stages, compression, len(of_seeds), with_deviation(list(losses), 4),
                     with_deviation(list(validated), 4), shown, with_deviation(list(100 * accuracies), 2)))  # fmt: skip
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the file of `mpi-learn prepare mnist`")
    parser.add_argument("--smoke", action="store_true", help="a short form")
    parser.add_argument("--ranks", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ranks:
        train_all(json.loads(options.ranks))
        return
    made = []
    for model, all_stages in CASES.items():
        for stages in all_stages:
            data = None if options.smoke else str(options.data.resolve())
            wanted = {"model": model, "stages": stages, "data": data}
            wanted |= {"seeds": 1, "epochs": 1} if options.smoke else {"seeds": 5, "epochs": 2}
            with tempfile.TemporaryDirectory() as folder:
                run_ranks(stages, HERE / "small_messages.py", "--ranks", json.dumps(wanted), folder=Path(folder))
                made += rows(model, stages, json.loads(Path(folder, "result.json").read_text()))
    titles = ("model", "stages", "compression", "runs", "training loss", "validation loss", "difference", "accuracy, %")
    print(markdown_table(titles, made))


if __name__ == "__main__":
    main()
