"""Two models that train each other: against plain loops of each framework, and on several ranks."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.data.samples.batches import Batches, BatchOptions, Dataset
from mpi_learn.data.samples.make_batches import validation_batches
from mpi_learn.data.samples.stored_samples import ClassWeights, SampleFormat, Samples
from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.known_data import prepare
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.gan.adversarial_pair import AdversarialPair, Noise
from mpi_learn.models.gan.section import GanSection, Turn
from mpi_learn.models.settings import Example
from mpi_learn.optimizers.configuration import Adam, Sgd
from mpi_learn.optimizers.optimizer import make_optimizer
from mpi_learn.optimizers.wrapped_optimizers import SeparateOptimizers
from mpi_learn.settings.component import Component
from mpi_learn.training.configuration import read_configuration
from mpi_learn.training.context import open_context
from mpi_learn.training.setup import build_model
from mpi_learn.training.train import check
from tests.mpi_learn.configurations_for_tests import (
    GAN_LOSS,
    KERAS,
    TORCH,
    gan_configuration,
    model_settings,
    unlabelled,
)
from tests.mpi_learn.models_for_tests import digits
from tests.optional_packages import by_framework, needs
from tests.shared_data import SHARED, needs_shared
from tests.world import in_world

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FRAMEWORKS = pytest.mark.parametrize("file", by_framework([KERAS, TORCH]), ids=["keras", "torch"])
PAIR = AdversarialPair(GanSection(latent=8))
ONE_OF_KERAS = [
    pytest.param(KERAS, marks=[needs("keras"), pytest.mark.thorough]),
    pytest.param(TORCH, marks=needs("torch")),
]
"""For tests of what is common to both frameworks, which take long with Keras."""
NAMES = ("discriminator_loss", "generator_loss")
STEPS = {"discriminator": 2, "generator": 1}


def test_noise_belongs_to_a_place_and_is_normal():
    noise = Noise(seed=7, size=5, turns=3)
    whole = noise.draw(2, 0, 4000)
    assert whole.shape == (3, 4000, 5)
    np.testing.assert_array_equal(noise.draw(2, 1234, 100), whole[:, 1234:1334])
    assert not np.array_equal(noise.draw(3, 0, 4000), whole)
    assert noise.draw(2, 4000, 0).shape == (3, 0, 5), "a worker may have an empty batch"
    assert abs(whole.mean()) < 0.02
    assert whole.std() == pytest.approx(1, abs=0.02)
    assert np.mean(np.abs(whole) < 1.96) == pytest.approx(0.95, abs=0.005)
    flat = np.corrcoef(whole.swapaxes(0, 1).reshape(4000, -1).T) - np.eye(15)
    assert np.abs(flat).max() < 0.08
    even = Noise(seed=7, size=5, is_normal=False).draw(0, 0, 4000)
    assert np.abs(even).max() <= 1
    assert even.var() == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize("n_workers", [1, 3])
def test_workers_together_see_the_noise_of_one(n_workers):
    dataset = replace(unlabelled(), added_input=Noise(seed=1, size=4, turns=2))
    whole = list(Batches(dataset, BatchOptions(150, seed=5)).epoch(1))
    options = [BatchOptions(150 // n_workers, n_workers, worker, seed=5) for worker in range(n_workers)]
    shares = [list(Batches(dataset, one).epoch(1)) for one in options]
    assert len(whole) == 8
    for step, batch in enumerate(whole):
        for place in (0, 1):
            joined = np.concatenate([share[step].x[place] for share in shares])
            np.testing.assert_array_equal(joined, batch.x[place])
    assert not np.array_equal(whole[0].x[1], whole[1].x[1])
    assert len(next(validation_batches(dataset, batch_size=50)).x) == 2


@needs("torch")
@pytest.mark.parametrize(
    "changes", [{"weights": (np.ones(1797, np.float32),)}, {"class_weights": ClassWeights({1: 5})}]
)
def test_weights_of_samples_are_refused_because_a_gan_would_not_use_them(changes):
    bare = digits()
    samples = Samples(bare.training.x, bare.training.y, changes.pop("weights", ()))
    dataset = replace(bare, training=samples, validation=samples, **changes)
    with pytest.raises(ConfigurationError, match="does not use the weights of samples"):
        train(gan_configuration(TORCH), MPI.COMM_SELF, data=dataset)


def test_rounds_name_the_models_that_are_updated():
    d, g, both = Turn(True, False), Turn(False, True), Turn(True, True)
    assert GanSection(steps=STEPS).turns == (d, d, g)
    assert GanSection(steps=STEPS).turns_per_batch == 3
    batchwise = GanSection(steps={"discriminator": 1, "generator": 3}, exchange="batch")
    assert batchwise.turns == (g, g, both)
    assert batchwise.turns_per_batch == 1


def test_resting_model_keeps_weights_momentum_and_step_count():
    layout = FlatLayout(((3,), (1,), (2,), (1,)), (2, 2))
    own = [make_optimizer(Adam(), FlatLayout(((3,),))), make_optimizer(Sgd(momentum=0.9), FlatLayout(((2,),)))]
    alone = make_optimizer(Adam(), FlatLayout(((3,),)))
    optimizer = SeparateOptimizers(layout, own)
    weights, expected = np.zeros(7, np.float32), np.zeros(3, np.float32)
    gradient = np.array([1, 2, 3, 4, 0, 0, 0], np.float32)  # of 4 samples of the first, none of the second
    for _ in range(3):
        optimizer.update(weights, gradient, 123.0)
        alone.update(expected, gradient[:3], 0.25)
    np.testing.assert_array_equal(weights[:3], expected)
    assert not weights[3:].any()
    assert [one.n_steps for one in own] == [3, 0]
    second = np.array([0, 0, 0, 0, 6, 3, 3], np.float32)
    optimizer.update(weights, second)
    np.testing.assert_array_equal(weights[:3], expected)
    np.testing.assert_allclose(weights[4:], [-0.02, -0.01, 0], rtol=1e-6)
    assert {"0.AdaptiveMoments.mean", "1.StochasticGradientDescent.velocity", "0.n_steps"} <= set(optimizer.arrays())


def keras_loop(options: GanSection, epochs: int, dataset: Dataset) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Goodfellow's algorithm with nothing but Keras: the weights of discriminator and generator."""
    import keras
    import tensorflow as tf

    from tests.mpi_learn.models_for_tests import build_gan

    keras.utils.set_random_seed(3)
    pair = build_gan()
    d, g = pair["discriminator"], pair["generator"]
    entropy = keras.losses.BinaryCrossentropy()
    d_moves, g_moves = keras.optimizers.Adam(0.001), keras.optimizers.Adam(0.001)
    ones, zeros = (lambda n: tf.ones((n, 1))), (lambda n: tf.zeros((n, 1)))
    rounds = 0
    for epoch in range(epochs):
        for batch in Batches(dataset, BatchOptions(100, seed=3)).epoch(epoch):
            turn = options.turns[rounds % len(options.turns)]
            rounds += 1
            real, noise = batch.x
            n = len(real)
            with tf.GradientTape() as d_tape, tf.GradientTape() as g_tape:
                fake = g(noise, training=True)
                answer = d(fake, training=True)
                g_loss = entropy(ones(n), answer)
                truth = ones(n) * (1 - options.smoothing)
                d_loss = (entropy(truth, d(real, training=True)) + entropy(zeros(n), answer)) / 2
            gradients = d_tape.gradient(d_loss, d.trainable_variables), g_tape.gradient(g_loss, g.trainable_variables)
            for moves, optimizer, model, gradient in zip(turn, (d_moves, g_moves), (d, g), gradients, strict=True):
                if moves:
                    optimizer.apply_gradients(zip(gradient, model.trainable_variables, strict=True))
    return d.get_weights(), g.get_weights()


