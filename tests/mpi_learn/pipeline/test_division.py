"""Models of the frameworks are divided where one tensor passes, and the other stages are freed."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from mpi_learn.models.pipeline.section import PipelineSection
from mpi_learn.models.pipeline.split import segment_starts, stage_bounds
from mpi_learn.models.settings import Example
from tests.mpi_learn.configurations_for_tests import model_settings
from tests.optional_packages import needs


@needs("keras")
def test_a_stage_of_a_keras_model_keeps_no_other_layer_and_can_be_saved(tmp_path):
    import keras

    from mpi_learn.models.keras_.stages import KerasStages

    model = keras.Sequential([keras.Input((8,)), *(keras.layers.Dense(8) for _ in range(6))])
    x = np.ones((2, 8), np.float32)
    expected = keras.Sequential(model.layers[3:])(x)
    kernels = [weakref.ref(layer.kernel) for layer in model.layers]
    part = KerasStages().part(model, [0, 3, 6], 1)
    del model
    gc.collect()
    assert [kernel() is not None for kernel in kernels] == [False] * 3 + [True] * 3
    part.save(tmp_path / "part.keras")
    for stage in (part, keras.saving.load_model(tmp_path / "part.keras")):
        np.testing.assert_allclose(stage(x), expected, rtol=1e-6)


@needs("keras")
def test_no_cut_of_a_keras_model_divides_a_skip_connection_or_a_shared_layer():
    import keras

    from mpi_learn.models.keras_.stages import KerasStages
    from tests.mpi_learn.pipeline.keras_models import build, build_shared

    layers = KerasStages().layers(build(), [np.ones((2, 12))])
    assert [layer.starts_stage for layer in layers] == [True, True, False, False, True, True, True, True]
    assert not any(layer.starts_stage for layer in KerasStages().layers(build_shared(), [np.ones((2, 12))])[1:3])
    bounds = stage_bounds(layers, PipelineSection(stages=2))
    x = np.random.default_rng(0).normal(size=(5, 12)).astype(np.float32)
    model = build()
    first, second = (KerasStages().part(keras.models.clone_model(model), bounds, index) for index in (0, 1))
    for index, stage in enumerate((first, second)):
        own = KerasStages().part(model, bounds, index).get_weights()
        stage.set_weights(own)
    np.testing.assert_allclose(second(first(x)), model(x), rtol=1e-5)


@needs("keras")
def test_the_layers_of_a_keras_model_with_an_embedding_and_named_inputs_have_times():
    import keras

    from mpi_learn.models.keras_.stages import KerasStages

    ids, z = keras.Input((4,), dtype="int32", name="ids"), keras.Input((3,), name="z")
    embedded = keras.layers.Flatten()(keras.layers.Embedding(10, 2)(ids))
    hidden = keras.layers.Dense(8)(keras.layers.Concatenate()([embedded, z]))
    model = keras.Model({"ids": ids, "z": z}, keras.layers.Dense(1)(hidden))
    x = [np.ones((5, 3), np.float32), np.ones((5, 4), np.int32)]
    layers = KerasStages().layers(model, x)
    bounds = [*segment_starts(layers), len(layers)]
    settings = model_settings("m.py:build")
    seconds = KerasStages().seconds(model, bounds, Example(x, (), x_names=("z", "ids")), settings)
    assert len(seconds) == len(bounds) - 1 == 2
    assert min(seconds) > 0


@needs("torch")
@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_the_layers_of_a_pytorch_model_are_divided_by_their_operations(kind):
    import torch

    from mpi_learn.models.torch_.stages import TorchStages

    if kind == "dense":
        model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
        x = np.ones((2, 8), np.float32)
    else:  # the first convolution is at many places, and the dense layer has most parameters
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(8 * 16 * 16, 16),
            torch.nn.Linear(16, 3),
        )
        x = np.ones((2, 3, 16, 16), np.float32)
    bounds = stage_bounds(TorchStages().layers(model, [x]), PipelineSection(stages=2))
    assert bounds == ([0, 2, 4] if kind == "dense" else [0, 3, 5])


@needs("torch")
def test_a_subclass_of_a_sequence_of_pytorch_with_arguments_of_its_own_is_divided():
    import torch

    from mpi_learn.models.torch_.stages import TorchStages

    class Mlp(torch.nn.Sequential):
        def __init__(self, units):
            activation = torch.nn.Tanh()
            super().__init__(torch.nn.Linear(8, units), activation, torch.nn.Linear(units, units), activation)

    model, x = Mlp(16), torch.ones(2, 8)
    first, second = (TorchStages().part(model, [0, 2, 4], index) for index in (0, 1))
    assert list(second.state_dict()) == ["2.weight", "2.bias"]
    torch.testing.assert_close(second(first(x)), model(x), rtol=0, atol=0)
