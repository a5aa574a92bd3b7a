"""The loss of each algorithm with each compression of its messages; writes `results.json` and the table of the README.

    mpi-learn prepare mnist --to mnist.h5
    python experiments/compression/compression.py --data mnist.h5
    python experiments/compression/compression.py --print
    python experiments/compression/compression.py --smoke    # random images, writes no file

The four ranks are threads of one process, which train a perceptron in NumPy with the algorithms of the package.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import h5py
import numpy as np
from pydantic import TypeAdapter

from mpi_learn.algorithms.algorithm import AlgorithmSetup
from mpi_learn.algorithms.configuration import AlgorithmConfiguration
from mpi_learn.algorithms.make_algorithm import make_algorithm
from mpi_learn.algorithms.rank_layout import rank_layout_of
from mpi_learn.compression.encodings import ENCODINGS
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import Adam
from mpi_learn.optimizers.optimizer import make_optimizer
from mpi_learn.testing.thread_ranks import run_ranks

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_deviation, write_end

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
N_RANKS, N_TRAINING, BATCH, EPOCHS = 4, 10_240, 32, 4
SEEDS = range(5)
COMPRESSIONS = ("none", "bfloat16", "float16", "int8", "2-bit")
ALGORITHMS = {
    "allreduce": ({"name": "allreduce"}, 0.003),
    "downpour": ({"name": "downpour"}, 0.001),
    "gem": ({"name": "gem"}, 0.0005),
    "easgd": ({"name": "easgd", "sync_every": 4}, 0.002),
    "clusters": ({"name": "clusters", "size": 1, "exchange_every": 10}, 0.002),
    "clusters, outer": ({"name": "clusters", "size": 1, "exchange_every": 15, "outer": {"momentum": 0.7}}, 0.003),
}
"""Name -> the section ``algorithm:``, and the learning rate of Adam."""
LAYOUT = FlatLayout(((784, 64), (64,), (64, 10), (10,)))


class Perceptron:
    """784-64-10 with ReLU and the cross-entropy; all arrays are views of `weights`."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.weights = np.zeros(LAYOUT.size, np.float32)
        for array in LAYOUT.views(self.weights):
            if array.ndim == 2:
                array[:] = rng.normal(size=array.shape) * np.sqrt(2 / array.shape[0])

    def loss(self, x: np.ndarray, y: np.ndarray, gradient: np.ndarray | None = None) -> tuple[float, float]:
        """Mean loss and accuracy; writes the gradient of the sum of the losses."""
        first, first_bias, last, last_bias = LAYOUT.views(self.weights)
        hidden = np.maximum(x @ first + first_bias, 0)
        logits = hidden @ last + last_bias
        logits -= logits.max(1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        if gradient is not None:
            of_logits = np.exp(log_p)
            of_logits[np.arange(len(y)), y] -= 1
            of_hidden = (of_logits @ last.T) * (hidden > 0)
            parts = x.T @ of_hidden, of_hidden.sum(0), hidden.T @ of_logits, of_logits.sum(0)
            for array, part in zip(LAYOUT.views(gradient), parts, strict=True):
                array[:] = part
        return -log_p[np.arange(len(y)), y].mean(), (logits.argmax(1) == y).mean()


def trained(algorithm: dict, rate: float, seed: int, images: dict[str, np.ndarray], epochs: int) -> tuple[float, float]:
    """Validation loss and accuracy of a training."""
    options = TypeAdapter(AlgorithmConfiguration).validate_python(algorithm)
    rank_layout = rank_layout_of(options, N_RANKS)
    x, y, workers = images["x"], images["y"], rank_layout.workers
    n_steps = len(x) // BATCH // len(workers)

    def run(comm):
        model = Perceptron(seed)

        def optimizer(wanted, updates):
            return make_optimizer(wanted or Adam(learning_rate=rate), LAYOUT)

        made = make_algorithm(options, AlgorithmSetup(
            comm, rank_layout, model.weights, LAYOUT, n_sums=5, n_steps=n_steps, learning_rate=rate,
            make_optimizer=optimizer,
        ))  # fmt: skip

        def steps(order):
            for places in order:
                step = np.zeros(LAYOUT.size + 5, np.float32)
                model.loss(x[places], y[places], step[: LAYOUT.size])
                step[LAYOUT.size :] = len(places), 0, len(places), 0, 0
                time.sleep(0)  # the other ranks make a step too
                yield step

        for epoch in range(epochs):
            order = np.random.default_rng([seed, epoch]).permutation(len(x))[: n_steps * len(workers) * BATCH]
            order = order.reshape(len(workers), n_steps, BATCH)
            made.run(steps(order[workers.index(comm.rank)] if comm.rank in workers else []))
            made.synchronize()
        made.finalize()
        made.close()
        return model.loss(images["x_val"], images["y_val"]) if comm.rank == 0 else None

    return run_ranks(N_RANKS, run, timeout_s=600)[0]


def images_of(data: Path | None) -> dict[str, np.ndarray]:
    """Images of MNIST, 0 to 1; without `data` random ones."""
    if data is None:
        x, y = np.random.default_rng(0).random((512, 784), np.float32), np.arange(512) % 10
        return {"x": x, "y": y, "x_val": x, "y_val": y}
    found = {}
    for suffix, file in (("", data), ("_val", data.with_name(f"{data.stem}_test{data.suffix}"))):
        with h5py.File(file) as images:
            found["x" + suffix] = images["X"][:N_TRAINING].reshape(-1, 784).astype(np.float32) / 255
            found["y" + suffix] = images["y"][:N_TRAINING].astype(int)
    return found


def table(results: dict[str, dict[str, list[list[float]]]]) -> str:
    """Mean and sample standard deviation over the seeds, and the mean difference from float32 with the same seed."""
    rows, whole = [], 4 * LAYOUT.size
    for name, by_compression in results.items():
        exact = [loss for loss, _ in by_compression["none"]]
        for compression, of_seeds in by_compression.items():
            n_bytes = whole if compression == "none" else ENCODINGS[compression].n_bytes(LAYOUT.size)
            losses = [loss for loss, _ in of_seeds]
            differences = [loss - other for loss, other in zip(losses, exact, strict=True)]
            error = f" ± {np.std(differences, ddof=1) / len(losses) ** 0.5:.4f}" if len(losses) > 1 else ""
            mean = f"{np.mean(differences):+.4f}{error}"
            accuracy = with_deviation([100 * one for _, one in of_seeds], 2)
            cells = [name, compression, f"{whole / n_bytes:.1f}", len(losses), with_deviation(losses, 4)]
            rows.append([*cells, "" if compression == "none" else mean, accuracy])
    head = ["algorithm", "compression", "times fewer bytes", "runs", "validation loss", "difference", "accuracy, %"]
    return markdown_table(head, rows)


def main() -> None:
    """Trains, and writes the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() and not arguments.smoke else {}
    if not arguments.print:
        images = images_of(arguments.data)
        for seed in range(1) if arguments.smoke else SEEDS:  # a seed trains with everything before the next one
            for name, (options, rate) in ALGORITHMS.items():
                for compression in COMPRESSIONS:
                    of_seeds = results.setdefault(name, {}).setdefault(compression, [])
                    if len(of_seeds) > seed:
                        continue
                    section = options | {"compression": compression}
                    found = trained(section, rate, seed, images, 1 if arguments.smoke else EPOCHS)
                    of_seeds.append([*map(float, found)])
            if not arguments.smoke:
                RESULTS.write_text(json.dumps(results, indent=1))
    print(table(results))
    if not arguments.smoke:
        write_end(HERE / "README.md", table(results))


if __name__ == "__main__":
    main()
