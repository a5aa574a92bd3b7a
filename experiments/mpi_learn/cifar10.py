"""CIFAR-10 with 1, 2 and 4 workers: accuracy against epochs and time for each algorithm."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
from training_runs import HERE, run, spread

from mpi_learn.known_data import prepare

ALGORITHMS = ("allreduce", "downpour", "easgd", "gem")
WORKERS, N_RUNS, N_EPOCHS = (1, 2, 4), 3, 8
STYLES = ("-", "--", ":")
RATES_FILE = HERE / "cifar10_rates.json"
"""Written by `cifar10_rates.py`: the accuracy with each learning rate that was compared, by row of the table."""


def content(algorithm: str, data: dict, seed: int, n_epochs: int, rate: float) -> dict:
    """The training.yaml of one run with the keys `data` of its section ``data``."""
    schedule = {"name": "cosine"} | ({"scale": "sqrt", "warmup_epochs": 0.5} if algorithm == "allreduce" else {})
    return {
        "model": f"{HERE}/models.py:cnn",
        "data": {"features": "X", "labels": "y", **data},
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
        "optimizer": {"name": "adam", "learning_rate": rate, "schedule": schedule},
        "algorithm": {"name": algorithm},
        "batch_size": 32,
        "epochs": n_epochs,
        "seed": seed,
    }


def measure(work: Path, *, smoke: bool, source: Path | None = None) -> dict[str, list[dict]]:
    """Test accuracy after each epoch, and the seconds of the training, by algorithm and number of workers."""
    if smoke:
        _random_images(work)
    else:
        prepare("cifar10", work / "cifar10.h5", source)
    data = {"train": [str(work / "cifar10.h5")], "validation": [str(work / "cifar10_test.h5")]}
    rates, n_runs, n_epochs = ({"allreduce 2": 0.001}, 1, 1) if smoke else (best_rates(), N_RUNS, N_EPOCHS)
    found: dict[str, list[dict]] = {}
    for name, rate in rates.items():
        algorithm, workers = name.split()
        asked = [content(algorithm, data, seed, n_epochs, rate) for seed in range(n_runs)]
        found[name] = [
            {"rate": rate, "val_accuracy": one["history"]["val_accuracy"], "seconds": one["seconds"]}
            for one in run(asked, n_ranks(algorithm, int(workers)), work, warm_up=not smoke)
        ]
    return found


def n_ranks(algorithm: str, n_workers: int) -> int:
    """The workers, and a master for all algorithms but `allreduce`."""
    return n_workers + (algorithm != "allreduce")


def best_rates() -> dict[str, float]:
    """The learning rate with the highest accuracy on held-out training images, by row of the table."""
    compared = json.loads(RATES_FILE.read_text())
    return {name: float(max(accuracies, key=accuracies.get)) for name, accuracies in compared.items()}


def _random_images(work: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("cifar10.h5", "cifar10_test.h5"):
        with h5py.File(work / name, "w") as file:
            file["X"] = rng.integers(256, size=(64, 32, 32, 3), dtype=np.uint8)
            file["y"] = rng.integers(10, size=64, dtype=np.uint8)


def table(found: dict[str, list[dict]]) -> str:
    """As Markdown: mean and sample standard deviation over seeds."""
    lines = [
        "| algorithm | workers | learning rate | runs | test accuracy, half of the epochs | all | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        algorithm, workers = name.split()
        accuracies = np.array([one["val_accuracy"] for one in runs]) * 100
        half, last = accuracies[:, (accuracies.shape[1] - 1) // 2], accuracies[:, -1]
        cells = [f"{spread(half.tolist())} %", f"{spread(last.tolist())} %", spread([one["seconds"] for one in runs])]
        lines.append(f"| {algorithm} | {workers} | {runs[0]['rate']:g} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(found: dict[str, list[dict]], file: Path) -> None:
    """Mean accuracy against epochs and against time: a colour per algorithm, a line style per number of workers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for name, runs in found.items():
        mean = np.mean([one["val_accuracy"] for one in runs], 0)
        epochs = np.arange(1, len(mean) + 1)
        algorithm, workers = name.split()
        line = {"color": f"C{ALGORITHMS.index(algorithm)}", "linestyle": STYLES[WORKERS.index(int(workers))]}
        axes[0].plot(epochs, 100 * mean, label=f"{name} worker{'' if workers == '1' else 's'}", **line)
        axes[1].plot(epochs / len(mean) * np.mean([one["seconds"] for one in runs]), 100 * mean, **line)
    axes[0].set(xlabel="epochs", ylabel="test accuracy / %")
    axes[1].set(xlabel="seconds")
    figure.legend(loc="outside right center", fontsize="small")
    figure.savefig(file, dpi=90)