def torch_loop(options: GanSection, epochs: int, dataset: Dataset) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The same with nothing but PyTorch."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits as entropy

    from tests.mpi_learn.torch_models_for_tests import build_gan

    torch.manual_seed(3)
    pair = build_gan()
    d, g = pair["discriminator"], pair["generator"]
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9) for one in (d, g)]
    rounds = 0
    for epoch in range(epochs):
        for batch in Batches(dataset, BatchOptions(100, seed=3)).epoch(epoch):
            turn = options.turns[rounds % len(options.turns)]
            rounds += 1
            real, noise = map(torch.from_numpy, batch.x)
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            fake = g(noise)
            truth = ones * (1 - options.smoothing)
            losses = (entropy(d(real), truth) + entropy(d(fake.detach()), zeros)) / 2, entropy(d(fake), ones)
            found = [
                torch.autograd.grad(loss, list(one.parameters()), retain_graph=True)
                for loss, one in zip(losses, (d, g), strict=True)
            ]
            for moves, optimizer, model, gradient in zip(turn, optimizers, (d, g), found, strict=True):
                if moves:
                    for parameter, value in zip(model.parameters(), gradient, strict=True):
                        parameter.grad = value
                    optimizer.step()
    return tuple([p.detach().numpy() for p in one.parameters()] for one in (d, g))


