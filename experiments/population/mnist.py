"""Population-based training against the best constant learning rate of a grid, on a part of MNIST.

``python mnist.py --from FOLDER`` takes MNIST's four idx files from a folder (without: downloads them), and runs for
each seed both searches as a user would, with ``mpi-opt search``. Eight networks, ten epochs each, either way.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import yaml

from mpi_learn.prepare import prepare

N_NETWORKS, N_EPOCHS = 8, 10
N_TRAINING, N_VALIDATION = 2000, 3000
LOW, HIGH = 2e-3, 1.0
RATES = np.geomspace(LOW, HIGH, N_NETWORKS)


def configuration(name: str, search: dict, epochs: int) -> dict:
    """A space.yaml that searches the learning rate of plain stochastic gradient descent."""
    return {
        "study": name,
        "store": f"sqlite:///{name}.db",
        "figure_of_merit": "val_loss",
        "space": {"rate": {"type": "real", "low": LOW, "high": HIGH, "prior": "log-uniform"}},
        "search": search,
        "training": {
            "model": f"{Path(__file__).with_name('model.py')}:build_model",
            "data": {"train": ["training.h5"], "validation": ["validation.h5"], "features": "X", "labels": "y"},
            "loss": "sparse_categorical_crossentropy",
            "metrics": ["accuracy"],
            "optimizer": {"name": "sgd", "learning_rate": "$rate"},
            "batch_size": 16,
            "epochs": epochs,
        },
    }


def run(content: dict, folder: Path) -> None:
    """Runs a search in `folder`, to its end."""
    path = folder / f"{content['study']}.yaml"
    path.write_text(yaml.safe_dump(content))
    subprocess.run([sys.executable, "-m", "mpi_opt", "search", path.name], cwd=folder, check=True, capture_output=True)


def ask(folder: Path, name: str, sql: str) -> list[tuple]:
    """Rows of a study's store."""
    with sqlite3.connect(folder / f"{name}.db") as database:
        return database.execute(sql).fetchall()


def of_grid(folder: Path, seed: int) -> tuple[float, float, float]:
    """The best network's loss after any epoch, that after the last one, and the rate of the latter."""
    name = f"grid{seed}"
    search = {"strategy": "grid", "trials": N_NETWORKS, "seed": seed, "options": {"points": N_NETWORKS}}
    run(configuration(name, search, N_EPOCHS), folder)
    (any_epoch,) = ask(folder, name, "SELECT min(value) FROM metrics WHERE name = 'val_loss'")[0]
    last, rate = ask(folder, name, f"SELECT figure_of_merit, rate FROM study_{name} ORDER BY figure_of_merit")[0]
    return any_epoch, last, rate


def of_population(folder: Path, seed: int) -> tuple[float, float, list[float]]:
    """The best network's loss after any epoch, that of the best one after the last, and its learning rates."""
    name = f"population{seed}"
    options = {"population": N_NETWORKS, "max_budget": N_EPOCHS}
    search = {"strategy": "population", "trials": N_NETWORKS * N_EPOCHS, "seed": seed, "options": options}
    run(configuration(name, search, N_EPOCHS), folder)
    trials = {row[0]: row[1:] for row in ask(folder, name, f"SELECT number, figure_of_merit, rate FROM study_{name}")}
    before = dict(ask(folder, name, "SELECT number, resume_from FROM trials"))
    last = [number for number, budget in ask(folder, name, "SELECT number, budget FROM trials") if budget == N_EPOCHS]
    number = winner = min(last, key=lambda one: trials[one][0])
    rates = []
    while number is not None:
        rates.append(trials[number][1])
        number = before[number]
    return min(loss for loss, _ in trials.values()), trials[winner][0], rates[::-1]


def write_data(folder: Path, source: Path | None) -> None:
    """A part of the training images, and another one to validate with."""
    prepare("mnist", folder / "mnist.h5", source)
    with h5py.File(folder / "mnist.h5") as whole:
        for name, part in (
            ("training", slice(N_TRAINING)),
            ("validation", slice(N_TRAINING, N_TRAINING + N_VALIDATION)),
        ):
            with h5py.File(folder / f"{name}.h5", "w") as file:
                for key in ("X", "y"):
                    file[key] = whole[key][part]


def main() -> None:
    """Prints a line for each seed, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path, help="the folder of MNIST's idx files")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print("| seed | best rate | loss at the end | at any time | population: at the end | at any time | its rates |")
    print("|---|---|---|---|---|---|---|", flush=True)
    losses = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, given.source and given.source.resolve())
        for seed in range(given.seeds):
            any_epoch, last, rate = of_grid(folder, seed)
            our_any, our_last, rates = of_population(folder, seed)
            losses.append((last, any_epoch, our_last, our_any))
            shown = " ".join(f"{one:.2g}" for one in rates)
            cells = [seed, f"{rate:.2g}", *(f"{loss:.4f}" for loss in losses[-1]), shown]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    middle = (f"{statistics.median(column):.4f}" for column in zip(*losses, strict=True))
    print(f"| median | | {' | '.join(middle)} | |")


if __name__ == "__main__":
    main()
