"""The Adam updates that experiments/mpi_learn times."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from tests.optional_packages import needs

FOLDER = Path(__file__).parents[2] / "experiments" / "mpi_learn"


@needs("keras")
def test_all_updates_that_are_timed_are_those_of_the_paper(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    adam = importlib.import_module("adam")
    rng = np.random.default_rng(3)
    gradients = rng.normal(size=(4, 50)).astype(np.float32)
    m, v, expected = np.zeros((3, 50))
    for t, g in enumerate(gradients.astype(float), 1):  # Kingma & Ba 2015, with the bias correction in the rate
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        expected -= 0.001 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-7)
    assert {"NumPy", "TensorFlow", "MPI Learn"} <= set(adam.known())
    for name in adam.known():
        optimizer = adam.KINDS[name](50)
        for gradient in gradients:
            optimizer.update(gradient)
        np.testing.assert_allclose(optimizer.w, expected, rtol=1e-3, atol=1e-7, err_msg=name)
