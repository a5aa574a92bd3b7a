"""Validation by the first worker, by all workers, or in a thread. A GRU with a master and five workers or one."""

from __future__ import annotations

import statistics
import sys
from itertools import product
from pathlib import Path

from training_runs import HERE, run, spread

from mpi_learn.known_data import prepare

MODES = ("master", "distributed", "thread")
WORKERS = (5, 1)
N_RUNS, N_TRAINING, N_VALIDATION, N_EPOCHS = 5, {5: 30_000, 1: 15_000}, 75_000, 4
"""With these numbers of jets, validation by the first worker takes 32 to 50 % of the time on two cores."""


def content(mode: str, work: Path, seed: int, n_epochs: int, every: int = 1) -> dict:
    """The training.yaml of one run."""
    return {
        "model": f"{HERE}/models.py:gru",
        "data": {
            "train": [str(work / "jets.h5")],
            "validation": [str(work / "jets_validation.h5")],
            "features": "X",
            "labels": "y",
        },
        "loss": "sparse_categorical_crossentropy",
        "optimizer": {"name": "adam", "learning_rate": 0.001},
        "algorithm": {"name": "downpour"},
        "batch_size": 100,
        "epochs": n_epochs,
        "validation": {"mode": mode, "every": every},
        "seed": seed,
    }


def measure(work: Path, *, smoke: bool) -> dict[str, dict[str, list[float]]]:
    """Seconds of the training loop by number of workers and mode; "at the end": a single validation at the end.

    The short form compares `thread` with `master`.
    """
    workers, n_runs, n_epochs = ((1,), 1, 1) if smoke else (WORKERS, N_RUNS, N_EPOCHS)
    modes = [(mode, mode, 1) for mode in (("master", "thread") if smoke else MODES)]
    modes += [] if smoke else [("at the end", "distributed", n_epochs)]
    found: dict[str, dict[str, list[float]]] = {}
    for n_workers in workers:
        folder = work / f"{n_workers}_workers"
        folder.mkdir()
        n_training, n_validation = (300, 200) if smoke else (N_TRAINING[n_workers], N_VALIDATION)
        prepare("jets", folder / "jets.h5", simulate=n_training, seed=1, particles=20)
        prepare("jets", folder / "jets_validation.h5", simulate=n_validation, seed=2, particles=20)
        rows = found[str(n_workers)] = {name: [] for name, *_ in modes}
        # The modes take turns, so that a change of the machine's load affects all of them. Each training has its own
        # ranks, because TensorFlow's number of threads depends on the mode and is fixed when it starts.
        for seed, (name, mode, every) in product(range(n_runs), modes):
            asked = [content(mode, folder, seed, n_epochs, every)]
            (result,) = run(asked, n_workers + 1, folder, warm_up=not smoke)
            rows[name].append(result["seconds"])
            report = f"{n_workers} workers, {name}, run {seed + 1}: {result['seconds']:.1f} s"
            print(report, file=sys.stderr, flush=True)
    return found


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """As Markdown; the time of the validation and the saving are means over the seeds with their standard errors."""
    lines = [
        "| workers | validation | runs | seconds | time of the validation | saving | published |",
        "|---|---|---|---|---|---|---|",
    ]
    for n_workers, rows in found.items():
        for name, values in rows.items():
            savings = [1 - one / base for one, base in zip(values, rows["master"], strict=True)]
            saving = "" if name == "master" else percent(savings)
            fraction = percent(time_of_validation(rows)) if name == "master" and "at the end" in rows else ""
            published = "23 %, see above" if name == "thread" else ""
            lines.append(
                f"| {n_workers} | {name} | {len(values)} | {spread(values)} | {fraction} | {saving} | {published} |"
            )
    return "\n".join(lines)


def time_of_validation(rows: dict[str, list[float]]) -> list[float]:
    """The fraction of the time of `master` that its validations take, for each seed.

    "At the end" still has one validation by all workers, whose time follows from the difference to `distributed`.
    """
    fractions = []
    for master, distributed, at_end in zip(rows["master"], rows["distributed"], rows["at the end"], strict=True):
        one = (distributed - at_end) / (N_EPOCHS - 1)
        fractions.append(1 - (at_end - one) / master)
    return fractions


def percent(fractions: list[float]) -> str:
    """Mean and standard error, in percent."""
    error = statistics.stdev(fractions) / len(fractions) ** 0.5 if len(fractions) > 1 else 0.0
    return f"{100 * statistics.mean(fractions):.1f} ± {100 * error:.1f} %"
