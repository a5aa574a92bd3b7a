"""The results as tables and as a figure."""

from __future__ import annotations

from pathlib import Path
from statistics import mode

import numpy as np
from scipy.stats import rankdata
from searchers import SEARCHERS

Steps = list[list[float]]
"""[reported trials, regret of the incumbent] of a search, for each trial that changed it."""

Results = dict[str, dict[str, dict[str, Steps]]]
"""Problem -> searcher -> seed -> steps."""

N_TRIALS = 100
NOISY = "With multiplicative noise of 5 % in observed values; the regret is that of the true value:"
FIVE = ("branin", "hartmann6", "rosenbrock4", "ackley5c", "digits")
HERE = Path(__file__).parent
BEGIN, END = "<!-- results: written by compare.py --readme -->", "<!-- end of results -->"


def steps(curve: np.ndarray) -> Steps:
    """The trials of a curve of shape (n_trials,) that changed the regret, which has four digits."""
    rounded = [float(f"{regret:.4g}") for regret in curve]
    return [
        [n, now] for n, (now, before) in enumerate(zip(rounded, [None, *rounded], strict=False), 1) if now != before
    ]


def curves(by_seed: dict[str, Steps]) -> np.ndarray:
    """Shape (n_seeds, N_TRIALS): the regret after each reported trial."""
    found = np.empty((len(by_seed), N_TRIALS))
    for row, changes in zip(found, by_seed.values(), strict=True):
        for n, regret in changes:
            row[int(n) - 1 :] = regret
    return found


def tables(results: Results) -> str:
    """Regrets on the main problems, with noise, and on the others; and the ranks on tables of trained networks."""
    noisy = [label for label in results if " noise " in label]
    tabulated = [label for label in results if "." in label and label not in noisy]
    others = [label for label in results if label not in (*FIVE, *noisy, *tabulated)]
    parts = [
        _quartiles(results, [label for label in FIVE if label in results]),
        *_headed(NOISY, results, noisy),
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
    return [head, _quartiles(results, labels)] if labels else []


def _quartiles(results: Results, labels: list[str]) -> str:
    searchers = [name for name in SEARCHERS if any(name in results[label] for label in labels)]
    rows = []
    for name in searchers:
        found = [results[label].get(name, {}) for label in labels]
        rows.append([name, _seeds(dict(zip(labels, map(len, found), strict=True))), *map(_cell, found)])
    return _table(["", "seeds", *(label.replace(" noise 0.05", "") for label in labels)], rows)


def _seeds(counts: dict[str, int]) -> str:
    """The number of seeds of most problems, and the problems that have another one."""
    measured = {label: n for label, n in counts.items() if n}
    usual = mode(measured.values())
    others = [f"{label}: {n}" for label, n in measured.items() if n != usual]
    return f"{usual} ({', '.join(others)})" if others else str(usual)


def _cell(by_seed: dict[str, Steps]) -> str:
    """Median and quartiles of the last regret."""
    if not by_seed:
        return "–"
    lower, middle, upper = np.quantile(curves(by_seed)[:, -1], (0.25, 0.5, 0.75))
    return f"{middle:.2g} ({lower:.2g} to {upper:.2g})"


def _ranks(results: Results, labels: list[str]) -> str:
    """Ranks by the last regret among the searches with the same seed. Equal regrets share their mean rank.

    The difference from the first method is paired by seed, with its standard error.
    """
    searchers = [name for name in SEARCHERS if labels and all(name in results[label] for label in labels)]
    if not searchers:
        return ""
    seeds = sorted(set.intersection(*(set(results[label][name]) for label in labels for name in searchers)), key=int)
    last = [
        [[curves({seed: results[label][name][seed]})[0, -1] for seed in seeds] for label in labels]
        for name in searchers
    ]
    ranks = rankdata(last, axis=0)  # (n_searchers, n_labels, n_seeds)
    by_seed = ranks.mean(axis=1)
    head = [f"rank of {len(searchers)}, mean of {len(seeds)} seeds", f"all {len(labels)} tables"]
    rows = []
    for name, mine, each in zip(searchers, by_seed, ranks, strict=True):
        more = mine - by_seed[0]
        paired = f"{more.mean():+.2f} ± {more.std(ddof=1) / len(seeds) ** 0.5:.2f}" if more.any() else "–"
        in_tables = [f"{rank:.1f}" for rank in each.mean(axis=1)]
        rows.append([name, f"{mine.mean():.2f} ± {mine.std(ddof=1):.2f}", paired, *in_tables])
    return _table([*head, f"minus {searchers[0]}", *labels], rows)


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
                median = np.median(curves(results[label][name]), axis=0)
                axis.semilogy(np.maximum(median, 1e-8), label=name, linewidth=width)
        axis.set(title=label, xlabel="reported trials")
    axes[0, 0].set_ylabel("median simple regret")
    axes[0, -1].legend(fontsize=7)
    figure.savefig(path, dpi=110)
