"""The number of input files: from one per worker to one per batch. The GRU with five workers and a master."""

from __future__ import annotations

from pathlib import Path

import h5py
from training_runs import run, spread
from validation import N_RUNS, N_TRAINING, content

from mpi_learn.known_data import prepare

BATCH_SIZE, N_RANKS, N_EPOCHS = 100, 6, 3


def cut(source: Path, folder: Path, n_files: int) -> None:
    """Writes the samples of a file to `n_files` files of about equal size."""
    folder.mkdir()
    with h5py.File(source) as file:
        arrays = {name: file[name][:] for name in ("X", "y")}
    n = len(arrays["y"])
    for i in range(n_files):
        with h5py.File(folder / f"part_{i:04d}.h5", "w") as part:
            for name, values in arrays.items():
                part[name] = values[i * n // n_files : (i + 1) * n // n_files]


def measure(work: Path, *, smoke: bool) -> dict[str, list[float]]:
    """Samples per second for each number of files; the numbers take turns. The short form has a file per batch."""
    n_training = 400 if smoke else N_TRAINING[5]
    n_ranks, n_runs, n_epochs = (2, 1, 1) if smoke else (N_RANKS, N_RUNS, N_EPOCHS)
    prepare("jets", work / "jets.h5", simulate=n_training, seed=1, particles=20)
    prepare("jets", work / "jets_validation.h5", simulate=100, seed=2, particles=20)
    n_workers, n_batches = n_ranks - 1, n_training // BATCH_SIZE
    counts = [n_batches] if smoke else sorted({n_workers, min(4 * n_workers, n_batches), n_batches})
    for n_files in counts:
        cut(work / "jets.h5", work / f"files_{n_files}", n_files)
    asked = []
    for seed in range(n_runs):
        for n_files in counts:
            one = content("distributed", work, seed, n_epochs, every=n_epochs)
            one["data"]["train"] = [str(work / f"files_{n_files}" / "*.h5")]
            asked.append((n_files, one))
    found: dict[str, list[float]] = {str(n_files): [] for n_files in counts}
    results = run([one for _, one in asked], n_ranks, work, warm_up=not smoke)
    for (n_files, _), result in zip(asked, results, strict=True):
        found[str(n_files)].append(result["samples_per_second"])
    return found


def table(found: dict[str, list[float]]) -> str:
    """As Markdown; the overhead is the loss of speed against one file per worker."""
    lines = ["| files | runs | samples/s | overhead | published |", "|---|---|---|---|---|"]
    means = {name: sum(values) / len(values) for name, values in found.items()}
    base = next(iter(means.values()))
    for i, (name, values) in enumerate(found.items()):
        published = "under 10 %" if i else ""
        overhead = f"{100 * (base / means[name] - 1):.0f} %"
        lines.append(f"| {name} | {len(values)} | {spread(values, 0)} | {overhead} | {published} |")
    return "\n".join(lines)
