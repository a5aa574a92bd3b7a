"""Writes the tables of the README and the figure from ``results.json``."""

from __future__ import annotations

from pathlib import Path
from statistics import median

MARK = "<!-- table -->"
MODELS = ("mlp", "cnn", "lstm")
RATIOS = [
    ("Keras on TensorFlow over DDP", "ours-keras on 2", "ddp on 2", {"mlp": 1.6, "cnn": 1.8, "lstm": 1.15}),
    ("PyTorch over DDP", "ours-torch on 2", "ddp on 2", {"mlp": 1.5, "cnn": 1.0, "lstm": 1.05}),
    ("Keras over the bare loop", "ours-keras on 2", "bare-keras on 2", dict.fromkeys(MODELS, 0.97)),
    ("PyTorch over the bare loop", "ours-torch on 2", "bare-torch on 2", dict.fromkeys(MODELS, 0.97)),
    ("Keras in bfloat16 over Keras in float32", "ours-keras on 2, bfloat16", "ours-keras on 2", {}),
    ("the bare Keras loop over DDP", "bare-keras on 2", "ddp on 2", {}),
    ("Keras, 1 rank over the bare loop", "ours-keras on 1", "bare-keras on 1", dict.fromkeys(MODELS, 0.97)),
]
LARGE, SMALL = 0.95, 0.8
EFFICIENCIES = [
    ("Keras", "ours-keras on 2", "ours-keras on 1", {"mlp": SMALL, "cnn": LARGE, "lstm": LARGE}),
    ("bare Keras loop", "bare-keras on 2", "bare-keras on 1", {}),
    ("bare Keras loop without any exchange", "bare-keras on 2, apart", "bare-keras on 1", {}),
    ("PyTorch", "ours-torch on 2", "ours-torch on 1", {}),
    ("bare PyTorch loop", "bare-torch on 2", "bare-torch on 1", {}),
    ("bare PyTorch loop without any exchange", "bare-torch on 2, apart", "bare-torch on 1", {}),
]
"""Parallel efficiency of two ranks: name, run on 2 ranks, run on 1 rank, target by model."""
ASYNCHRONOUS = {
    "downpour on 3": {"mlp": 58_000, "cnn": 6_000},
    "gem on 3": {"mlp": 56_000, "cnn": 5_600},
    "easgd on 3": {"mlp": 66_000, "cnn": 5_800},
}
UPDATES = {"82000": 4900, "235146": 2300, "421576": 1600, "1250000": 430}
"""Target of the updates per second of a master, by the number of parameters."""


def write_report(results: dict, folder: Path) -> None:
    """Writes the tables between the marks of ``README.md``, and ``speed.png``."""
    readme = folder / "README.md"
    before, _, rest = readme.read_text().partition(MARK)
    _, _, after = rest.partition(MARK)
    parts = [speeds(results), ratios(results), costs(results), masters(results)]
    text = "\n\n".join(part for part in parts if part)
    readme.write_text(f"{before}{MARK}\n\n{text}\n\n{MARK}{after or chr(10)}")
    draw(results, folder / "speed.png")


def speeds(results: dict) -> str:
    """Samples per second of every run."""
    sessions = results["sessions"]
    names = dict.fromkeys(name for model in MODELS for name in sessions.get(model, {}))
    rows = [[name, *(_speed(sessions, model, name) for model in MODELS)] for name in names]
    return _table([f"samples/s ({results['machine']})", *MODELS], rows)


def ratios(results: dict) -> str:
    """Ratios of runs that took turns: the median over the turns and the target."""
    rows = []
    for label, above, below, wanted in RATIOS:
        rows.append([label, *(_against(_ratio(results, model, above, below), wanted.get(model)) for model in MODELS)])
    for label, above, below, wanted in EFFICIENCIES:
        found = [_ratio(results, model, above, below) for model in MODELS]
        halves = [None if one is None else one / 2 for one in found]
        cells = [_against(one, wanted.get(model)) for model, one in zip(MODELS, halves, strict=True)]
        if any(one is not None for one in halves):
            rows.append([f"parallel efficiency of 2 ranks, {label}", *cells])
    for name, wanted in ASYNCHRONOUS.items():
        cells = []
        for model in MODELS:
            found = results["sessions"].get(model, {}).get(name)
            is_comparable = found is not None and model in wanted
            cells.append(_against(median(found["samples_per_second"]) / wanted[model] if is_comparable else None, 1.0))
        rows.append([f"{name} over twice NNLO", *cells])
    return _table(["ratio (target)", *MODELS], rows)


