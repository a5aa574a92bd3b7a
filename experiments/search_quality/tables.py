"""The results as tables and as a figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from searchers import SEARCHERS

Results = dict[str, dict[str, dict[str, list[float]]]]
"""Problem -> searcher -> seed -> the regret of the incumbent after each reported trial."""

FIVE = ("branin", "hartmann6", "rosenbrock4", "ackley5c", "digits")
HERE = Path(__file__).parent
BEGIN, END = "<!-- results: written by compare.py --readme -->", "<!-- end of results -->"


def tables(results: Results) -> str:
    """Median regret after 50 and 100 trials on the main problems, with noise, and on the others; and mean ranks."""
    noisy = [label for label in results if " noise " in label]
    tabulated = [label for label in results if "." in label and label not in noisy]
    others = [label for label in results if label not in (*FIVE, *noisy, *tabulated)]
    parts = [
        _medians(results, [label for label in FIVE if label in results]),
        *_headed("With 5 % relative noise in observed values; the regret is that of the true value:", results, noisy),
        *_headed("Other functions:", results, others),
        _ranks(results, tabulated),
    ]
    return "\n\n".join(part for part in parts if part)


def write_readme(results: Results) -> None:
    """Writes the tables between the marks of README.md and draws the figure."""
    readme = HERE / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(f"{before}{BEGIN}\n\n{tables(results)}\n\n{END}{after}")
    plot(results, HERE / "regret.png")


def _headed(head: str, results: Results, labels: list[str]) -> list[str]:
    return [head, _medians(results, labels)] if labels else []


def _medians(results: Results, labels: list[str]) -> str:
    searchers = [name for name in SEARCHERS if any(name in results[label] for label in labels)]
    rows = [[name, *(_cell(results[label].get(name)) for label in labels)] for name in searchers]
    return _table(["", *(label.replace(" noise 0.05", "") for label in labels)], rows)


def _cell(curves: dict[str, list[float]] | None) -> str:
    if not curves:
        return "–"
    middle = medians(curves)
    return f"{middle[49]:.2g} / {middle[-1]:.2g} ({len(curves)})"


def medians(curves: dict[str, list[float]]) -> np.ndarray:
    """Shape (n_trials,): the median over seeds."""
    return np.median(np.array(list(curves.values())), axis=0)


def _ranks(results: Results, labels: list[str]) -> str:
    """Ranks by mean regret over the seeds that all searchers have. Equal regrets share their mean rank."""
    searchers = [name for name in SEARCHERS if labels and all(name in results[label] for label in labels)]
    if not searchers:
        return ""
    seeds = {label: set.intersection(*(set(results[label][name]) for name in searchers)) for label in labels}
    means = [[np.mean([results[t][name][seed][-1] for seed in seeds[t]]) for t in labels] for name in searchers]
    ranks = rankdata(means, axis=0)
    n_seeds = min(len(known) for known in seeds.values())
    head = [f"rank of {len(searchers)} by mean regret, {n_seeds} seeds", f"mean over {len(labels)} tables", *labels]
    rows = [
        [name, f"{row.mean():.2f}", *(f"{rank:g}" for rank in row)] for name, row in zip(searchers, ranks, strict=True)
    ]
    return _table(head, rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plot(results: Results, path: Path) -> None:
    """Median regret against trials, one panel per problem."""
    from matplotlib import pyplot

    labels = [label for label in FIVE if label in results]
    figure, axes = pyplot.subplots(1, len(labels), figsize=(4 * len(labels), 3.6), layout="constrained", squeeze=False)
    for axis, label in zip(axes[0], labels, strict=True):
        for name in SEARCHERS:
            if name in results[label]:
                width = 2.5 if name in ("bayesian", "evolutionary") else 1.0
                axis.semilogy(np.maximum(medians(results[label][name]), 1e-8), label=name, linewidth=width)
        axis.set(title=label, xlabel="reported trials")
    axes[0, 0].set_ylabel("median simple regret")
    axes[0, -1].legend(fontsize=7)
    figure.savefig(path, dpi=110)