@needs("keras")
@FRAMEWORKS
@pytest.mark.parametrize(("exchange", "smoothing"), [("model", 0.0), ("batch", 0.2)])
def test_training_equals_a_plain_loop(file, exchange, smoothing):
    gan = {"latent": 8, "steps": STEPS, "exchange": exchange, "smoothing": smoothing}
    sgd = {"optimizer": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9}} if file == TORCH else {}
    result = train(gan_configuration(file, gan=gan, **sgd), MPI.COMM_SELF, data=unlabelled())
    options = GanSection(**gan)
    dataset = replace(unlabelled(), added_input=Noise(3, 8, options.turns_per_batch))
    expected = (keras_loop if file == KERAS else torch_loop)(options, 2, dataset)
    for name, arrays in zip(("discriminator", "generator"), expected, strict=True):
        model = result.model[name]
        ours = model.get_weights() if file == KERAS else [one.detach().numpy() for one in model.parameters()]
        for mine, other in zip(ours, arrays, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4)
    history = result.history
    assert set(history) == {f"{v}{name}" for v in ("", "val_") for name in ("loss", *NAMES)}
    np.testing.assert_allclose(np.array(history["loss"]), np.sum([history[name] for name in NAMES], 0), rtol=1e-6)


@needs("torch")
def test_a_total_batch_leaves_a_gan_at_the_begin_of_its_round():
    configuration = read_configuration(gan_configuration(TORCH, gan={"steps": STEPS}, batch_size={"total": 100}))
    with open_context(configuration, MPI.COMM_SELF, unlabelled()) as context, closing(build_model(context)) as model:
        assert model.state.place == 0


@needs("torch")
def test_check_counts_the_parameters_of_both_models_and_prints_the_norm_of_their_gradients():
    """Steps of SGD with the learning rates 1 and 2 differ by the gradient."""
    common = {"gan": {"exchange": "batch"}, "batch_size": 600, "epochs": 1}
    ends = []
    for rate in (1, 2):
        optimizer = {"name": "sgd", "learning_rate": rate, "momentum": 0, "schedule": {"name": "constant"}}
        models = train(gan_configuration(TORCH, **common, optimizer=optimizer), MPI.COMM_SELF, data=unlabelled()).model
        arrays = [parameter.detach().numpy().ravel() for model in models.values() for parameter in model.parameters()]
        ends.append(np.concatenate(arrays))
    said = check(read_configuration(gan_configuration(TORCH, **common)), MPI.COMM_SELF, data=unlabelled())
    assert f"{ends[0].size:,} in {len(arrays)} trainable arrays" in said
    assert float(re.search(r"norm (\S+),", said)[1]) == pytest.approx(np.linalg.norm(ends[1] - ends[0]), rel=1e-3)


@needs("torch")
def test_check_names_the_noise_of_features_that_have_names():
    plain = unlabelled()
    named = replace(plain, training=replace(plain.training, format=SampleFormat(x_names=("image",))))
    said = check(read_configuration(gan_configuration(TORCH)), MPI.COMM_SELF, data=named)
    assert re.search(r"inputs +image \(.*, noise \(", said)


