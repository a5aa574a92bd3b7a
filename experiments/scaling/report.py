"""Tables and picture of the scaling experiment."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from markdown_tables import markdown_table, write_end
from step_time import Link, fit

N_IMAGES, BATCH = 60_000, 128
GRADIENT_BYTES = {"mlp": 4 * 235_146, "cnn": 4 * 421_576, "lstm": 4 * 82_186}
ALONE = {"Keras": "Keras, 1 rank", "PyTorch": "PyTorch, 1 rank", "DDP": "DDP, 1 rank"}
APART = {
    "Keras": "Keras, 2 ranks, bare loop without Allreduce",
    "PyTorch": "PyTorch, 2 ranks, bare loop without Allreduce",
}
OF_OPEN_MPI, OF_MPI_LEARN = "64 KiB", "4 MiB"
"""The two eager limits that are compared."""
DATA_CENTRE = Link(latency_s=10e-6, bytes_per_s=10e9 / 8)
"""An assumption: 10 µs and 10 Gbit/s between neighbours of the ring. Not measured."""


def show(results: dict[str, Any], folder: Path | None) -> str:
    """The tables; with a folder they also replace the end of its README, and the picture is drawn."""
    parts = [speed_table(model, programs) for model, programs in results["speeds"].items()]
    parts += [prediction_table(results)]
    if "network" in results:
        parts += [eager_table(results["network"]), many_ranks_table(results)]
    text = "\n\n".join([*parts, f"Machine: {results['machine']}."])
    if folder is not None:
        write_end(folder / "README.md", text)
        draw(results, folder / "scaling.png")
    return text


def speed_table(model: str, programs: dict[str, Any]) -> str:
    """Speed, speed-up over one rank of the same program, efficiency and communication of one network."""
    rows = []
    for name, found in programs.items():
        speeds = found["samples_per_second"]
        middle = median(speeds)
        cells = [f"{N_IMAGES / middle:.1f}", f"{middle:,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f})"]
        alone = programs.get(ALONE[name.partition(",")[0]])
        if alone is None or "without" in name:
            cells += ["", ""]
        else:
            gain = median(a / b for a, b in zip(speeds, alone["samples_per_second"], strict=True))
            cells += [f"{gain:.2f}", f"{gain / workers(name):.2f}"]
        share = found.get("communication")
        cells.append("" if share is None else f"{share:.1%}")
        rows.append([name, *cells])
    head = [model, "epoch of 60,000 images, s", "images/s", "speed-up", "efficiency", "communication"]
    return markdown_table(head, rows)


def workers(name: str) -> int:
    """The ranks of a program, or the threads of its only rank."""
    return int(name.partition(", ")[2].removeprefix("1 rank of ").split()[0])


def prediction_table(results: dict[str, Any]) -> str:
    """Predicted and measured speeds of the configurations that can be run here."""
    rows = []
    here = fit(results["here"]) if len(results["here"]) > 1 else None
    for model, programs in results["speeds"].items():
        for framework, apart in APART.items():
            measured = programs.get(f"{framework}, 2 ranks")
            if here and measured and apart in programs:
                compute_s = 2 * BATCH / median(programs[apart]["samples_per_second"])
                predicted = 2 * BATCH / here.step_s(compute_s, GRADIENT_BYTES[model], 2)
                rows.append(_row(model, f"{framework}, 2 ranks", predicted, measured["samples_per_second"]))
        if "network" not in results:
            continue
        network = fit(results["network"][OF_MPI_LEARN]["allreduces"])
        for hosts, measured in results["network"][OF_MPI_LEARN]["samples_per_second"].items():
            compute_s = host_step_s(results, model, int(hosts))
            predicted = int(hosts) * BATCH / network.step_s(compute_s, GRADIENT_BYTES[model], int(hosts))
            rows.append(_row(model, f"PyTorch, {hosts} hosts of a slow network", predicted, measured[model]))
    return markdown_table(["network", "configuration", "predicted images/s", "measured", "error"], rows)


def host_step_s(results: dict[str, Any], model: str, ranks: int) -> float:
    """Seconds of the computation of a step in PyTorch where `ranks` ranks share the two cores of this machine."""
    alone_s = BATCH / median(results["speeds"][model]["PyTorch, 1 rank"]["samples_per_second"])
    return alone_s * max(1, ranks / 2)


def _row(model: str, configuration: str, predicted: float, measured: list[float]) -> list[str]:
    middle = median(measured)
    speeds = f"{middle:,.0f}" + (f" ({min(measured):,.0f} to {max(measured):,.0f})" if len(measured) > 1 else "")
    return [model, configuration, f"{predicted:,.0f}", speeds, f"{predicted / middle - 1:+.0%}"]


def eager_table(network: dict[str, Any]) -> str:
    """Times of an Allreduce and speeds of the trainings with Open MPI's eager limit and with that of MPI Learn."""
    limits = (OF_OPEN_MPI, OF_MPI_LEARN)
    head = ["hosts", "network", *(f"Allreduce, {limit}, ms" for limit in limits)]
    head += [*(f"training, {limit}, images/s" for limit in limits), "gain"]
    rows = []
    models = {n_bytes: model for model, n_bytes in GRADIENT_BYTES.items()}
    pairs = zip(*(network[limit]["allreduces"] for limit in limits), strict=True)
    for (hosts, n_bytes, before_s), (_, _, after_s) in pairs:
        model = models[n_bytes]
        before, after = (median(network[limit]["samples_per_second"][str(hosts)][model]) for limit in limits)
        cells = [hosts, model, f"{1e3 * before_s:.0f}", f"{1e3 * after_s:.0f}"]
        rows.append([*cells, f"{before:,.0f}", f"{after:,.0f}", f"{after / before:.2f}"])
    return markdown_table(head, rows)


