"""Studies that look like real ones, made without a search."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mpi_opt.core.attempt import Attempt
from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.core.trial import Outcome, Proposal
from mpi_opt.store import Store
from mpi_opt.store.records import CodeRecord, StudyRecord
from tests.mpi_opt.outcomes import a_fold, an_end, an_outcome
from tests.optional_packages import needs

SEVERAL_SESSIONS = pytest.mark.parametrize(
    "url", ["file", pytest.param("postgresql", marks=needs("psycopg"))], indirect=True
)
"""For tests that open a store more than once: a store in memory ends with its session."""

SPACE = Space(
    {
        "learning_rate": Real(1e-4, 1e-1, "log-uniform"),
        "units": Integer(16, 256, step=16),
        "activation": Categorical(["relu", "elu", "selu"]),
        "optimizer": Categorical(["adam", "sgd"]),
        "momentum": Real(0.0, 0.99, when={"optimizer": "sgd"}),
    }
)

CONFIGURATION = {
    "study": "digits",
    "figure_of_merit": "val_loss",
    "direction": "minimize",
    "objective": "train",
    "folds": 3,
    "blocks": {"size": 3},
    "search": {"strategy": "bayesian", "trials": 60, "seed": 7},
    "directory": "/home/ada/digits",
    "training": {
        "model": "digits.py:build_model",
        "data": {"train": ["digits.h5"], "features": "X", "labels": "y"},
        "loss": "sparse_categorical_crossentropy",
        "optimizer": {"name": "$optimizer", "learning_rate": "$learning_rate", "momentum": "$momentum"},
        "batch_size": 32,
        "epochs": 12,
    },
}


CODE = CodeRecord({"digits.py": "0" * 64}, {"Python": "3.11.4", "numpy": "2.0.1"}, number=1)


def start(number: int, parameters: dict | None = None, *, attempt: int = 1, block: int = 0) -> Attempt:
    """A trial that begins on ranks 1 to 3 of block `block`."""
    return Attempt(
        Proposal(number, parameters or {"x": 0.5}), attempt, block, f"{3 * block + 1}-{3 * block + 3}", "node1"
    )


def finish(
    number: int, merit: float | None = 0.25, *, attempt: int = 1, block: int = 0, state: str = "complete"
) -> Attempt:
    """A trial that ends with `merit`; without folds."""
    error = None if merit is not None else "ValueError: it went wrong"
    return an_end(an_outcome(number, state, merit, None, 0.1, [], error), attempt, block)


def make_study(
    store: Store,
    name: str = "digits",
    n_trials: int = 60,
    *,
    n_blocks: int = 4,
    n_epochs: int = 12,
    n_folds: int = 3,
    seed: int = 1,
) -> StudyRecord:
    """A finished search for a small network: mostly complete trials, some failed, some pruned, one run twice."""
    study = store.create_study(name, strategy="bayesian", seed=7, configuration=CONFIGURATION, space=SPACE)
    store.add_code(study.id, CODE)
    rng = np.random.default_rng(seed)
    for first in range(0, n_trials, n_blocks):
        numbers = range(first, min(first + n_blocks, n_trials))
        points = {number: SPACE.sample(rng) for number in numbers}
        starts = [start(number, points[number], block=number % n_blocks) for number in numbers]
        store.start(study.id, starts)
        attempts = dict.fromkeys(numbers, 1)
        if first == 2 * n_blocks:
            store.requeue(study.id, [first], "rank 2 on node1 was lost")
            store.event(study.id, "rank_lost", "rank 2 of block 0")
            attempts[first] = 2
            store.start(study.id, [start(first, points[first], attempt=2, block=1)])
        outcomes = [_outcome(number, points[number], rng, n_epochs, n_folds) for number in numbers]
        store.finish(study.id, [an_end(o, attempts[o.number], o.number % n_blocks) for o in outcomes])
    return study


def _outcome(number: int, point: dict, rng: np.random.Generator, n_epochs: int, n_folds: int) -> Outcome:
    if number % 17 == 5:
        error = f"ValueError: loss is nan <b>at epoch 3</b> (rank 4 on node2)\n  in digits.py, trial {number}"
        return an_outcome(number, "failed", None, None, 1.5, [], error)
    is_pruned = number % 7 == 3
    epochs = 3 if is_pruned else n_epochs
    floor = 0.05 + 0.03 * abs(math.log10(point["learning_rate"]) + 2.3) ** 2 + 0.1 * abs(point["units"] - 160) / 160
    floor += {"relu": 0.0, "elu": 0.02, "selu": 0.05}[point["activation"]] + 0.04 * point.get("momentum", 0.5) ** 2
    folds = []
    for fold in range(n_folds):
        end = floor * (1 + 0.08 * rng.standard_normal())
        values = [end + 1.5 * math.exp(-0.5 * (epoch + 1)) + 0.01 * rng.random() for epoch in range(epochs)]
        history = {"loss": [0.9 * value for value in values], "val_loss": values}
        folds.append(a_fold(fold, values[-1], 0.8 * epochs, history))
    figures = [fold.figure_of_merit for fold in folds]
    state = "pruned" if is_pruned else "complete"
    return an_outcome(number, state, float(np.mean(figures)), float(np.std(figures)), 0.8 * epochs, folds)
