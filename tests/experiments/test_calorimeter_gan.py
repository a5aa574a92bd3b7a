"""The models of experiments/calorimeter_gan and their figures of merit."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.known_data import prepare
from mpi_learn.known_data.simulation.calorimeter import simulate_showers
from mpi_learn.settings.user_code import load_function
from mpi_learn.settings.yaml_file import read_yaml
from mpi_opt.configuration.read_study import read_study
from mpi_opt.objectives.make_objective import check_objective
from tests.optional_packages import needs

FOLDER = Path(__file__).parents[2] / "experiments" / "calorimeter_gan"
DISTANCES = ("longitudinal_distance", "lateral_distance")


def function(name: str):
    """``file:function`` of the experiment."""
    file, _, found = name.partition(":")
    return load_function(f"{FOLDER / file}.py:{found}")


def simulated(n: int, seed: int, energy: tuple[float, float] = (10.0, 40.0)) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(simulate_showers(n, seed, energy=energy))
    return tuple(np.concatenate([block[name] for block in blocks]) for name in ("X", "energy"))


@pytest.fixture(scope="module")
def real() -> tuple[np.ndarray, np.ndarray]:
    return simulated(100, 1)


@pytest.mark.parametrize("name", DISTANCES)
def test_profiles_of_the_same_kind_are_close_and_moved_ones_are_as_far_as_they_moved(name, real):
    distance = function(f"figures_of_merit:{name}")
    axis = 1 if name == DISTANCES[0] else 2
    x, _ = real
    assert distance(x, x) == 0
    assert distance(x, 3 * x) == pytest.approx(0, abs=1e-6)  # the shape alone counts
    same, _ = simulated(100, 2)
    moved = [distance(x, np.roll(x, steps, axis)) for steps in (1, 2)]
    assert distance(x, same) < 0.05 < moved[0] < moved[1] <= 1


@pytest.mark.parametrize(("name", "axis"), [(DISTANCES[0], 1), (DISTANCES[1], 3)])
def test_profile_distance_is_half_of_the_summed_differences(name, axis):
    first, second = np.zeros((2, 1, 25, 25, 25, 1))
    first[0, 4, 4, 4] = 1
    place = [4, 4, 4]
    place[axis - 1] = 9
    second[0, 4, 4, 4], second[(0, *place)] = 0.7, 0.3
    expected = 0.3 if name == DISTANCES[0] else 0.3 / 2  # the mean over two axes, of which one differs
    assert function(f"figures_of_merit:{name}")(first, second) == pytest.approx(expected)


def test_energy_response_distance_is_the_shift_of_the_response(real):
    x, energy = real
    distance = function("figures_of_merit:energy_response_distance")
    response = x.sum((1, 2, 3, 4)) / energy[:, 0]
    assert distance(x, 1.1 * x, energy[:, 0]) == pytest.approx(0.1 * response.mean(), rel=1e-4)
    flat = x * (response.mean() / response)[:, None, None, None, None]
    assert distance(x, flat, energy[:, 0]) == pytest.approx(np.abs(response - response.mean()).mean(), rel=1e-4)


@needs("keras")
def test_downsampling_is_a_convolution_with_strides():
    import keras

    x, kernel = (
        np.random.default_rng(1).normal(size=(2, 7, 7, 7, 3)),
        np.random.default_rng(2).normal(size=(4,) * 3 + (3, 5)),
    )
    shower = keras.Input(x.shape[1:])
    model = keras.Model(shower, function("gan:downsample")(shower, 5))
    blocks = kernel.reshape(2, 2, 2, 2, 2, 2, 3, 5).transpose(0, 2, 4, 1, 3, 5, 6, 7).reshape(2, 2, 2, 24, 5)
    model.set_weights([blocks, np.zeros(5)])
    expected = keras.ops.conv(x.astype(np.float32), kernel.astype(np.float32), strides=2, padding="same")
    np.testing.assert_allclose(model(x), expected, atol=1e-4)


@needs("keras")
def test_upsampling_is_a_transposed_convolution_with_strides():
    import keras

    x, kernel = (
        np.random.default_rng(1).normal(size=(2, 5, 5, 5, 3)),
        np.random.default_rng(2).normal(size=(4,) * 3 + (4, 3)),
    )
    shower = keras.Input(x.shape[1:])
    model = keras.Model(shower, function("gan:upsample")(shower, 4))
    blocks = kernel.reshape(2, 2, 2, 2, 2, 2, 4, 3)[::-1, :, ::-1, :, ::-1]
    blocks = blocks.transpose(0, 2, 4, 7, 1, 3, 5, 6).reshape(2, 2, 2, 3, 32)
    model.set_weights([blocks, np.zeros(32)])
    expected = keras.ops.conv_transpose(x.astype(np.float32), kernel.astype(np.float32), strides=2, padding="valid")
    np.testing.assert_allclose(model(x), expected, atol=1e-4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A copy of the experiment with few showers."""
    copy = tmp_path_factory.mktemp("gan") / "calorimeter_gan"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("*.h5", "*.db"))
    prepare("showers", copy / "showers.h5", simulate=40, energy=(10.0, 40.0))
    return copy


@needs("keras")
def test_the_short_form_trains_both_models_and_measures_the_showers(folder, monkeypatch):
    monkeypatch.chdir(folder)
    content = read_yaml(folder / "train.yaml") | {"epochs": 1, "batch_size": 18}
    content["parameters"] |= {"filters": 2, "dense": 8}
    result = train(content, MPI.COMM_SELF)
    assert {"discriminator_loss", "generator_loss"} <= set(result.history)
    real, generated, energy = function("figures_of_merit:showers")(result)
    assert real.shape == generated.shape == (4, 25, 25, 25, 1)
    assert 10 < energy.min() < energy.max() < 40
    assert real.sum((1, 2, 3, 4)) / energy == pytest.approx(np.ones(4), abs=0.25)
    assert (generated >= 0).all()
    for name in ("profile_distance", "response_distance"):
        measured = function(f"figures_of_merit:{name}")(result)
        assert 0 < measured < 10
        assert measured == function(f"figures_of_merit:{name}")(result)  # the noise is the same every time
    twice = function("figures_of_merit:generate")(result.model["generator"], np.array([[20.0], [20.0]], np.float32))
    assert not np.allclose(twice[0], twice[1])


def test_search_and_training_differ_only_in_their_hyperparameters(folder):
    space, alone = (read_yaml(folder / name) for name in ("search.yaml", "train.yaml"))
    space = space["training"]
    for section in (space, alone):
        for key in ("latent", "smoothing", "loss_weights", "generator_optimizer"):
            section["gan"].pop(key)
        section.pop("optimizer")
    assert alone.pop("parameters") == {"latent": 16}
    assert space == alone
    path = folder / "search.yaml"
    configuration = read_study(path)
    check_objective(configuration, configuration.search_space(), folder, str(path))
    assert configuration.figures_of_merit().names == ("profile_distance", "response_distance")
