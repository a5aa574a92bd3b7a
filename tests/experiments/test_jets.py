"""The networks of experiments/jets, their inputs and their figures of merit."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI
from sklearn.metrics import roc_auc_score, roc_curve

from mpi_learn import train
from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.loading import load
from mpi_learn.known_data import prepare
from mpi_learn.known_data.simulation.pythia_jets import simulate_jets
from mpi_learn.settings.user_code import load_function
from mpi_learn.settings.yaml_file import read_yaml
from mpi_opt.configuration.read_study import read_study
from mpi_opt.objectives.make_objective import check_objective
from tests.mpi_learn.known_data.originals import write_dijets
from tests.optional_packages import needs, with_marks

pytestmark = needs("pythia8mc")

FOLDER = Path(__file__).parents[2] / "experiments" / "jets"
OF_PYTORCH = {"particle_net": "torch"}
NETWORKS = with_marks(("gru", "conv1d", "conv2d", "deep_sets", "particle_net", "dijets"), OF_PYTORCH)
SETS = with_marks(("deep_sets", "particle_net"), OF_PYTORCH)


def function(name: str):
    """``file:function`` of the experiment."""
    file, _, found = name.partition(":")
    return load_function(f"{FOLDER / file}.py:{found}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A copy of the experiment with little data."""
    copy = tmp_path_factory.mktemp("jets") / "jets"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("*.h5", "*.db"))
    prepare("jets", copy / "jets.h5", simulate=400, particles=16, seed=2)
    write_dijets(copy / "original.h5")
    prepare("jets", copy / "dijets.h5", (copy / "original.h5").rename(copy / "dijet_jets.h5"))
    return copy


@pytest.fixture(scope="module")
def raw() -> np.ndarray:
    """The particles of simulated jets."""
    (block,) = simulate_jets(60, seed=3, particles=20)
    return block["X"]


