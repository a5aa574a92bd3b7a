"""Does the spread over folds improve the choice of the recommended trial?

python fold_noise.py --seeds 12 --first 100         # prints a table
python fold_noise.py --smoke                        # one short search

The values of fold f of trial t are f(x) + b_f + e_tf. The effects b_f of the folds are shared by all trials. The noise
e_tf belongs to one training; in half of the studies its standard deviation differs between trials. The points are those
of a search of `evolutionary`, which receives the means. Four models then choose a trial:

- plain: the noise is fitted, and the same for all trials, as in MPI Opt
- spread: besides, each trial has the variance of its mean that follows from the spread over its folds
- residuals: the same without the effects of the folds, which are estimated from all trials
- weights: the noise is fitted, and multiplied for each trial by a weight from its residuals, which are drawn to those
  of all trials as far as these are equal (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004); even noise gives weights of 1
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict

os.environ.setdefault("OMP_NUM_THREADS", "1")

import noise
import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from mpi_opt.core.figures import Measured
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.strategies import make_strategy
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.surrogates.extremes import warped
from mpi_opt.strategies.surrogates.fitting import ExpectedValues, Observations, chosen_settings
from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess

NAMES = ("branin", "hartmann6", "rosenbrock4", "levy8")
N_FOLDS = 5
FOLD_EFFECT, NOISE_OF_MEAN = 0.2, 0.05
"""Standard deviations of the effects of folds and of the noise of the mean, in units of the function's spread."""
UNEVEN = (0.3, 3.0)
"""Smallest and largest factor of the noise of a trial in studies with uneven noise."""
DEGREES = N_FOLDS - 1


def main() -> None:
    """Reads the command line and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    names = NAMES[:1] if given.smoke else NAMES
    n_seeds, n_trials = (1, 20) if given.smoke else (given.seeds, given.trials)
    print("| | noise | smallest mean | plain | spread | residuals | weights |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        for is_uneven in (False, True):
            regrets = defaultdict(list)
            for seed in range(given.first, given.first + n_seeds):
                for model, regret in chosen(name, seed, n_trials, is_uneven=is_uneven).items():
                    regrets[model].append(regret)
            cells = [f"{np.mean(each):.3g} ± {np.std(each) / len(each) ** 0.5:.2g}" for each in regrets.values()]
            print(f"| {name} | {'uneven' if is_uneven else 'even'} | {' | '.join(cells)} |", flush=True)


def chosen(name: str, seed: int, n_trials: int, *, is_uneven: bool) -> dict[str, float]:
    """The true regret of the trial that each model chooses, in one study."""
    (problem,) = [one for one in noise.everything() if one.name == name]
    space, rng = Space(problem.space), np.random.default_rng([seed, is_uneven])
    spread = noise.spread(problem)
    effects = FOLD_EFFECT * spread * rng.standard_normal(N_FOLDS)
    search = make_strategy("evolutionary", problem.space, seed=seed)
    points: list[Parameters] = []
    values = np.empty((n_trials, N_FOLDS))
    for index in range(n_trials):
        (proposal,) = search.ask(1)
        factor = np.exp(rng.uniform(*np.log(UNEVEN))) if is_uneven else 1.0
        errors = factor * NOISE_OF_MEAN * spread * N_FOLDS**0.5 * rng.standard_normal(N_FOLDS)
        values[index] = problem.measure(proposal.parameters) + effects + errors
        points.append(proposal.parameters)
        search.tell(proposal, float(values[index].mean()))
    means = values.mean(axis=1)
    found = {"smallest": problem.regret(points[int(means.argmin())])}
    centred = values - values.mean(axis=1, keepdims=True)
    own = ((centred - centred.mean(axis=0)) ** 2).sum(axis=1) / (DEGREES * (1 - 1 / n_trials))
    of_mean = {"plain": np.zeros(n_trials), "spread": values.var(axis=1, ddof=1) / N_FOLDS, "residuals": own / N_FOLDS}
    for model, variances in of_mean.items():
        costs = [Measured(mean, variance**0.5) for mean, variance in zip(means, variances, strict=True)]
        expected = ExpectedValues(space, points, costs).means
        found[model] = problem.regret(points[int(expected.argmin())])
    found["weights"] = problem.regret(points[int(weighted(space, points, means, weights(own)).argmin())])
    return found


def weights(variances: np.ndarray) -> np.ndarray:
    """The expected variance of each trial relative to a typical one: shape (n_trials,), from its estimated variance."""
    logs = np.log(variances) - digamma(DEGREES / 2) + np.log(DEGREES / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, DEGREES / 2))
    if excess < polygamma(1, 1e6):  # the estimates differ no more than those of equal variances
        return np.ones(len(variances))
    n_prior = 2 * brentq(lambda half: polygamma(1, half) - excess, 1e-3, 1e6)
    typical = np.exp(logs.mean() + digamma(n_prior / 2) - np.log(n_prior / 2))
    return (n_prior + DEGREES * variances / typical) / (n_prior + DEGREES)


def weighted(space: Space, points: list[Parameters], means: np.ndarray, of_trials: np.ndarray) -> np.ndarray:
    """The predictions at the points, shape (n_trials,), up to a monotonic function, with a weight of the noise each."""
    encoding, no_variances = Encoding(space), np.zeros(len(means))
    observed = Observations(encoding.rows(points), means, no_variances)
    _, settings = chosen_settings(observed, encoding.is_category)
    y = warped(observed.values, settings.offset)[0]
    extra = np.exp(settings.hyperparameters.log_noise) * (of_trials - 1.0)  # the model adds the noise itself
    model = GaussianProcess(observed.rows, y, encoding.is_category, settings.hyperparameters, extra)
    return model.predict(observed.rows)[0]


if __name__ == "__main__":
    main()
