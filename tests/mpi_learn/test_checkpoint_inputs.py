"""A training that continues from a checkpoint says which of its files have changed since."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import yaml

from mpi_learn.cli.commands import main
from mpi_learn.training.checkpoints.inputs import note_on_changes

MODEL = """
import keras


def build():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, activation="relu")])
"""


@pytest.fixture
def trained(tmp_path, monkeypatch, capsys):
    """A function that trains up to an epoch, and returns what it has printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    with h5py.File("a.h5", "w") as file:
        file["x"], file["y"] = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    common = {"model": "m.py:build", "data": {"train": ["*.h5"], "features": "x", "labels": "y"}, "loss": "mse"}

    def train_to(epochs):
        content = common | {"epochs": epochs, "batch_size": 4, "checkpoint": {"path": "c"}}
        (tmp_path / "t.yaml").write_text(yaml.safe_dump(content))
        with pytest.raises(SystemExit) as end:
            main(["train", "t.yaml"])
        assert end.value.code == 0
        return capsys.readouterr().out

    return train_to


def test_changed_code_and_data_are_named_and_what_has_not_changed_is_not(trained, tmp_path):
    assert "changed since" not in trained(1)
    assert "changed since" not in trained(2)
    (tmp_path / "m.py").write_text(MODEL.replace("relu", "elu"))
    assert f"note: m.py has changed since checkpoint {tmp_path}/c was written; the training" in trained(3)
    with h5py.File("a.h5", "a") as file:
        file["x"][:] *= 2
    with h5py.File("b.h5", "w") as file:
        file["x"], file["y"] = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)
    assert "note: a.h5, b.h5 have changed since checkpoint" in trained(4)
    assert "changed since" not in trained(5)


def test_very_many_changed_files_are_counted():
    before, now = {f"{number}.h5": [1, number] for number in range(5)}, {f"{number}.h5": [2, 0] for number in range(5)}
    assert note_on_changes(before, now, "c").startswith("0.h5, 1.h5, 2.h5 and 2 more have changed since c was written")
    assert note_on_changes(now, now, "c") == ""
    assert note_on_changes({"a": [1]}, {}, "c").startswith("a has changed")
