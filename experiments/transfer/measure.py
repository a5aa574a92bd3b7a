"""How much an earlier study helps, and how much a misleading one hurts: simple regret with transfer and without.

    python experiments/transfer/measure.py [--seeds 16]
    python experiments/transfer/measure.py --print        # only the table, from results.json
    python experiments/transfer/measure.py --smoke        # a search of two rows, prints the table only

Writes the regrets to `results.json`, the table to README.md, and `transfer.png`. Nothing is trained: the studies are
functions.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from mpi_opt.core.search_space.space import Parameters, Real, Space
from mpi_opt.strategies import Transfer, make_strategy

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_quartiles, write_end

SPACE = Space({name: Real(0, 1) for name in ("a", "b", "c", "d")})
N_EARLIER, AT = 60, (10, 20, 30, 40)
ELSEWHERE = 0.1
"""A search whose smallest value is larger has not come near the minimum."""

HERE = Path(__file__).parent
Function = Callable[[np.ndarray], float]


def rugged(shift: float, scale: float = 1.0) -> Function:
    """A narrow bent valley with waves, with minimum 0 at 0.35 + shift."""

    def value(x: np.ndarray) -> float:
        y = x - 0.35 - shift * np.array([1.0, -1.0, 0.5, -0.5])
        valley = 20 * (y[1] - 2 * y[0] ** 2) ** 2 + y[0] ** 2 + 10 * (y[2] - y[3]) ** 2 + y[3] ** 2
        return float(scale * (valley + 0.1 * (1 - np.cos(9 * y)).sum()))

    return value


NEW = rugged(0.0)
EARLIER: dict[str, Function] = {
    "shifted by 0.03, 50 times as large": rugged(0.03, 50.0),
    "shifted by 0.1": rugged(0.1),
    "unrelated": lambda x: float(((x - np.array([0.9, 0.1, 0.9, 0.1])) ** 2).sum()),
    "the opposite": lambda x: -NEW(x),
}
WITHOUT = "none, without transfer"
N_BEST = 5
"""Number of the best points of the earlier study that are tried first."""


def point_of(parameters: Parameters) -> np.ndarray:
    """As an array of shape (n_dimensions,)."""
    return np.array([parameters[name] for name in SPACE])


def regrets(transfer: Transfer | None, seed: int) -> list[float]:
    """The smallest value after each number of trials in `AT`, with 4 concurrent trials."""
    strategy = make_strategy("bayesian", SPACE, seed=seed, transfer=transfer)
    rng, pending, values = random.Random(seed), [], []
    while len(values) < AT[-1]:
        pending += strategy.ask(4 - len(pending))
        proposal = pending.pop(rng.randrange(len(pending)))
        values.append(NEW(point_of(proposal.parameters)))
        strategy.tell(proposal, values[-1])
    return [min(values[:n]) for n in AT]


def searched(function: Function, seed: int) -> list[Parameters]:
    """The points of an earlier search, best first."""
    strategy, found = make_strategy("evolutionary", SPACE, seed=seed + 1000), []
    for _ in range(N_EARLIER):
        (proposal,) = strategy.ask(1)
        found.append((proposal.parameters, function(point_of(proposal.parameters))))
        strategy.tell(proposal, found[-1][1])
    return [point for point, _ in sorted(found, key=lambda one: one[1])]


def table(results: dict[str, list[list[float]]]) -> str:
    """As Markdown: the median over the seeds, and the quartiles.

    Args:
        results: Name of a row -> for each seed the smallest value after each number of trials in `AT`.
    """
    head = ["earlier study", "searches", *(f"{n} trials" for n in AT), f"above {ELSEWHERE} after {AT[-1]}"]
    rows = []
    for name, found in results.items():
        cells = [with_quartiles(values, 2) for values in zip(*found, strict=True)]
        rows.append([name, len(found), *cells, sum(values[-1] > ELSEWHERE for values in found)])
    return markdown_table(head, rows)


def draw(results: dict[str, list[list[float]]], file: Path) -> None:
    """The medians of `table` against the number of trials, with a panel for similar and one for misleading studies."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    names = list(EARLIER)
    panels = {"similar studies": names[:2], "misleading studies": names[2:]}
    for axes, (title, earlier) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        lower, middle, upper = np.quantile(results[WITHOUT], (0.25, 0.5, 0.75), axis=0)
        axes.fill_between(AT, lower, upper, color="0.9", label="without transfer, quartiles")
        axes.plot(AT, middle, "o-", color="0.5", label="without transfer")
        for number, name in enumerate(earlier):
            axes.plot(AT, np.median(results[name], axis=0), "o-", color=f"C{number}", label=name)
        axes.set(title=title, xlabel="trials", yscale="log", xticks=AT)
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    figure.axes[0].set_ylabel("median of the smallest value")
    figure.savefig(file, dpi=90)


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--print", action="store_true", help="only table and picture, from results.json")
    parser.add_argument("--smoke", action="store_true", help="a search of two rows; writes no files")
    given = parser.parse_args()
    earlier = list(EARLIER)
    if given.smoke:
        print(table(measured(range(1), earlier[:1])))
        return
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if given.print else measured(range(given.seeds), earlier)
    file.write_text(json.dumps(results, indent=1))
    write_end(HERE / "README.md", table(results))
    draw(results, HERE / "transfer.png")


def measured(seeds: range, earlier: list[str]) -> dict[str, list[list[float]]]:
    """The argument of `table`: a row without transfer, and one for each earlier study."""
    results = {WITHOUT: [regrets(None, seed) for seed in seeds]}
    for name in earlier:
        results[name] = [regrets(Transfer(searched(EARLIER[name], seed), N_BEST), seed) for seed in seeds]
        print(name, flush=True)
    return results


if __name__ == "__main__":
    main()
