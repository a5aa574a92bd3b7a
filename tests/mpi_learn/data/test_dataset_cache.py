"""Datasets that stay in memory for the next training, while their configuration and files do not change."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn.data import loading
from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.loading import DatasetCache


@pytest.fixture
def folder(tmp_path):
    for name in "abcde":
        np.savez(tmp_path / f"{name}.npz", X=np.arange(20.0)[:, np.newaxis], y=np.arange(20))
    return tmp_path


def loaded(kept: DatasetCache, folder: Path, name: str = "a", seed: int = 3, **options):
    files = {"train": str(folder / f"{name}.npz"), "features": "X", "labels": "y", "validation_fraction": 0.5}
    return kept.load(DataConfiguration(**files | options), MPI.COMM_SELF, seed)


def test_the_same_data_are_loaded_once(folder):
    kept = DatasetCache()
    first = loaded(kept, folder)
    assert loaded(kept, folder) is first
    assert loaded(kept, folder, seed=4).validation_indices.tolist() != first.validation_indices.tolist()
    assert loaded(kept, folder) is first


def test_a_file_that_changes_is_loaded_again(folder):
    """Although its size is the same."""
    kept = DatasetCache()
    assert loaded(kept, folder).training.y[0].sum() == 190
    np.savez(folder / "a.npz", X=np.zeros((20, 1)), y=np.arange(20)[::-1] * 2)
    os.utime(folder / "a.npz", (2e9, 2e9))
    assert loaded(kept, folder).training.y[0].sum() == 380


def test_a_function_that_changes_is_called_again(folder):
    kept, file = DatasetCache(), folder / "f.py"
    for factor in (2, 3):
        file.write_text(f"def f(x):\n    return {factor} * x\n")
        os.utime(file, (2e9 + factor, 2e9 + factor))
        dataset = loaded(kept, folder, features={"names": "X", "function": f"{file}:f"})
        assert dataset.training.x[0].max() == factor * 19


def test_the_least_recently_used_dataset_is_dropped_first(folder):
    kept = DatasetCache()
    first, second = loaded(kept, folder, "a"), loaded(kept, folder, "b")
    assert loaded(kept, folder, "a") is first
    for name in "cde":
        loaded(kept, folder, name)
    assert loaded(kept, folder, "a") is first
    assert loaded(kept, folder, "b") is not second


def test_datasets_are_given_up_for_others_that_need_their_memory(folder, monkeypatch):
    kept = DatasetCache()
    first = loaded(kept, folder, "a")
    monkeypatch.setattr(loading, "MEMORY_FRACTION", 1e-12)
    loaded(kept, folder, "b")
    assert loaded(kept, folder, "a") is not first