@pytest.mark.parametrize("file", ONE_OF_KERAS, ids=["keras", "torch"])
def test_resumed_training_has_the_losses_of_one_never_stopped(file, tmp_path):
    common = gan_configuration(
        file, parameters={"dropout": 0.3, "norm": True}, gan={"exchange": "batch", "steps": {"discriminator": 5}}
    )
    whole = train(common | {"epochs": 4}, MPI.COMM_SELF, data=unlabelled())
    checkpoint = {"checkpoint": {"path": str(tmp_path)}}
    train(common | {"epochs": 2} | checkpoint, MPI.COMM_SELF, data=unlabelled())
    resumed = train(common | {"epochs": 4} | checkpoint, MPI.COMM_SELF, data=unlabelled())
    assert resumed.history == whole.history


@pytest.mark.parametrize("file", ONE_OF_KERAS, ids=["keras", "torch"])
def test_labels_condition_the_generator_and_are_predicted(file, tmp_path):
    losses = [GAN_LOSS[file], "sparse_categorical_crossentropy"]
    changes = {"model": f"{file}:build_conditional_gan", "loss": losses, "metrics": [f"{file}:pixel_gap"]}
    gan = {"condition": "generator", "smoothing": 0.1, "loss_weights": [1.0, 3.0]}
    own = {"discriminator_optimizer": {"name": "adam", "learning_rate": 0.002}}
    rates = {"gan": gan | own, "epochs": 30, "optimizer": {"name": "adam", "learning_rate": 0.003}}
    result = train(gan_configuration(file, **changes, **rates), MPI.COMM_SELF, data=digits())
    gap = result.history["val_pixel_gap"]
    assert min(gap) < 0.6 * gap[0]
    x, y = result.validation
    noise = Noise(9, 8).draw(0, 0, len(y))[0]
    if file == KERAS:
        named = result.model["discriminator"].predict(x, verbose=0)[1]
        made = [result.model["generator"].predict([noise, y * 0 + digit], verbose=0).mean(0) for digit in range(10)]
    else:
        import torch

        with torch.no_grad():
            named = result.model["discriminator"](torch.from_numpy(x))[1].numpy()
            both = [torch.from_numpy(noise), torch.from_numpy(y)]
            made = [result.model["generator"](both[0], both[1] * 0 + digit).numpy().mean(0) for digit in range(10)]
    assert np.mean(named.argmax(1) == y) > 0.7
    means = [x[y == digit].mean(0) for digit in range(10)]
    made, means = (np.array(one) - np.mean(one, 0) for one in (made, means))
    assert np.corrcoef(made.ravel(), means.ravel())[0, 1] > 0.25  # 0.05 to 0.1 where labels are hardly minded
    saved = result.save_model(tmp_path / "model")
    suffix = ".keras" if file == KERAS else ".pt"
    assert saved == tmp_path / f"model_generator{suffix}"
    assert {one.name for one in tmp_path.iterdir()} == {f"model_generator{suffix}", f"model_discriminator{suffix}"}


@needs("keras")
def test_best_epoch_is_that_of_the_users_metric():
    changes = {"metrics": [f"{KERAS}:pixel_gap"], "epochs": 4}
    stopping = {"early_stopping": {"metric": "val_pixel_gap", "mode": "min", "patience": 4}}
    result = train(gan_configuration(KERAS, **changes, **stopping), MPI.COMM_SELF, data=unlabelled())
    assert result.best_epoch == int(np.argmin(result.history["val_pixel_gap"]))


WRONG = {
    "one model": (
        {"model": f"{TORCH}:build_regression"},
        ModelError,
        "expected two models, both of Keras or both of PyTorch",
    ),
    "latent": ({"gan": {"latent": 9}}, ModelError, "gan.latent"),
    "metric": ({"metrics": ["accuracy"]}, ConfigurationError, "real, generated"),
    "file": ({"model": "model.keras"}, ConfigurationError, "file.py:function"),
    "top-k": ({"algorithm": {"name": "allreduce", "compression": "top-k"}}, ConfigurationError, "compression: top-k"),
    "power-sgd": ({"algorithm": {"name": "allreduce", "compression": "power-sgd"}}, ConfigurationError, "power-sgd"),
    "accumulate": ({"algorithm": {"name": "allreduce", "accumulate": 2}}, ConfigurationError, "exchange: batch"),
    "weights": (
        {"gan": {"latent": 8, "loss_weights": [1, 2]}}, ConfigurationError,
        r"gan.loss_weights: expected one entry per output of the discriminator, 1 in all, found 2\n.*write \[…\]$",
    ),
    "loss": ({"loss": [None]}, ConfigurationError, r"every output .* needs a loss\n.*add a loss for the output"),
    "condition": ({"gan": {"latent": 8, "condition": "discriminator"}, "labels": True}, ModelError, "data.features"),
}  # fmt: skip


