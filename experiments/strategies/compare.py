"""Strategies side by side on a table of trained jet taggers; writes `results.json`, the README's table and the picture.

    python experiments/strategies/compare.py [--seeds 5] [--print]
    python experiments/strategies/compare.py --smoke

Every search may spend the epochs of 40 full trainings. Four trials run at the same time, and the time of an epoch is
lognormal. The regret is the validation loss, after a full training, of the best fully trained configuration, minus the
best of the table.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from grid import N_EPOCHS, Table, space

from mpi_opt.strategies import STRATEGIES, make_strategy

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_deviation, write_end

HERE = Path(__file__).parent
METHODS = {
    "random": {},
    "sobol": {},
    "bayesian": {},
    "scikit-optimize": {},
    "evolutionary": {},
    "halving": {"min_budget": 1, "max_budget": N_EPOCHS, "factor": 3},
}
"""Strategy -> its options."""

N_TRAININGS, N_IN_FLIGHT, SIGMA = 40, 4, 0.3
"""Cost of a search in full trainings, trials at the same time, and the width of the lognormal time of an epoch."""

GRID = (10, 20, 30, 40)
"""Costs, in full trainings, at which the table has the regret."""


def search(name: str, table: Table, seed: int, n_trainings: int = N_TRAININGS) -> list[tuple[float, float]]:
    """One search.

    Returns:
        (cost in full trainings, regret) after each trial that had a full training.
    """
    strategy, rng = make_strategy(name, space(), seed=seed, options=METHODS[name]), np.random.default_rng([seed, 7])
    left, spent, clock, best = n_trainings * N_EPOCHS, 0, 0.0, np.inf  # epochs that are left, epochs of ended trials
    running: list = []
    trained: dict[int | None, int] = {None: 0}
    curve: list[tuple[float, float]] = []
    while True:
        while left > 0 and len(running) < N_IN_FLIGHT and (asked := strategy.ask(1)):
            (proposal,) = asked
            trained[proposal.number] = round(proposal.budget or N_EPOCHS)
            n_epochs = trained[proposal.number] - trained[proposal.resume_from]
            if n_epochs > left:
                left = 0
                break
            left -= n_epochs
            end = clock + n_epochs * rng.lognormal(0, SIGMA)
            heapq.heappush(running, (end, proposal.number, n_epochs, proposal))
        if not running:
            return curve
        clock, number, n_epochs, proposal = heapq.heappop(running)
        loss = table.loss(proposal.parameters, trained[number])
        strategy.tell(proposal, loss)
        spent += n_epochs
        if trained[number] == N_EPOCHS:
            best = min(best, loss)
            curve.append((spent / N_EPOCHS, best - table.best))


def regret_at(curve: list[tuple[float, float]], cost: float) -> float:
    """The regret at a cost in full trainings; NaN if no configuration was fully trained until then."""
    return next((regret for spent, regret in reversed(curve) if spent <= cost), float("nan"))


def markdown(results: dict, table: Table) -> str:
    """Mean regret over seeds, and its sample standard deviation, in units of 0.001 of the validation loss."""
    rows = []
    for name, curves in results.items():
        regrets = [[1000 * regret_at(curve, cost) for curve in curves] for cost in GRID]
        cells = ["–" if np.isnan(values).any() else with_deviation(values, 2) for values in regrets]
        rows.append([f"`{name}`", len(curves), *cells])
    shown = markdown_table(["strategy", "searches", *(f"after {cost}" for cost in GRID)], rows)
    final = 1000 * (table.losses[..., -1].ravel() - table.best)
    quantiles = ", ".join(f"{share:.0%}: {np.quantile(final, share):.1f}" for share in (0.01, 0.1, 0.5))
    return "\n".join([shown, "", f"Regret of the table's own quantiles, best first: {quantiles}."])


def draw(results: dict, file: Path) -> None:
    """Mean regret against cost."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    costs = np.arange(1, N_TRAININGS + 1)
    for name, curves in results.items():
        regrets = np.array([[regret_at(curve, cost) for cost in costs] for curve in curves])
        axis.plot(costs, 1000 * regrets.mean(0), label=name)
    axis.set(xlabel="cost in full trainings", ylabel="mean regret / 0.001")
    axis.set_yscale("symlog", linthresh=0.1)
    axis.legend()
    axis.grid(alpha=0.3)
    figure.savefig(file, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="searches of each strategy")
    parser.add_argument("--print", action="store_true", help="only table and picture, from results.json")
    parser.add_argument("--smoke", action="store_true", help="two short searches of each; writes no files")
    arguments = parser.parse_args()
    table, file = Table.load(), HERE / "results.json"
    if arguments.smoke:
        print(markdown({name: [search(name, table, seed, 4) for seed in range(2)] for name in known()}, table))
        return
    results = json.loads(file.read_text()) if file.exists() else {}
    for name in [] if arguments.print else known():
        results.setdefault(name, [])
        for seed in range(len(results[name]), arguments.seeds):
            results[name].append(search(name, table, seed))
        print(name, f"{np.mean([curve[-1][1] for curve in results[name]]):.5f}", flush=True)
        file.write_text(json.dumps(results))
    write_end(HERE / "README.md", markdown(results, table))
    draw(results, HERE / "strategies.png")


def known() -> list[str]:
    """The strategies to compare that this version has."""
    return [name for name in METHODS if name in STRATEGIES]


if __name__ == "__main__":
    main()
