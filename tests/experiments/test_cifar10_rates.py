"""Which learning rates experiments/mpi_learn compares for CIFAR-10."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "mpi_learn"


@pytest.fixture
def cifar10_rates(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    names = ("cifar10_rates", "cifar10", "training_runs")
    yield importlib.import_module("cifar10_rates")
    for name in names:  # experiments have modules of the same names
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("best", "compared"),
    [
        (0.001, [0.0003, 0.001, 0.003]),
        (0.003, [0.0003, 0.001, 0.003, 0.01]),
        (1e-5, [1e-5, 3e-5, 0.0001, 0.0003, 0.001, 0.003]),
    ],
)
def test_rates_are_added_until_the_best_one_is_not_at_the_edge(cifar10_rates, monkeypatch, tmp_path, best, compared):
    n_ranks_used = set()

    def run(contents, n_ranks, work, *, warm_up):
        n_ranks_used.add(n_ranks)
        rates = [content["optimizer"]["learning_rate"] for content in contents]
        return [{"history": {"val_accuracy": [0.9, 0.5 - 0.01 * abs(math.log(rate / best))]}} for rate in rates]

    monkeypatch.setattr(cifar10_rates, "run", run)
    accuracies = cifar10_rates.compare("gem 2", {"train": ["x.h5"]}, tmp_path)
    assert list(accuracies) == compared
    assert max(accuracies, key=accuracies.get) == best
    assert n_ranks_used == {3}
