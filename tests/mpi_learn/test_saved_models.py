"""Saved models are loaded again: those of which a file has only the weights are built by their function first."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpi_learn.errors import ModelError
from mpi_learn.training.result import load_model_files, load_saved_model

BUILD = """
class Model:
    def __init__(self, width):
        self.width, self.loaded = width, []

    def load_weights(self, file):
        if self.width < 0:
            raise ValueError("another shape")
        self.loaded.append(file.name)

def build(width):
    return Model(width)

def build_two(width):
    return {"generator": Model(width), "discriminator": Model(width + 1)}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "build.py").write_text(BUILD)
    return tmp_path / "build.py"


def test_weights_are_loaded_into_the_model_of_the_function(file):
    model = load_model_files([file.with_name("model.weights.h5")], f"{file}:build", {"width": 3})
    assert (model.width, model.loaded) == (3, ["model.weights.h5"])


def test_each_of_two_models_gets_its_own_weights(file):
    files = [file.with_name(f"model_{name}.weights.h5") for name in ("discriminator", "generator")]
    models = load_model_files(files, f"{file}:build_two", {"width": 3})
    assert {name: (model.width, model.loaded) for name, model in models.items()} == {
        "generator": (3, ["model_generator.weights.h5"]),
        "discriminator": (4, ["model_discriminator.weights.h5"]),
    }


def test_weights_of_another_model_are_refused_with_their_file(file):
    saved = file.with_name("model.weights.h5")
    with pytest.raises(ModelError, match="it cannot be loaded: another shape") as error:
        load_model_files([saved], f"{file}:build", {"width": -1})
    assert error.value.where == str(saved)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="there is no model") as error:
        load_saved_model(tmp_path)
    assert error.value.where == str(tmp_path)