OTHER_SHAPE = """
from torch import nn

class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(1, 1)

    def forward(self, x):
        return self.last(x.mean(1, keepdim=True))

def build(**arguments):
    return {"generator": nn.Linear(8, 3), "discriminator": Mean()}
"""


@needs("torch")
def test_a_generator_of_samples_of_another_shape_is_refused_with_both_shapes(tmp_path):
    (tmp_path / "models.py").write_text(OTHER_SHAPE)
    changes = {"model": f"{tmp_path}/models.py:build"}
    with pytest.raises(ModelError, match=r"the generator makes samples of shape \(3,\), the data have \(64,\)"):
        train(gan_configuration(TORCH) | changes, MPI.COMM_SELF, data=unlabelled())


@needs("torch")
@pytest.mark.parametrize(("changes", "kind", "said"), WRONG.values(), ids=WRONG)
def test_data_that_do_not_fit_are_refused_before_the_first_step(changes, kind, said):
    changes = dict(changes)
    data = digits() if changes.pop("labels", False) else unlabelled()
    with pytest.raises(kind, match=said):
        train(gan_configuration(TORCH) | changes, MPI.COMM_SELF, data=data)


REFUSED_ON_RANKS = {
    "a sum of keras": (KERAS, {"loss": {"name": "BinaryCrossentropy", "reduction": "sum"}}, "the loss is a sum"),
    "a sum of pytorch": (TORCH, {"loss": f"{TORCH}:summed_entropy"}, "the loss is a sum"),
    "a penalty that is a sum": (KERAS, {"parameters": {"penalty": True}}, "or has a term that is"),
    "synchronised statistics of keras": (KERAS, {"parameters": {"synchronized": True}}, "synchronises its batch stat"),
    "synchronised statistics of pytorch": (TORCH, {"parameters": {"synchronized": True}}, "synchronises its batch st"),
}


@needs("keras")
@pytest.mark.parametrize(("file", "changes", "said"), by_framework(REFUSED_ON_RANKS.values()), ids=REFUSED_ON_RANKS)
def test_gan_that_several_ranks_would_train_in_another_way_is_refused_on_several_ranks(file, changes, said):
    name = "build_special_gan" if "parameters" in changes else "build_gan"
    loss = changes.get("loss", GAN_LOSS[file])
    loss = Component.model_validate(loss) if isinstance(loss, dict) else loss
    settings = model_settings(f"{file}:{name}", changes.get("parameters", {}), loss)
    example = Example([digits().training.x[0][:20], np.ones((20, 8), np.float32)], ())
    make_model(settings, example, PAIR).close()
    with pytest.raises((ConfigurationError, ModelError), match=said):
        make_model(replace(settings, n_workers=2), example, PAIR)


@needs("torch")
def test_mean_of_the_user_trains_a_gan_on_several_ranks():
    settings = model_settings(f"{TORCH}:build_gan", loss=f"{TORCH}:mean_entropy", n_workers=2)
    example = Example([digits().training.x[0][:20], np.ones((20, 8), np.float32)], ())
    assert make_model(settings, example, PAIR).has_custom_loss


@needs("torch")
@pytest.mark.parametrize("normalised", ["generator", "discriminator"])
def test_last_batch_of_one_sample_is_refused_if_one_of_the_models_has_batch_normalisation(normalised):
    changes = {"model": f"{TORCH}:build_normalised_gan", "parameters": {"normalised": normalised}, "batch_size": 599}
    with pytest.raises(ConfigurationError, match="the smallest batch has 1 sample, the model needs 2"):
        train(gan_configuration(TORCH, **changes), MPI.COMM_SELF, data=unlabelled())