def many_ranks_table(results: dict[str, Any]) -> str:
    """Predicted speed-up of ranks with a core each, over the emulated network and over an assumed faster one."""
    slow = fit(results["network"][OF_MPI_LEARN]["allreduces"])
    fitted = f"{1e3 * slow.latency_s:.2f} ms and {8e-6 * slow.bytes_per_s:,.0f} Mbit/s"
    rows = []
    for ranks in (4, 16, 64, 256):
        cells = [
            " · ".join(f"{speed_up(results, model, link, ranks):.1f}" for link in (slow, DATA_CENTRE))
            for model in results["speeds"]
        ]
        rows.append([ranks, *cells])
    shown = markdown_table(["ranks", *(f"{model}, emulated · 10 Gbit/s" for model in results["speeds"])], rows)
    return f"The link fitted to the emulated network has {fitted}.\n\n{shown}"


def speed_up(results: dict[str, Any], model: str, link: Link, ranks: int) -> float:
    """Predicted speed of `ranks` ranks in PyTorch over that of one; negligible communication gives `ranks`."""
    compute_s = host_step_s(results, model, 1)
    return ranks * compute_s / link.step_s(compute_s, GRADIENT_BYTES[model], ranks)


def draw(results: dict[str, Any], file: Path) -> None:
    """Measured speed-ups of 1, 2 and 4 ranks as ratios of median speeds, a panel for each network."""
    from matplotlib.figure import Figure

    models = results["speeds"]
    figure = Figure(figsize=(3.4 * len(models), 3), layout="constrained")
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, (model, programs) in zip(panels, models.items(), strict=True):
        for framework, alone in ALONE.items():
            base = median(programs[alone]["samples_per_second"])
            names = [f"{framework}, 1 rank", f"{framework}, 2 ranks", f"{framework}, 4 ranks"]
            gains = [median(programs[name]["samples_per_second"]) / base for name in names]
            axes.plot([1, 2, 4], gains, "o-", label=framework)
        axes.axhline(2, color="0.8", lw=1)
        axes.set(title=model, xlabel="ranks", ylabel="speed-up", xticks=[1, 2, 4], ylim=(0, 2.3))
    axes.legend(frameon=False)
    figure.savefig(file, dpi=120)
