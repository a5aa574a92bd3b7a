"""The share of a training's time that its validations take, in experiments/mpi_learn."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "mpi_learn"


@pytest.fixture
def validation(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("validation")
    for name in ("validation", "training_runs"):  # experiments have modules of the same names
        sys.modules.pop(name, None)


def test_the_validation_at_the_end_is_not_counted_as_training(validation):
    """Four epochs of 10 s in all, a validation by the first worker of 2 s, and one by all workers of 1 s."""
    rows = {"master": [18.0], "distributed": [14.0], "at the end": [11.0], "thread": [11.0]}
    assert validation.time_of_validation(rows) == pytest.approx([8 / 18])