def named_gan(file, loss, y_names=(), n_labels=1, **parameters):
    """A GAN whose discriminator names its outputs real, digit and, with two labels, again."""
    of_classes = {KERAS: "sparse_categorical_crossentropy", TORCH: "cross_entropy"}[file]
    losses = {"real": "mse"} | dict.fromkeys(("digit", "again")[:n_labels], of_classes)
    settings = model_settings(f"{file}:build_named_gan", parameters | {"n_labels": n_labels}, loss(losses), seed=1)
    pixels, digit = digits().training.x[0][:20], digits().training.y[0][:20]
    return make_model(
        settings, Example([pixels, np.ones((20, 8), np.float32)], [digit] * n_labels, (), (), y_names), PAIR
    )


@needs("keras")
@FRAMEWORKS
def test_losses_are_assigned_to_the_outputs_of_a_discriminator_by_their_names(file):
    pixels, digit = digits().training.x[0][:20], digits().training.y[0][:20]
    steps = [
        named_gan(file, order).gradient([pixels, np.ones((20, 8), np.float32)], [digit])
        for order in (lambda losses: list(losses.values()), lambda losses: dict(reversed(losses.items())))
    ]
    assert steps[0].any()
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigurationError, match=r"no output kind\n.*its outputs are: real, digit"):
        named_gan(file, lambda losses: {"real": losses["real"], "kind": losses["digit"]})


@needs("keras")
@FRAMEWORKS
def test_the_only_output_of_a_discriminator_may_have_any_name(file):
    example = Example([digits().training.x[0][:20], np.ones((20, 8), np.float32)], [])
    steps = []
    for loss in (Component(name="mse"), {"validity": Component(name="mse")}):
        settings = model_settings(f"{file}:build_named_gan", {"n_labels": 0}, loss, seed=1)
        steps.append(make_model(settings, example, PAIR).gradient(example.x, []).copy())
    assert steps[0].any()
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-5, atol=1e-6)


@needs("keras")
@FRAMEWORKS
def test_outputs_of_a_discriminator_that_have_no_order_are_refused(file):
    with pytest.raises(ModelError, match=r"the discriminator returns its outputs by name .* which have no order"):
        named_gan(file, lambda losses: losses, form="dict")


@needs("keras")
@FRAMEWORKS
def test_outputs_of_a_generator_that_have_no_order_are_refused(file):
    """Keras would sort them by name, and exchange two features of the same shape."""
    example = Example([np.ones((20, 4), np.float32)] * 2 + [np.ones((20, 8), np.float32)], [])
    of_tuple, of_dict = (
        model_settings(f"{file}:build_gan_of_two_features", {"form": form}, "mse") for form in ("tuple", "dict")
    )
    make_model(of_tuple, example, PAIR).close()
    with pytest.raises(ModelError, match=r"the generator returns its outputs by name .*, which have no order") as error:
        make_model(of_dict, example, PAIR)
    assert "the order of data.features" in str(error.value)


@needs("keras")
@FRAMEWORKS
def test_named_labels_in_another_order_than_the_outputs_of_a_discriminator_are_refused(file):
    named_gan(file, lambda losses: losses, ("digit", "again"), n_labels=2).close()
    with pytest.raises(ModelError, match="returns digit, again, the labels are again, digit"):
        named_gan(file, lambda losses: losses, ("again", "digit"), n_labels=2)


def test_losses_of_both_can_be_watched():
    watched = {"early_stopping": {"metric": "val_generator_loss"}}
    data = {"train": ["x.h5"], "features": "X", "labels": None, "validation_fraction": 0.1}
    assert "val_generator_loss" in read_configuration(gan_configuration(KERAS, data=data, **watched)).metric_names()