def costs(results: dict) -> str:
    """The table of start time, memory and timeline."""
    rows = []
    if (start := results.get("start")) is not None:
        rows.append([f"start to first step, {start['ranks']} TensorFlow ranks", f"{start['seconds']:.1f} s", ""])
        rows.append(
            [f"memory of a rank (PSS), {start['ranks']} TensorFlow ranks", f"{start['memory_mib']:.0f} MiB", ""]
        )
    for model in MODELS:
        ratio = _ratio(results, model, "ours-keras on 2", "ours-keras on 2, timeline")
        if ratio is not None:
            rows.append([f"cost of the timeline when on, {model}", f"{100 * (ratio - 1):.1f} %", "< 3 %"])
    alone = results["sessions"].get("mlp", {}).get("ours-keras on 1")
    if alone is not None and "timeline_off_s" in results:
        share = results["timeline_off_s"] * median(alone["samples_per_second"]) / 128
        rows.append(["cost of the timeline when off, of an MLP step on 1 rank", f"{100 * share:.2f} %", "< 0.5 %"])
    return _table(["cost", "measured", "target"], rows) if rows else ""


def masters(results: dict) -> str:
    """The tables of the speed of a master and of the time of an optimizer step."""
    if (found := results.get("master")) is None:
        return ""
    rows = [
        [f"{int(n):,}", f"{figure:,.0f}", f"{UPDATES[n]:,}" if n in UPDATES else "–"]
        for n, figure in found["updates_per_second"].items()
    ]
    steps = [[name, f"{ms:.2f} ms", f"{times:.2f}×"] for name, (ms, times) in found["optimizers"].items()]
    first = _table(["parameters", "updates/s of a master with Adam", "target"], rows)
    copying = f"relative to copying its bytes at {found['copy_gb_per_s']:.1f} GB/s"
    head = ["one step of 10 million parameters", "time", copying]
    return f"{first}\n\n{_table(head, steps)}"


def draw(results: dict, file: Path) -> None:
    """Bars of samples per second on two ranks, relative to DDP."""
    from matplotlib import pyplot

    names = ["ddp on 2", "bare-torch on 2", "ours-torch on 2", "bare-keras on 2", "ours-keras on 2"]
    figure, axes = pyplot.subplots(figsize=(7, 3.2), layout="constrained")
    for number, name in enumerate(names):
        heights = [_ratio(results, model, name, "ddp on 2") or 0.0 for model in MODELS]
        places = [index + 0.16 * (number - 2) for index in range(len(MODELS))]
        bars = axes.bar(places, heights, 0.15, label=name.removesuffix(" on 2"))
        axes.bar_label(bars, [f"{height:.2f}" for height in heights], fontsize=7)
    axes.set_xticks(range(len(MODELS)), [model.upper() for model in MODELS])
    axes.set_ylabel("samples/s relative to DDP, 2 ranks")
    axes.legend(fontsize=8, ncols=3, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=140)
    pyplot.close(figure)


def _ratio(results: dict, model: str, above: str, below: str) -> float | None:
    session = results["sessions"].get(model, {})
    if above not in session or below not in session:
        return None
    pairs = zip(session[above]["samples_per_second"], session[below]["samples_per_second"], strict=False)
    return median(a / b for a, b in pairs)


def _speed(sessions: dict, model: str, name: str) -> str:
    found = sessions.get(model, {}).get(name)
    return "–" if found is None else f"{median(found['samples_per_second']):,.0f}"


def _against(found: float | None, wanted: float | None) -> str:
    if found is None:
        return "–"
    if wanted is None:
        return f"{found:.2f}"
    is_missed = found < wanted
    digits = 3 if is_missed and round(found, 2) >= wanted else 2
    return f"{found:.{digits}f} (≥ {wanted:.2f}{', missed' if is_missed else ''})"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(f"| {line} |" for line in lines)
