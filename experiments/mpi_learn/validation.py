"""Who validates: the first worker, all workers, or a thread of each worker. A GRU with five workers and a master."""

from __future__ import annotations

from pathlib import Path

from training_runs import HERE, run, spread

from mpi_learn.known_data import prepare

MODES = ("master", "distributed", "thread")
N_RANKS, N_RUNS, N_TRAINING, N_VALIDATION, N_EPOCHS = 6, 3, 8000, 5000, 4
"""With as many validation jets as this, validation by one worker takes about 30 % of the time on two cores."""


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


def measure(work: Path, *, smoke: bool) -> dict[str, list[float]]:
    """Seconds of the training loop: for each mode, and with a single validation at the end.

    The modes take turns, so that a change of the machine's load affects all of them.
    """
    n_training, n_validation = (300, 200) if smoke else (N_TRAINING, N_VALIDATION)
    n_ranks, n_runs, n_epochs = (2, 1, 2) if smoke else (N_RANKS, N_RUNS, N_EPOCHS)
    prepare("jets", work / "jets.h5", simulate=n_training, seed=1, particles=20)
    prepare("jets", work / "jets_validation.h5", simulate=n_validation, seed=2, particles=20)
    modes = [(mode, mode, 1) for mode in MODES] + ([] if smoke else [("at the end", "distributed", n_epochs)])
    asked = [
        (name, content(mode, work, seed, n_epochs, every)) for seed in range(n_runs) for name, mode, every in modes
    ]
    found: dict[str, list[float]] = {name: [] for name, *_ in modes}
    results = run([one for _, one in asked], n_ranks, work, warm_up=not smoke)
    for (name, _), result in zip(asked, results, strict=True):
        found[name].append(result["seconds"])
    return found


def table(found: dict[str, list[float]]) -> str:
    """As Markdown; the saving is that of the mean against `master`."""
    lines = ["| validation | runs | seconds | saving | published |", "|---|---|---|---|---|"]
    base = sum(found["master"]) / len(found["master"])
    published = {"thread": "23 %"}
    for name, seconds in found.items():
        saving = f"{100 * (1 - sum(seconds) / len(seconds) / base):.0f} %"
        lines.append(f"| {name} | {len(seconds)} | {spread(seconds)} | {saving} | {published.get(name, '')} |")
    return "\n".join(lines)