@cache
def on_ranks(n: int, cases: str = "synchronous") -> dict:
    done = in_world(n, "-m", "tests.mpi_learn.programs.adversarial", cases, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs("torch")
@pytest.mark.mpi
@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("case", ["keras model", "keras batch", "torch model", "torch batch", "accumulated"])
def test_ranks_train_to_the_losses_of_one_rank_with_all_their_batches(n, case):
    alone, together = on_ranks(1)[case][0], on_ranks(n)[case]
    assert all(one == together[0] for one in together)
    for name, values in alone["history"].items():
        assert together[0]["history"][name] == pytest.approx(values, abs=2e-4), name
    assert together[0]["weights"] == pytest.approx(alone["weights"], rel=2e-3)


@needs("torch")
@pytest.mark.thorough  # a minute and a half: three ranks on two cores
@pytest.mark.mpi
@pytest.mark.parametrize("name", ["downpour", "synchronous", "easgd", "gem", "clusters", "2-bit", "dynamic"])
def test_every_algorithm_trains_both_models_and_ranks_agree(name):
    seen = on_ranks(3, "others")[name]
    assert all(one == seen[0] for one in seen)
    gap = seen[0]["history"]["val_pixel_gap"]
    assert min(gap) < 0.85 * gap[0]
    assert np.isfinite(np.array(seen[0]["history"]["loss"])).all()


@needs("keras")
@needs_shared
def test_showers_in_a_calorimeter_train_in_three_dimensions():
    changes = {"model": f"{KERAS}:build_shower_gan", "gan": {"latent": 16}, "batch_size": 4, "epochs": 2}
    data = {
        "train": [str(SHARED / "calo" / "odd_voxels.h5")],
        "features": "gamma",
        "labels": None,
        "validation_fraction": 0.2,
    }
    result = train(gan_configuration(KERAS) | changes | {"data": data}, MPI.COMM_SELF)
    noise = Noise(0, 16).draw(0, 0, 3)[0]
    assert result.model["generator"].predict(noise, verbose=0).shape == (3, 24, 24, 24)
    assert np.isfinite(result.history["val_loss"]).all()


@pytest.mark.thorough
@pytest.mark.mpi
def test_the_example_searches_for_a_gan(tmp_path):
    prepare("digits", tmp_path / "digits.h5")
    for name in ("gan.py", "gan.yaml"):
        text = (ROOT / "searchspaces" / name).read_text().replace("epochs: 40", "epochs: 2")
        (tmp_path / name).write_text(text)
    done = in_world(3, "-m", "mpi_opt", "search", "gan.yaml", "--trials", "2", cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    connection = sqlite3.connect(tmp_path / "gan.db")
    found = connection.execute("SELECT figure_of_merit FROM trials WHERE state = 'complete'").fetchall()
    connection.close()
    assert len(found) == 2
    assert all(0 < value < 20 for (value,) in found)


@needs("torch")
@pytest.mark.parametrize("condition", ["discriminator", ["generator", "discriminator"]])
def test_labels_are_an_input_of_the_models_that_are_conditioned_on_them(condition):
    """Losses and gradients of the first step are those of PyTorch alone."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits as entropy

    settings = model_settings(
        f"{TORCH}:build_gan_with_labels", {"of_generator": condition != "discriminator"}, GAN_LOSS[TORCH], seed=1
    )
    pixels, digit = digits().training.x[0][:20], digits().training.y[0][:20]
    noise = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    pair = AdversarialPair(GanSection(latent=8, condition=condition))
    model = make_model(settings, Example([pixels, noise], [digit]), pair)
    losses = model.probe([pixels, noise], [digit])
    step = model.gradient([pixels, noise], [digit])
    d, g = (model.networks[name].current() for name in ("discriminator", "generator"))
    labels = torch.from_numpy(digit)
    fake = g(torch.from_numpy(noise), *([labels] if condition != "discriminator" else []))
    ones, zeros = torch.ones(20, 1), torch.zeros(20, 1)
    d_loss = (entropy(d(torch.from_numpy(pixels), labels), ones) + entropy(d(fake.detach(), labels), zeros)) / 2
    g_loss = entropy(d(fake, labels), ones)
    np.testing.assert_allclose(np.array(losses) / 20, [d_loss.item(), g_loss.item()], rtol=1e-5)
    expected = [*torch.autograd.grad(d_loss, list(d.parameters()))]
    np.testing.assert_allclose(
        step[: sum(one.numel() for one in expected)] / 20, np.concatenate([one.ravel() for one in expected]), atol=1e-6
    )
