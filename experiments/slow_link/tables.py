"""The README's tables and its picture, from the results."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
from runs import N_TRAINING

HERE = Path(__file__).resolve().parent
MARK = "<!-- table -->"
OURS = (
    "clusters",
    "clusters, batch 16",
    "clusters, batch 16, outer",
    "clusters, batch 16, outer every 5",
)
OTHERS = {"downpour": 10.0, "allreduce": 5.0}
"""Algorithm -> how many times faster the other algorithms should be."""
LOW_RANK = ("low rank 32", "low rank 28, 3 exact steps", "low rank 64")
COSINE = ", rate 0.006, cosine"
TARGETS = (
    *product((*OURS, *LOW_RANK), OTHERS.items()),
    *((f"{name}{COSINE}", (f"allreduce{COSINE}", OTHERS["allreduce"])) for name in LOW_RANK),
)
"""Rows that are compared, with the row that they are compared with and how many times faster they should be."""
WITHIN = 1.02
"""The largest ratio of the validation losses that counts as equal."""
COMPARED = (
    *OURS, "clusters, every step", "clusters, rate 0.004", "clusters, batch 8",
    "clusters, batch 8, rate 0.001", "clusters, batch 16, 4 epochs",
    *LOW_RANK, *(f"{name}{COSINE}" for name in LOW_RANK),
    *OTHERS, "allreduce, rate 0.002", "allreduce, rate 0.004", f"allreduce{COSINE}",
)  # fmt: skip
SIZES = {1: "clusters of 1", 2: "clusters", 4: "clusters of 4", 8: "clusters of 8"}
HOSTS = {1: "8 hosts", 2: "clusters", 4: "2 hosts", 8: "1 host"}

Results = dict[str, list[dict]]
"""Name of a row -> ``samples_per_second`` and ``history`` of each run; rows without results are left out."""


def show(results: Results) -> None:
    """Writes tables and picture."""
    readme = HERE / "README.md"
    before, _, _ = readme.read_text().partition(MARK)
    readme.write_text("\n\n".join([f"{before}{MARK}", compared(results), verdict(results), swept(results)]) + "\n")
    if all(name in results for name in ("clusters", *OTHERS)):
        draw(results)


def compared(results: Results) -> str:
    """The algorithms against each other."""
    lines = [
        "| algorithm | runs | samples/s | validation loss after each epoch of 10,240 samples | accuracy | seconds |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for name in filter(results.get, COMPARED):
        losses = " · ".join(with_spread(column) for column in histories(results[name], "val_loss").T)
        accuracy = f"{100 * histories(results[name], 'val_accuracy')[:, -1].mean():.1f} %"
        cells = [name, str(len(results[name])), f"{speed(results, name):,.0f}", losses, accuracy]
        lines.append("| " + " | ".join([*cells, f"{seconds(results, name)[-1]:,.0f}"]) + " |")
    return "\n".join(lines)


def verdict(results: Results) -> str:
    """Whether the targets are reached."""
    lines = ["| | against | samples/s | target | validation loss |", "|---|---|---|---|---|"]
    for ours, (name, target) in TARGETS:
        if ours in results and name in results:
            times = speed(results, ours) / speed(results, name)
            own, other = (histories(results[one], "val_loss")[:, -1].mean() for one in (ours, name))
            reached = f"{times:.1f}× | ≥ {target:.0f}×: {'reached' if times >= target else 'missed'}"
            ratio = f"{100 * (own / other - 1):+.0f} %: {'reached' if own <= WITHIN * other else 'missed'}"
            lines.append(f"| {ours} | {name} | {reached} | {own:.3f} against {other:.3f}, {ratio} |")
    return "\n".join(lines)


def swept(results: Results) -> str:
    """Over the size of the clusters: on four hosts of two ranks, and with each cluster a host."""
    lines = ["| ranks per cluster | samples/s on 4 hosts of 2 | loss | samples/s, each cluster a host | loss |"]
    lines.append("|---|---|---|---|---|")
    for size, name in SIZES.items():
        rows = [one if one in results else None for one in (name, HOSTS[size])]
        cells = [cell for row in rows for cell in (speed_and_loss(results, row) if row is not None else "––")]
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def histories(runs: list[dict], metric: str) -> np.ndarray:
    """(runs, epochs)."""
    return np.array([run["history"][metric] for run in runs])


def speed(results: Results, name: str) -> float:
    """Samples per second of the fastest run with this algorithm and batch size, because other programs ran beside."""
    same = [run for other, runs in results.items() if _kind(other) == _kind(name) for run in runs]
    return max(run["samples_per_second"] for run in same)


def _kind(name: str) -> str:
    """The name without the learning rate, which does not change the computations."""
    return name.partition(", rate")[0]


def seconds(results: Results, name: str) -> np.ndarray:
    """Time of training until the end of each epoch."""
    n_epochs = histories(results[name], "val_loss").shape[1]
    return N_TRAINING / speed(results, name) * np.arange(1, n_epochs + 1)


def speed_and_loss(results: Results, name: str) -> tuple[str, str]:
    """Samples per second, and the mean validation loss after the last epoch."""
    return f"{speed(results, name):,.0f}", f"{histories(results[name], 'val_loss')[:, -1].mean():.3f}"


def with_spread(values: np.ndarray) -> str:
    """Mean and standard deviation over the runs."""
    spread = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{spread}"


def draw(results: Results) -> None:
    """Loss against time, and speed against the size of the clusters."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for name in filter(results.get, COMPARED):
        losses = histories(results[name], "val_loss")
        spread = losses.std(0, ddof=1) if len(losses) > 1 else None
        left.errorbar(seconds(results, name), losses.mean(0), spread, marker="o", label=name)
    left.set(xscale="log", xlabel="seconds of training", ylabel="validation loss")
    left.legend(fontsize=7)
    for label, names in (("4 hosts of 2 ranks", SIZES), ("each cluster a host", HOSTS)):
        points = [(size, speed(results, name)) for size, name in names.items() if name in results]
        right.plot(*zip(*points, strict=True), "o-", label=label)
    right.axhline(speed(results, "allreduce"), color="grey", ls="--", label="allreduce")
    right.axhline(speed(results, "downpour"), color="grey", ls=":", label="downpour")
    right.set(yscale="log", xlabel="ranks per cluster", ylabel="samples/s", xticks=list(SIZES))
    right.legend()
    figure.tight_layout()
    figure.savefig(HERE / "slow_link.png", dpi=110)
    plt.close(figure)