def some_scores(n: int = 3000, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    signal = rng.random(n) < 0.3
    score = rng.normal(size=n) + signal
    return (np.round(score) if ties else score), signal


@pytest.mark.parametrize("ties", [False, True])
def test_area_under_the_curve_is_that_of_scikit_learn(ties):
    score, signal = some_scores(ties=ties)
    assert function("figures_of_merit:area_under_curve")(score, signal) == pytest.approx(roc_auc_score(signal, score))


@pytest.mark.parametrize("efficiency", [0.3, 0.5, 0.8])
def test_rejection_is_read_off_the_curve_of_scikit_learn(efficiency):
    score, signal = some_scores()
    background, passed, _ = roc_curve(signal, score, drop_intermediate=False)
    expected = 1 / np.interp(efficiency, passed, background)
    assert function("figures_of_merit:rejection")(score, signal, efficiency) == pytest.approx(expected, rel=0.03)


def test_rejection_is_finite_if_no_background_passes():
    score, signal = np.arange(10.0), np.arange(10) >= 6
    assert function("figures_of_merit:rejection")(score, signal) == 6


def test_a_better_model_has_larger_figures_of_merit():
    rng = np.random.default_rng(2)
    y = rng.integers(2, size=2000)
    x = (y + rng.normal(size=2000)).astype(np.float32)

    def result(noise: float):
        def predict(x, **_):
            signal = 1 / (1 + np.exp(-x + noise * rng.normal(size=len(x))))
            return np.stack([1 - signal, signal], 1)

        return SimpleNamespace(model=SimpleNamespace(predict=predict), validation=(x, y))

    for name in ("auc", "background_rejection"):
        measure = function(f"figures_of_merit:{name}")
        assert measure(result(0.0)) > measure(result(2.0)) > 0.5
    assert function("figures_of_merit:auc")(result(0.0)) == pytest.approx(roc_auc_score(y, x))


def test_with_five_classes_heavy_particles_are_the_signal():
    score = function("figures_of_merit:signal_score")(np.array([[0.1, 0.1, 0.2, 0.2, 0.4], [0.5, 0.3, 0.1, 0.1, 0.0]]))
    np.testing.assert_allclose(score, np.log([0.8 / 0.2, 0.2 / 0.8]), rtol=1e-6)
    assert function("figures_of_merit:is_signal")(np.arange(5), 5).tolist() == [False, False, True, True, True]
    assert function("figures_of_merit:is_signal")(np.arange(2), 2).tolist() == [False, True]


def test_particles_are_of_order_one_and_filling_is_zero(raw):
    x = function("inputs:particles")(raw)
    filling = raw[..., 0] == 0
    assert filling.any()
    assert (x[filling] == 0).all()
    assert (x[~filling, 0] > 0).all()
    assert 0.2 < np.abs(x[~filling]).max(0).min() < np.abs(x).max() < 6
    np.testing.assert_allclose(x[..., 1].sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(x[..., 5], raw[..., 3])


def test_images_hold_the_momentum_and_do_not_change_when_a_jet_is_turned_or_mirrored(raw):
    images = function("inputs:images")
    seen = images(raw)
    share = (seen.astype(float) ** 2).sum((1, 2))
    assert (share[:, 0] <= 1 + 1e-5).all()
    assert np.median(share[:, 0]) > 0.98
    assert (seen[..., 1] <= seen[..., 0] + 1e-6).all()
    turned = raw.copy()
    turned[..., 1], turned[..., 2] = 0.6 * raw[..., 1] - 0.8 * raw[..., 2], -0.8 * raw[..., 1] - 0.6 * raw[..., 2]
    same = np.abs(images(turned) - seen).max((1, 2, 3)) < 1e-3
    assert same.mean() > 0.8  # in others a particle at the edge of a pixel fell into the next


def test_a_hard_particle_is_in_the_pixel_of_its_place():
    x = np.zeros((1, 3, 4), np.float32)
    x[0] = [[300, 0, 0.32, 1], [200, 0, -0.2, 0], [100, 0.1, 0.21, -1]]  # along φ, with more on its positive side
    image = function("inputs:images")(x)[0] ** 2
    assert image[..., 0].sum() == pytest.approx(1)
    row, column = np.unravel_index(image[..., 0].argmax(), (24, 24))
    assert (row in (11, 12), column) == (True, 18)
    assert image[..., 1].sum() == pytest.approx(400 / 600)


@pytest.mark.parametrize("name", NETWORKS)
def test_search_and_training_agree_and_every_hyperparameter_is_used(name, folder):
    space, alone = read_yaml(FOLDER / f"search_{name}.yaml"), read_yaml(FOLDER / f"train_{name}.yaml")
    alone["data"].pop("validation_fraction")
    assert space["training"].pop("optimizer") == {"name": "adam", "learning_rate": "$learning_rate"}
    assert alone.pop("optimizer") == {"name": "adam", "learning_rate": 0.001}
    assert (space["training"].pop("batch_size"), alone.pop("batch_size")) == ("$batch_size", 64)
    assert space["training"] == alone
    path = folder / f"search_{name}.yaml"
    configuration = read_study(path)
    check_objective(configuration, configuration.search_space(), folder, str(path))
    assert configuration.folds.number == 3
    assert configuration.blocks.size == 2


def inputs_of(name: str, raw: np.ndarray) -> np.ndarray:
    if name == "dijets":
        return np.random.default_rng(4).normal(size=(len(raw), 21)).astype(np.float32)
    return function("inputs:images" if name == "conv2d" else "inputs:particles")(raw)


@needs("keras")
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_take_the_inputs_and_give_probabilities(name, raw):
    model = function(read_yaml(FOLDER / f"train_{name}.yaml")["model"].replace(".py", ""))(classes=5)
    found = function("figures_of_merit:probabilities")(model, inputs_of(name, raw))
    assert found.shape == (len(raw), 5)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    assert found.std(0).min() > 1e-4


@needs("keras")
@pytest.mark.parametrize("name", SETS)
def test_networks_of_sets_see_neither_order_nor_filling(name, raw):
    model = function(read_yaml(FOLDER / f"train_{name}.yaml")["model"].replace(".py", ""))()
    probabilities = function("figures_of_merit:probabilities")
    x = inputs_of(name, raw)
    order = np.random.default_rng(5).permutation(x.shape[1])
    filled = np.pad(x, ((0, 0), (0, 7), (0, 0)))
    expected = probabilities(model, x)
    np.testing.assert_allclose(probabilities(model, x[:, order]), expected, atol=1e-5)
    np.testing.assert_allclose(probabilities(model, filled), expected, atol=1e-5)


@needs("keras")
@pytest.mark.parametrize("name", SETS)
def test_the_short_form_of_a_training_gives_figures_of_merit(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    content = read_yaml(folder / f"train_{name}.yaml") | {"batch_size": 64, "epochs": 2}
    result = train(content, MPI.COMM_SELF)
    assert result.history["loss"][1] < result.history["loss"][0]
    assert 0.5 < function("figures_of_merit:auc")(result) < 1
    assert function("figures_of_merit:background_rejection")(result) > 1


def test_the_inputs_are_made_while_files_are_read(folder):
    for name, shape in (("particles", (16, 6)), ("images", (24, 24, 2))):
        features = {"names": "X", "function": f"{FOLDER}/inputs.py:{name}"}
        configuration = DataConfiguration(train=str(folder / "jets.h5"), features=features, labels="y")
        (x,) = load(configuration, MPI.COMM_SELF, seed=0).training.x
        assert x.shape[1:] == shape
