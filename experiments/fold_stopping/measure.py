"""Measures ``folds: {number: 5, stop_early: true}``: the same searches with and without it.

    python experiments/fold_stopping/measure.py [--seeds 20] [--strategies random,bayesian] [--problems bowl,digits]
    python experiments/fold_stopping/measure.py --print        # only the table, from results.json
    python experiments/fold_stopping/measure.py --smoke        # two searches, prints the table only

Searches run one trial after the other, with the strategy and the rule of a real search, but without MPI and store. The
results are stored in `results.json`, and rows that are measured again are replaced; the table is written to README.md.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from mpi_opt.core.folds.fold_splits import split
from mpi_opt.core.folds.fold_stopping import CompleteTrials
from mpi_opt.core.search_space.space import Categorical, Dimension, Integer, Parameters, Real
from mpi_opt.strategies import make_strategy

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_quartiles, write_end

HERE = Path(__file__).parent
N_TRIALS = 50
K = 5


@dataclass(frozen=True)
class Problem:
    """An objective with folds.

    Attributes:
        name: Its name in the table.
        space: Its hyperparameters.
        fold: Returns the figure of merit of a fold, to minimise, from parameters, trial, fold and seed.
        truth: Returns the true value of parameters; None: the mean over all folds.
    """

    name: str
    space: dict[str, Dimension]
    fold: Callable[[Parameters, int, int, int], float]
    truth: Callable[[Parameters], float] | None = None


def toy(noise: float) -> Problem:
    """The distance from a point in four dimensions, 0 to 2.6. Folds have offsets up to 1, and noise of size `noise`."""

    def bowl(parameters: Parameters) -> float:
        return sum((x - 0.3) ** 2 for x in parameters.values()) ** 0.5

    def fold(parameters: Parameters, number: int, fold: int, seed: int) -> float:
        difficulty = np.random.default_rng([seed, 1]).uniform(0, 1, K)[fold]
        return bowl(parameters) + difficulty + noise * np.random.default_rng([seed, 2, number, fold]).standard_normal()

    space = {f"x{i}": Real(-1.0, 1.0) for i in range(4)}
    return Problem(f"bowl, noise {noise:g}", space, fold, bowl)


def digits() -> Problem:
    """The loss of a network with one hidden layer on 300 of scikit-learn's handwritten digits."""
    space = {
        "rate": Real(1e-4, 1e-1, prior="log-uniform"),
        "alpha": Real(1e-5, 1.0, prior="log-uniform"),
        "units": Integer(4, 128, prior="log-uniform"),
        "activation": Categorical(("relu", "tanh", "logistic")),
    }
    return Problem("digits", space, lambda parameters, number, fold, seed: _loss(tuple(parameters.items()), fold))


@functools.cache
def _loss(parameters: tuple, fold: int) -> float:
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    given = dict(parameters)
    x, y = (array[:300] for array in load_digits(return_X_y=True))
    training, validation = split(300, fold, K, 0, y)
    network = MLPClassifier(
        (given["units"],),
        activation=given["activation"],
        alpha=given["alpha"],
        learning_rate_init=given["rate"],
        max_iter=20,
        random_state=0,
    ).fit(x[training] / 16, y[training])
    return log_loss(y[validation], network.predict_proba(x[validation] / 16), labels=range(10))


@dataclass(frozen=True)
class Search:
    """The result of a search: figure of merit and true value of the best trial, and the number of folds that ran."""

    figure: float
    truth: float
    n_folds: int


def search(problem: Problem, strategy_name: str, seed: int, *, stop_early: bool, all_folds: bool = False) -> Search:
    """One search of `N_TRIALS` trials, or of as many folds as so many trials have without early stopping."""
    strategy = make_strategy(strategy_name, problem.space, seed=seed)
    complete_trials, n_folds, complete = CompleteTrials(K if stop_early else 1), 0, []
    for number in count():
        if n_folds >= K * N_TRIALS if all_folds else number == N_TRIALS:
            break
        (proposal,) = strategy.ask(1)
        reference, figures = complete_trials.reference_for(proposal), []
        for fold in range(K):
            figures.append(problem.fold(proposal.parameters, number, fold, seed))
            if reference and fold < K - 1 and reference.is_clearly_worse(figures):
                break
        n_folds += len(figures)
        if len(figures) < K:
            strategy.tell(proposal, reference.expected(figures))
            continue
        figure = float(np.mean(figures))
        complete.append((figure, problem.truth(proposal.parameters) if problem.truth else figure))
        complete_trials.add(proposal, figure, dict(enumerate(figures)))
        strategy.tell(proposal, figure)
    return Search(*min(complete), n_folds)


def table(results: dict[str, list[list[dict]]]) -> str:
    """As Markdown; medians have the quartiles in parentheses.

    Args:
        results: "problem; strategy" -> for each seed the searches of `three`.
    """
    head = ["problem", "strategy", "searches", "folds run", "best, all folds", "best, stopped early"]
    head += ["the same best trial", "best, stopped early, as many folds", "better, worse"]
    rows = []
    for name, found in results.items():
        full, early, longer = zip(*found, strict=True)
        run = [one["n_folds"] / (K * N_TRIALS) for one in early]
        same = sum(a["figure"] == b["figure"] for a, b in zip(full, early, strict=True))
        truths = [with_quartiles([one["truth"] for one in side]) for side in (full, early, longer)]
        better = sum(b["truth"] < a["truth"] for a, b in zip(full, longer, strict=True))
        worse = sum(b["truth"] > a["truth"] for a, b in zip(full, longer, strict=True))
        fraction = f"{np.mean(run):.0%} ± {np.std(run, ddof=1):.0%}"
        counts = f"{same} of {len(found)}", truths[2], f"{better}, {worse}"
        rows.append([*name.split("; "), len(found), fraction, *truths[:2], *counts])
    return markdown_table(head, rows)


def main() -> None:
    """Measures, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--strategies", default="random,bayesian")
    parser.add_argument("--problems", default="bowl,digits")
    parser.add_argument("--print", action="store_true", help="only the table, from results.json")
    parser.add_argument("--smoke", action="store_true", help="two searches of one row; writes no files")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    file = HERE / "results.json"
    if given.smoke:
        print(table({"bowl, noise 0.1; random": three(toy(0.1), "random", 2)}))
        return
    results = json.loads(file.read_text()) if file.exists() else {}
    problems = [*(toy(noise) for noise in (0.02, 0.1, 0.3)), digits()]
    for strategy in [] if given.print else given.strategies.split(","):
        for problem in (one for one in problems if one.name.split(",")[0] in given.problems):
            results[f"{problem.name}; {strategy}"] = three(problem, strategy, given.seeds)
            file.write_text(json.dumps(results, indent=1))
            print(problem.name, strategy, flush=True)
    write_end(HERE / "README.md", table(results))


def three(problem: Problem, strategy: str, n_seeds: int) -> list[list[dict]]:
    """For each seed the search with all folds, the one that stops early, and one that does so for as many folds."""
    kinds = [{"stop_early": False}, {"stop_early": True}, {"stop_early": True, "all_folds": True}]
    return [[asdict(search(problem, strategy, seed, **kind)) for kind in kinds] for seed in range(n_seeds)]


if __name__ == "__main__":
    main()
