"""The README's tables and its picture, from what was measured."""

from __future__ import annotations

from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parent
MARK = "<!-- table -->"
TIMES_DOWNPOUR, TIMES_ALLREDUCE = 10.0, 4.0
BATCHES = ("clusters, batch 16", "clusters, batch 8", "clusters, batch 8, rate 0.001")
OURS = ("clusters", "clusters, rate 0.004", *BATCHES)
LONGER = "clusters, batch 16, 4 epochs"
OTHERS = {"downpour": TIMES_DOWNPOUR, "allreduce": TIMES_ALLREDUCE}
COMPARED = (*OURS, LONGER, *OTHERS)
SIZES = {1: "clusters of 1", 2: "clusters", 4: "clusters of 4", 8: "clusters of 8"}
HOSTS = {1: "8 hosts", 2: "clusters", 4: "2 hosts", 8: "1 host"}


def show(found: dict[str, dict]) -> None:
    """Writes tables and picture.

    Args:
        found: Name of a run -> ``samples_per_second`` and ``history``; incomplete is allowed.
    """
    readme = HERE / "README.md"
    before, _, _ = readme.read_text().partition(MARK)
    parts = [compared(found), verdict(found), swept(found)]
    readme.write_text("\n\n".join([f"{before}{MARK}", *filter(None, parts)]) + "\n")
    if all(name in found for name in ("clusters", *OTHERS)):
        draw(found)


def compared(found: dict[str, dict]) -> str:
    """The algorithms against each other."""
    lines = ["| algorithm | samples/s | validation loss after each epoch of 10,240 samples | accuracy | seconds |"]
    lines.append("|---|---|---|---|---|")
    for name in COMPARED:
        if name in found:
            history = found[name]["history"]
            losses = " · ".join(f"{loss:.3f}" for loss in history["val_loss"])
            seconds = 10_240 * len(history["val_loss"]) / found[name]["samples_per_second"]
            accuracy = f"{100 * history['val_accuracy'][-1]:.1f} %"
            cells = [name, _speed(found, name), losses, accuracy, f"{seconds:,.0f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict(found: dict[str, dict]) -> str:
    """What was asked for, and whether it was reached."""
    lines = ["| | against | samples/s | wanted | validation loss |", "|---|---|---|---|---|"]
    for ours, (name, wanted) in product(OURS, OTHERS.items()):
        if ours not in found or name not in found:
            continue
        times = found[ours]["samples_per_second"] / found[name]["samples_per_second"]
        own, other = (found[one]["history"]["val_loss"][-1] for one in (ours, name))
        speed = f"{times:.1f}× | ≥ {wanted:.0f}×: {'reached' if times >= wanted else 'missed'}"
        loss = f"{own:.3f} against {other:.3f}: {'equal or better' if own <= other else 'worse'}"
        lines.append(f"| {ours} | {name} | {speed} | {loss} |")
    return "\n".join(lines)


def swept(found: dict[str, dict]) -> str:
    """Over the size of the clusters: on four hosts of two ranks, and with each cluster a host."""
    lines = ["| ranks per cluster | samples/s on 4 hosts of 2 | loss | samples/s, each cluster a host | loss |"]
    lines.append("|---|---|---|---|---|")
    for size, name in SIZES.items():
        cells = [cell for one in (name, HOSTS[size]) for cell in (_speed(found, one), _loss(found, one))]
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _speed(found: dict[str, dict], name: str) -> str:
    return f"{found[name]['samples_per_second']:,.0f}" if name in found else "–"


def _loss(found: dict[str, dict], name: str) -> str:
    return f"{found[name]['history']['val_loss'][-1]:.3f}" if name in found else "–"


def draw(found: dict[str, dict]) -> None:
    """Loss against time, and speed against the size of the clusters."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for name in filter(found.get, COMPARED):
        losses = found[name]["history"]["val_loss"]
        seconds = [10_240 * (n + 1) / found[name]["samples_per_second"] for n in range(len(losses))]
        left.plot(seconds, losses, "o-", label=name)
    left.set(xscale="log", xlabel="seconds of training", ylabel="validation loss")
    left.legend()
    for label, names in (("4 hosts of 2 ranks", SIZES), ("each cluster a host", HOSTS)):
        points = [(size, found[name]["samples_per_second"]) for size, name in names.items() if name in found]
        right.plot(*zip(*points, strict=True), "o-", label=label)
    right.axhline(found["allreduce"]["samples_per_second"], color="grey", ls="--", label="allreduce")
    right.axhline(found["downpour"]["samples_per_second"], color="grey", ls=":", label="downpour")
    right.set(yscale="log", xlabel="ranks per cluster", ylabel="samples/s", xticks=list(SIZES))
    right.legend()
    figure.tight_layout()
    figure.savefig(HERE / "slow_link.png", dpi=110)
    plt.close(figure)
