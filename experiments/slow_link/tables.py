"""The README's tables and its picture, from the results."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from runs import N_TRAINING
from time_to_target import TARGET, seconds_to_target

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, write_end

HERE = Path(__file__).resolve().parent
COSINE = ", cosine"
LOW_RANK = ("low rank 32", "low rank 28, 3 exact steps")
CLUSTERS = (
    "clusters",
    "clusters, batch 16",
    "clusters, batch 16, outer",
    "clusters, batch 16, outer every 5",
)
COMPARED = (
    "downpour",
    *(f"{name}{schedule}" for schedule in ("", COSINE) for name in ("allreduce", *LOW_RANK)),
    *CLUSTERS,
    "clusters, batch 16, 4 epochs",
    "clusters, best of the search",
)
"""The rows of the first table."""
TARGETS = (
    *((name, other) for name in (*LOW_RANK, *CLUSTERS) for other in ("downpour", "allreduce")),
    *((f"{name}{COSINE}", f"allreduce{COSINE}") for name in LOW_RANK),
)
"""Pairs of rows that are compared in the second table."""
MUON_TARGETS = tuple(
    (f"clusters, {name}", other)
    for name in ("Muon, batch 64", "Muon of 3 iterations, batch 64", "Muon of 3 iterations, batch 128")
    for other in ("allreduce", "allreduce, Muon, cosine", "allreduce, Muon, batch 64, cosine")
)
"""Pairs of rows of the measurement with Muon."""
FASTER = {"downpour": 10.0, "allreduce": 5.0}
"""Algorithm -> how many times its speed is the target."""
WITHIN = 1.02
"""The largest ratio of the validation losses that counts as equal."""
SIZES = {1: "clusters of 1", 2: "clusters", 4: "clusters of 4"}
HOSTS = {1: "8 hosts", 2: "clusters", 4: "2 hosts"}

Results = dict[str, list[dict]]
"""Name of a row -> ``samples_per_second`` and ``history`` of each run; rows without results are left out."""


def show(results: Results, of_muon: Results) -> None:
    """Writes tables and picture.

    Args:
        of_muon: The measurement with Muon, of another day.
    """
    tables = [compared(results, COMPARED), targets(results, TARGETS), sizes(results)]
    tables += [compared(of_muon, of_muon), targets(of_muon, MUON_TARGETS)]
    write_end(HERE / "README.md", "\n\n".join(tables))
    if all(name in results for name in ("clusters", *FASTER)):
        draw(results)


def compared(results: Results, names: Iterable[str]) -> str:
    """The algorithms against each other."""
    head = ["algorithm", "runs", "samples/s", "validation loss after each epoch of 10,240 samples", "accuracy, %"]
    head += ["seconds", f"seconds until the loss is {TARGET}"]
    rows = []
    for name in filter(results.get, names):
        runs = results[name]
        losses = " · ".join(with_spread(column) for column in histories(runs, "val_loss").T)
        accuracies = 100 * histories(runs, "val_accuracy")[:, -1]
        seconds = [epoch_s(run) * len(run["history"]["val_loss"]) for run in runs]
        until = [seconds_until_target(run) for run in runs]
        cells = [name, len(runs), with_spread(speeds(runs), 0), losses, with_spread(accuracies, 1)]
        rows.append([*cells, with_spread(seconds, 0), with_spread(until, 1)])
    return markdown_table(head, rows)


def targets(results: Results, pairs: Iterable[tuple[str, str]]) -> str:
    """Whether the targets are reached."""
    rows = []
    for name, other in pairs:
        if name in results and other in results:
            times = np.mean(speeds(results[name])) / np.mean(speeds(results[other]))
            target = FASTER[other.split(",")[0]]
            faster = f"≥ {target:.0f}×: {'reached' if times >= target else 'missed'}"
            losses = [histories(results[one], "val_loss")[:, -1].mean() for one in (name, other)]
            ratio = losses[0] / losses[1]
            equal = f"{100 * (ratio - 1):+.1f} %: {'reached' if ratio <= WITHIN else 'missed'}"
            loss = f"{losses[0]:.3f} against {losses[1]:.3f}, {equal}"
            rows.append([name, other, f"{times:.1f}×", faster, loss])
    return markdown_table(["algorithm", "against", "samples/s", "target", "validation loss"], rows)


def sizes(results: Results) -> str:
    """Over the size of the clusters: on four hosts of two ranks, and with each cluster a host."""
    head = ["ranks per cluster", "runs", "samples/s on 4 hosts of 2", "loss", "samples/s, each cluster a host", "loss"]
    rows = []
    for size, name in SIZES.items():
        if name in results and HOSTS[size] in results:
            row = [size, len(results[name])]
            for runs in (results[name], results[HOSTS[size]]):
                row += [with_spread(speeds(runs), 0), with_spread(histories(runs, "val_loss")[:, -1])]
            rows.append(row)
    return markdown_table(head, rows)


def histories(runs: list[dict], metric: str) -> np.ndarray:
    """(runs, epochs)."""
    return np.array([run["history"][metric] for run in runs])


def speeds(runs: list[dict]) -> np.ndarray:
    """Samples per second of each run."""
    return np.array([run["samples_per_second"] for run in runs])


def epoch_s(run: dict) -> float:
    """Seconds of training per epoch."""
    return N_TRAINING / run["samples_per_second"]


def seconds_until_target(run: dict) -> float:
    """The time of a training until its validation loss is `TARGET`; infinite if it is larger after all epochs."""
    losses = run["history"]["val_loss"]
    result = SimpleNamespace(history={"val_loss": losses}, epochs=len(losses), seconds=len(losses) * epoch_s(run))
    return seconds_to_target(result) if min(losses) <= TARGET else float("inf")


def with_spread(values: np.ndarray | list[float], digits: int = 3) -> str:
    """Mean and sample standard deviation of the finite values; how many they are, if others are infinite."""
    finite = [value for value in values if np.isfinite(value)]
    if not finite:
        return "not reached"
    spread = f" ± {np.std(finite, ddof=1):,.{digits}f}" if len(finite) > 1 else ""
    number = "" if len(finite) == len(values) else f" ({len(finite)} of {len(values)} runs)"
    return f"{np.mean(finite):,.{digits}f}{spread}{number}"


def draw(results: Results) -> None:
    """Loss against time, and speed against the size of the clusters."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    for number, name in enumerate(filter(results.get, COMPARED)):
        runs = results[name]
        losses = histories(runs, "val_loss")
        spread = losses.std(0, ddof=1) if len(losses) > 1 else None
        times = np.mean([epoch_s(run) for run in runs]) * np.arange(1, losses.shape[1] + 1)
        style = {"color": f"C{number % 10}", "linestyle": "-" if number < 10 else "--"}
        left.errorbar(times, losses.mean(0), spread, marker="o", capsize=2, label=name, **style)
    left.set(xscale="log", xlabel="seconds of training", ylabel="validation loss")
    left.legend(fontsize=7)
    for label, names in (("4 hosts of 2 ranks", SIZES), ("each cluster a host", HOSTS)):
        rows = {size: speeds(results[name]) for size, name in names.items() if name in results}
        spreads = [row.std(ddof=1) if len(row) > 1 else 0.0 for row in rows.values()]
        right.errorbar(list(rows), [row.mean() for row in rows.values()], spreads, fmt="o-", capsize=2, label=label)
    for name, style in (("allreduce", "--"), ("downpour", ":")):
        right.axhline(speeds(results[name]).mean(), color="grey", linestyle=style, label=name)
    right.set(yscale="log", xlabel="ranks per cluster", ylabel="samples/s", xticks=list(SIZES))
    right.legend()
    figure.savefig(HERE / "slow_link.png", dpi=110)
    plt.close(figure)
