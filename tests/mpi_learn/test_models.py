"""Every model of every framework behind the one interface."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import read_configuration, train
from mpi_learn.errors import ConfigurationError, DataError, ModelError
from mpi_learn.flat_layout import LOSS, N_SAMPLES, WEIGHT, FlatLayout
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.gan.adversarial_pair import AdversarialPair
from mpi_learn.models.gan.section import GanSection
from mpi_learn.models.model import UNSAVED_RANDOM, Model
from mpi_learn.models.settings import Example
from mpi_learn.models.weights_only import ModelSizes, WeightsOnly
from mpi_learn.settings.component import Component
from mpi_learn.training.train import check
from tests.mpi_learn.configurations_for_tests import model_settings
from tests.mpi_learn.models_for_tests import digits, line
from tests.optional_packages import by_framework, needs

HERE = Path(__file__).parent
KERAS, TORCH = f"{HERE}/models_for_tests.py", f"{HERE}/torch_models_for_tests.py"
KERAS_KINDS, TORCH_KINDS = f"{HERE}/conformance/keras_models.py", f"{HERE}/conformance/torch_models.py"
rng = np.random.default_rng(0)
X3 = rng.normal(size=(20, 3)).astype("f")
X64 = rng.random((20, 64)).astype("f")
CLASSES = rng.integers(0, 10, 20)
A, B = rng.normal(size=(20, 5)).astype("f"), rng.normal(size=(20, 2)).astype("f")
BOTH = ((A, B), (A.sum(1, keepdims=True), (B[:, 0] > 0).astype(np.int64)))

FACTORS = Component.model_validate({"name": "cross_entropy", "weight": list(range(1, 11)), "ignore_index": 3})

MODELS = {
    "keras regression": (f"{KERAS}:build_regression", {}, "mse", ["mae"], (X3,), (X3[:, 0],)),
    "keras classes": (
        f"{KERAS}:build_model", {"norm": True}, "sparse_categorical_crossentropy", ["accuracy"], (X64,), (CLASSES,),
    ),
    "keras one-hot": (
        f"{KERAS}:build_model", {}, "categorical_crossentropy", ["accuracy"], (X64,), (np.eye(10, dtype="f")[CLASSES],),
    ),
    "keras own loss": (f"{KERAS}:build_regression", {}, f"{KERAS}:squared_error", ["mae"], (X3,), (X3[:, 0],)),
    "keras two by two": (
        f"{KERAS_KINDS}:two_by_two", {}, ["mse", "sparse_categorical_crossentropy"], {"energy": ["mae"]}, *BOTH,
    ),
    "torch regression": (f"{TORCH}:build_regression", {}, "mse", ["mae"], (X3,), (X3[:, 0],)),
    "torch classes": (f"{TORCH}:build_classes", {"norm": True}, "cross_entropy", ["accuracy"], (X64,), (CLASSES,)),
    "torch one-hot": (
        f"{TORCH}:build_classes", {}, "categorical_crossentropy", ["accuracy"], (X64,),
        (np.eye(10, dtype="f")[CLASSES],),
    ),
    "torch class factors": (
        f"{TORCH}:build_classes", {}, FACTORS, ["accuracy"], (X64,), (CLASSES,),
    ),
    "torch class factors of single losses": (
        f"{TORCH}:build_classes", {}, FACTORS.model_copy(update={"reduction": "none"}), [], (X64,), (CLASSES,),
    ),
    "torch own loss": (f"{TORCH}:build_regression", {}, f"{TORCH}:squared_error", ["mae"], (X3,), (X3[:, 0],)),
    "torch named output": (f"{TORCH}:build_named", {}, {"energy": "mse"}, {"energy": ["mae"]}, (X3,), (X3[:, 0],)),
    "torch two by two": (
        f"{TORCH_KINDS}:two_by_two", {}, {"energy": "mse", "kind": "cross_entropy"}, {"energy": ["mae"]}, *BOTH,
    ),
}  # fmt: skip


def made(specification, parameters, loss, metrics, x, y, seed=1, stream=0) -> Model:
    settings = model_settings(specification, parameters, loss, metrics, seed=seed, stream=stream)
    return make_model(settings, Example(x, y))


@pytest.fixture(scope="module", params=by_framework(MODELS))
def shared(request):
    """A row, and its model, which several tests use one after the other: frameworks take long to build it."""
    return MODELS[request.param], made(*MODELS[request.param])


@pytest.fixture
def case(shared):
    (*_, x, y), model = shared
    weights, floats, integers = model.weights.copy(), model.state.floats(), model.state.integers()
    yield model, x, y
    model.weights[:] = weights
    model.state.set_floats(floats)
    model.state.set_integers(integers)


@needs("keras")
def test_gradient_is_the_slope_of_the_summed_loss(case):
    model, x, y = case
    step = model.gradient(x, y).copy()
    assert step.shape == (model.layout.size + model.n_sums,)
    assert step.flags.writeable
    sums = step[model.layout.size :]
    assert sums[N_SAMPLES] == 20
    assert sums[-2:].tolist() == [0, 0]
    n_weights = model.layout.without_counts.size
    direction = np.zeros(model.layout.size, np.float32)
    direction[:n_weights] = np.random.default_rng(2).normal(size=n_weights)
    width = 2e-4
    before = model.weights.copy()
    losses = []
    for sign in (1, -1):
        model.weights[:] = before + sign * width * direction
        losses.append(float(model.gradient(x, y)[model.layout.size + LOSS]))
    model.weights[:] = before
    assert (losses[0] - losses[1]) / (2 * width) == pytest.approx(
        float(step[: model.layout.size] @ direction), rel=0.03
    )


@needs("keras")
def test_sums_of_two_halves_are_the_sums_of_the_whole(case):
    model, x, y = case
    whole = model.evaluate(x, y)
    parts = slice(7), slice(7, 20)
    halves = [model.evaluate([one[part] for one in x], [one[part] for one in y]) for part in parts]
    joined = model.metrics(halves[0] + halves[1])
    for name, value in model.metrics(whole).items():
        assert joined[name] == pytest.approx(value, rel=1e-5), name
        assert np.isfinite(value)


@needs("keras")
@pytest.mark.parametrize("by_xla", [False, True], ids=["plain", "by XLA"])
def test_loss_of_a_keras_model_is_the_weighted_sum_of_the_losses_of_its_outputs(by_xla):
    """Of batches of different sizes, the last of which is never compiled by XLA."""
    losses = ["mse", "sparse_categorical_crossentropy"]
    settings = model_settings(f"{KERAS_KINDS}:two_by_two", loss=losses, loss_weights=[0.3, 2.0], seed=1)
    (x, y), parts = BOTH, (slice(17), slice(17, 20))
    model = make_model(settings, Example(x, y))
    model.compile_step(by_xla=by_xla)
    steps = [model.gradient([one[part] for one in x], [one[part] for one in y]) for part in parts]
    found = model.metrics(sum(step[model.layout.size :].astype(float) for step in steps))
    energy, _ = model.predict(x)
    assert found["energy_loss"] == pytest.approx(np.mean((energy - y[0]) ** 2), rel=1e-5)
    assert found["loss"] == pytest.approx(0.3 * found["energy_loss"] + 2.0 * found["kind_loss"], rel=1e-5)


@needs("keras")
def test_empty_batch_gives_nothing(case):
    model, x, y = case
    floats = model.state.floats()
    assert not model.gradient([one[:0] for one in x], [one[:0] for one in y]).any()
    np.testing.assert_array_equal(model.state.floats(), floats)


@needs("keras")
def test_weights_are_the_memory_that_the_framework_computes_with(case):
    model, x, _ = case
    before = [one.copy() for one in model.predict(x)]
    n_weights = model.layout.without_counts.size
    model.weights[:n_weights] += np.random.default_rng(0).normal(size=n_weights).astype("f")
    after = model.predict(x)
    assert all(np.abs(one - other).max() > 1e-3 for one, other in zip(before, after, strict=True))


@needs("keras")
def test_moving_numbers_and_counters_come_back_as_they_were(case):
    model, x, y = case
    model.gradient(x, y)  # the numbers are no longer those of a new model
    floats, integers = model.state.floats(), model.state.integers()
    for _ in range(3):
        model.gradient(x, y)
    model.state.set_floats(floats)
    model.state.set_integers(integers)
    np.testing.assert_array_equal(model.state.floats(), floats)
    np.testing.assert_array_equal(model.state.integers(), integers)


COUNTED = {
    "keras": (f"{KERAS}:build_model", {"dropout": 0.5}, "sparse_categorical_crossentropy", [], (X64,), (CLASSES,)),
    "keras global generator": (f"{KERAS}:build_noisy", {}, "mse", [], (X3,), (X3[:, 0],)),
    "keras without random numbers": (f"{KERAS}:build_annealed", {}, None, [], (X3,), (X3[:, 0],)),
    "torch": (f"{TORCH}:build_classes", {"norm": True, "dropout": 0.5}, "cross_entropy", [], (X64,), (CLASSES,)),
}


@needs("keras")
@pytest.mark.parametrize("name", by_framework(COUNTED))
def test_random_states_are_told_apart_from_counters(name):
    """Every model has one counter, of its steps, which is the same on all ranks; random states differ."""
    states = []
    for stream in (0, 1):
        model = made(*COUNTED[name], stream=stream)
        for _ in range(2):
            model.gradient(*COUNTED[name][-2:])
        is_random = model.state.random_mask()
        states.append(model.state.integers())
        assert states[-1][~is_random].tolist() == [2]
    assert not (states[0] != states[1])[~is_random].any()
    assert is_random.any() == (states[0] != states[1]).any()


@needs("torch")
def test_buffer_that_forward_replaces_is_read_and_restored():
    model = made(f"{TORCH}:build_centred", {}, "mse", [], (X3,), (X3[:, 0],))
    model.gradient((X3,), (X3[:, 0],))
    np.testing.assert_allclose(model.state.floats(), 0.1 * X3.mean(0), rtol=1e-5)
    model.state.set_floats(np.ones(3, np.float32))
    assert model.current().mean.tolist() == [1, 1, 1]


@needs("keras")
@pytest.mark.parametrize("name", by_framework(["keras classes", "torch classes"]))
def test_same_seed_same_weights_and_other_seed_others(name):
    one, again, other = (made(*MODELS[name], seed=seed, stream=stream) for seed, stream in ((1, 0), (1, 3), (2, 0)))
    np.testing.assert_array_equal(again.weights, one.weights)
    assert np.abs(other.weights - again.weights).max() > 1e-3


BUILT_IN_A_NEW_PROCESS = """
from mpi_learn.models.building.frameworks import prepared
from mpi_learn.settings.user_code import load_function

with prepared(5, "float32"):
    print(load_function("torch.nn:Linear")(3, 1).weight.tolist())
"""


@needs("torch")
def test_seed_counts_if_the_function_of_a_package_is_the_first_to_import_its_framework():
    import torch

    done = subprocess.run([sys.executable, "-c", BUILT_IN_A_NEW_PROCESS], capture_output=True, text=True, check=True)
    torch.manual_seed(5)
    assert json.loads(done.stdout) == torch.nn.Linear(3, 1).weight.tolist()


@needs("torch")
def test_model_that_draws_from_numpy_and_python_is_the_same_on_every_rank():
    one, other = (made(f"{TORCH}:build_permuted", {}, "mse", [], (X3,), (X3[:, 0],), stream=rank) for rank in (0, 1))
    np.testing.assert_array_equal(one.predict((X3,)), other.predict((X3,)))


@needs("keras")
def test_layer_of_keras_that_is_frozen_after_the_start_keeps_its_weights_in_the_model():
    """As with `fit`, it is trained until the end: a callback cannot freeze it."""
    model = made(f"{KERAS}:build_regression", {}, "mse", [], (X3,), (X3[:, 0],))
    first, *_ = model.current().layers
    model.weights[:] += 1
    expected = model.weights[: model.layout.without_counts.size].copy()
    first.trainable = False
    found = [np.ravel(variable) for variable in model.current().weights]
    np.testing.assert_array_equal(np.concatenate(found), expected)


@needs("keras")
def test_noise_of_the_global_generator_differs_by_step_and_rank_and_can_be_repeated():
    def gradients(model):
        integers = model.state.integers()
        found = [model.gradient((X3,), (X3[:, 0],))[: model.layout.size].copy() for _ in range(2)]
        model.state.set_integers(integers)
        return [*found, model.gradient((X3,), (X3[:, 0],))[: model.layout.size].copy()]

    first, second, again = gradients(made(f"{KERAS}:build_noisy", {}, "mse", [], (X3,), (X3[:, 0],)))
    elsewhere, *_ = gradients(made(f"{KERAS}:build_noisy", {}, "mse", [], (X3,), (X3[:, 0],), stream=1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - second).max() > 1e-3
    assert np.abs(first - elsewhere).max() > 1e-3


@needs("keras")
def test_predicted_integers_and_complex_numbers_are_exact():
    model = made(f"{KERAS}:build_real_integer_complex", {}, ["mse", None, None], [], (X3,), (X3[:, 0],))
    real, integer, imaginary = model.predict((X3,))
    assert (real.dtype, integer[0, 0], imaginary[0, 0]) == (np.float32, 16777217, 2j)


@needs("keras")
def test_loss_of_a_train_step_alone_is_trained_on_several_ranks_unless_it_is_a_sum():
    def make(reduction):
        specification = f"{KERAS}:build_only_training"
        settings = model_settings(specification, {"reduction": reduction}, n_workers=2, is_validated=False)
        return make_model(settings, Example((X3,), ()))

    model = make("mean")
    assert model.gradient((X3,), ()).any()
    with pytest.raises(ConfigurationError, match="the loss is a sum over the batch"):
        make("sum")


@needs("keras")
def test_refused_pass_of_a_keras_model_changes_no_variable():
    import keras

    from mpi_learn.models.keras_.network import KerasNetwork

    module = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    network = KerasNetwork(module, model_settings("no function"))
    network.bind()
    before = network.floats()
    with network.scope([variable.value for variable in module.trainable_variables]) as scope:
        network(X3, training=True)
        module.layers[-1].bias.assign([1.0])
    with pytest.raises(ModelError, match="bias is trainable, and the model changes it"):
        network.store_assigned(scope)
    np.testing.assert_array_equal(network.floats(), before)


@needs("keras")
@pytest.mark.parametrize(("name", "weight"), [("masked_pair", 30), ("masked_apart", 20)])
def test_weight_of_a_batch_is_its_unmasked_labels_unless_masks_differ_between_outputs(name, weight):
    x = rng.normal(size=(20, 4, 3)).astype("f")
    x[:10, 1:] = x[10:, 2:] = 0
    y = (rng.integers(0, 2, (20, 4)),) * 2
    model = made(f"{KERAS_KINDS}:{name}", {}, ["sparse_categorical_crossentropy"] * 2, [], (x,), y)
    assert model.gradient((x,), y)[model.layout.size + WEIGHT] == weight


@needs("keras")
def test_save_writes_one_file(case, tmp_path):
    file = case[0].save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == [file]
    assert file.suffix in (".keras", ".pt")


@needs("keras")
def test_weights_that_are_not_written_to_the_end_leave_the_file_of_earlier_ones(tmp_path, monkeypatch):
    import h5py

    close = h5py.File.close

    def close_on_a_full_disk(file):
        close(file)
        raise OSError("no space left")

    model = made(f"{KERAS}:build_regression", {}, "mse", [], (X3,), (X3[:, 0],))
    file, _ = model.save_weights(tmp_path / "model")
    earlier = file.read_bytes()
    model.weights[:] += 1
    monkeypatch.setattr(h5py.File, "close", close_on_a_full_disk)
    with pytest.raises(OSError, match="no space left"):
        model.save_weights(tmp_path / "model")
    monkeypatch.undo()
    assert file.read_bytes() == earlier
    assert list(tmp_path.iterdir()) == [file]


@needs("torch")
def test_label_outside_of_the_classes_is_refused():
    for name in ("keras classes", "torch classes"):
        specification, _, loss, metrics, x, y = MODELS[name]
        model = made(specification, {"classes": 10}, loss, metrics, x, y)
        model.check_labels(y)
        with pytest.raises(DataError, match="label 10 is outside of the model's 10 classes"):
            model.check_labels((np.array([3, 10]),))


@needs("torch")
def test_torch_array_that_a_batch_does_not_use_has_no_gradient_of_an_earlier_batch():
    model = made(f"{TORCH_KINDS}:experts", {}, "mse", [], (A,), (A[:, :1],))
    n = model.layout.without_counts.size
    for sample in range(len(A)):
        gradient = model.gradient([A[sample : sample + 1]], [A[sample : sample + 1, :1]])[: model.layout.size].copy()
        used = model.layout.without_counts.used(gradient)
        assert not used.all()
        for is_used, part in zip(used, model.layout.without_counts.views(gradient[:n]), strict=True):
            assert is_used or not part.any()


@needs("torch")
def test_torch_batch_whose_labels_are_all_ignored_gives_nothing():
    """PyTorch's mean over no labels is NaN."""
    model = made(f"{TORCH}:build_classes", {}, "cross_entropy", [], (X64,), (CLASSES,))
    model.check_labels((np.array([3, -100]),))
    y = (np.full(20, -100),)
    step = model.gradient((X64,), y)
    assert step[model.layout.size + N_SAMPLES] == 20
    assert np.count_nonzero(step) == 1
    assert model.evaluate((X64,), y)[[WEIGHT, LOSS, N_SAMPLES]].tolist() == [0, 0, 20]


@needs("torch")
def test_torch_metrics_of_the_same_name_and_a_metric_named_loss_are_all_in_the_history():
    specification, parameters, loss, _, x, y = MODELS["torch regression"]
    metrics = ["mae", f"{TORCH}:loss", "mse", "mae"]
    model = made(specification, parameters, loss, metrics, x, y)
    found = model.metrics(model.evaluate(x, y))
    assert set(found) == {"loss", "mae", "loss_1", "mse", "mae_1"}
    assert (found["loss"], found["loss_1"]) == (pytest.approx(found["mse"]), 7.0)


WRONG = {
    "input shape": (f"{TORCH}:build_regression", "mse", [], (X64,), (X3[:, 0],), ModelError, r"shape \(64,\)"),
    "no such loss": (
        f"{TORCH}:build_regression",
        "msee",
        [],
        (X3,),
        (X3[:, 0],),
        ConfigurationError,
        "did you mean mse",
    ),
    "no such metric": (
        f"{TORCH}:build_regression", "mse", ["maee"], (X3,), (X3[:, 0],), ConfigurationError,
        r"did you mean mae\?",
    ),
    "label shape": (f"{TORCH}:build_regression", "mse", [], (X3,), (X3,), ModelError, r"\(3,\)"),
    "loss that broadcasts": (
        f"{TORCH}:build_regression", f"{TORCH}:crossed_error", [], (X3,), (X3[:, 0],), ConfigurationError,
        r"values of shape \(20, 20\)",
    ),
    "class numbers that are no whole ones": (
        f"{TORCH}:build_classes", "cross_entropy", [], (X64,), (CLASSES.astype("f"),), ModelError,
        "class numbers must be integers, the data have float32",
    ),
    "metrics of an output without a label": (
        f"{TORCH_KINDS}:two_by_two", {"energy": None, "kind": "cross_entropy"}, {"energy": ["mae"]}, BOTH[0],
        BOTH[1][1:], ModelError, r"the output energy has metrics but no label\n.*leave its metrics out",
    ),
    "no parameters": (
        "torch.nn:Identity", "mse", [], (X3,), (X3,), ModelError, r"no parameters to train\n.*leave requires_grad of",
    ),
    "text": (
        f"{TORCH}:build_text", "mse", [], (X3,), (X3,), ModelError,
        r"the model returns str\n.*return a tensor, or a list, tuple, dict",
    ),
    "no module": (f"{TORCH}:build_nothing", "mse", [], (X3,), (X3,), ModelError, "it returned NoneType"),
}  # fmt: skip


UNKNOWN = {
    "nothing": ("None", "it returned NoneType\n  → end the function with `return model`"),
    "a class": ("torch.nn.Linear", "it returned the class torch.Linear\n  → return an object of the class: Linear(…)"),
    "a function": ("model", "it returned function\n  → call this function"),
    "model and optimizer": ("(torch.nn.Linear(3, 1), 0.1)", "it returned tuple\n  → return the model alone"),
    "two models": ("[torch.nn.Linear(3, 1)] * 2", "it returned list\n  → return one model that contains the others"),
    "weights": ("torch.nn.Linear(3, 1).state_dict()", "→ load this state dict into a module"),
    "a learner of fastai": ("of('fastai.learner', model=torch.nn.Linear(3, 1))", "→ return its attribute model; loss"),
    "a net of skorch": ("of('skorch.net', module=torch.nn.Linear)", "skorch.One\n  → return .initialize().module_;"),
    "a trained net of skorch": ("of('skorch.net', module_=torch.nn.Linear(3, 1))", "→ return its attribute module_;"),
    "a model of Keras 2": ("of('tf_keras.src.engine')", "it returned tf_keras.One\n  → build the model with Keras 3"),
    "a network of Keras 2": ("of('archs', model=of('tf_keras.src'))", "→ build the model with Keras 3"),
    "a module of flax": ("of('flax.linen.module')", "→ models of JAX cannot be trained here"),
    "an estimator": ("of('sklearn.linear_model', fit=print)", "→ it has a training of its own; to train it"),
    "an optimizer": ("torch.optim.SGD(torch.nn.Linear(3, 1).parameters())", "→ return a keras.Model or a torch.nn.Mod"),
}  # fmt: skip
UNKNOWN_MODEL = """
import torch

def of(module, /, **attributes):
    built = type("One", (), {{"__module__": module}})()
    vars(built).update(attributes)
    return built

def model():
    return {expression}
"""


@needs("torch")
@pytest.mark.parametrize(("expression", "said"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_no_model_is_refused_with_what_to_return_instead(tmp_path, expression, said):
    (tmp_path / "m.py").write_text(UNKNOWN_MODEL.format(expression=expression))
    with pytest.raises(ModelError) as caught:
        made(f"{tmp_path}/m.py:model", {}, "mse", [], (X3,), (X3,))
    assert said in str(caught.value)


@needs("torch")
@pytest.mark.parametrize(("specification", "loss", "metrics", "x", "y", "kind", "said"), WRONG.values(), ids=WRONG)
def test_data_that_do_not_fit_a_torch_model_are_refused(specification, loss, metrics, x, y, kind, said):
    with pytest.raises(kind, match=said):
        made(specification, {}, loss, metrics, x, y)


@needs("torch")
def test_torch_training_resumes_exactly(tmp_path):
    from mpi4py import MPI

    from mpi_learn import train

    common = {
        "model": f"{TORCH}:build_classes", "parameters": {"norm": True, "dropout": 0.3}, "loss": "cross_entropy",
        "batch_size": 128,
    }  # fmt: skip
    whole = train(common | {"epochs": 4}, MPI.COMM_SELF, data=digits())
    checkpoint = {"checkpoint": {"path": str(tmp_path)}}
    train(common | {"epochs": 2} | checkpoint, MPI.COMM_SELF, data=digits())
    resumed = train(common | {"epochs": 4} | checkpoint, MPI.COMM_SELF, data=digits())
    assert resumed.history == whole.history


@needs("torch")
def test_frozen_parameters_are_those_of_the_first_worker_and_of_the_checkpoint(tmp_path):
    from mpi4py import MPI

    from mpi_learn import train

    configuration = {
        "model": f"{TORCH}:build_frozen", "loss": "cross_entropy", "epochs": 1, "checkpoint": {"path": str(tmp_path)},
    }  # fmt: skip
    first, second = (train(configuration, MPI.COMM_SELF, data=digits()).model[0].weight for _ in range(2))
    assert not first.requires_grad
    np.testing.assert_array_equal(first.numpy(), second.numpy())


@needs("torch")
def test_sum_as_a_loss_of_pytorch_is_refused_with_sample_weights():
    """The weighted losses are divided by their number."""
    loss = Component.model_validate({"name": "mse", "reduction": "sum"})
    settings = model_settings(f"{TORCH}:build_regression", loss=loss)
    make_model(settings, Example((X3,), (X3[:, 0],)))
    with pytest.raises(ConfigurationError, match="must not be a sum over the batch"):
        make_model(settings, Example((X3,), (X3[:, 0],), (np.ones(len(X3), np.float32),)))


@needs("torch")
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_small_integers_as_labels_of_a_weighted_loss_are_class_numbers(dtype):
    steps = [
        made(f"{TORCH}:build_classes", {}, FACTORS, ["accuracy"], (X64,), (labels,)).gradient((X64,), (labels,))
        for labels in (CLASSES, CLASSES.astype(dtype))
    ]
    np.testing.assert_array_equal(steps[1], steps[0])


@needs("keras")
@pytest.mark.parametrize("model", by_framework([f"{KERAS}:build_regression", f"{TORCH}:build_regression"]))
def test_models_are_built_on_thousands_of_ranks_with_any_seed(model):
    x, y = (X3,), (X3[:, 0],)
    assert made(model, {}, "mse", [], x, y, seed=2**31 - 1, stream=100_000).gradient(x, y).any()


def test_the_model_that_a_master_builds_for_a_prediction_is_closed():
    class Scaling(WeightsOnly):
        is_closed = False

        def predict(self, x):
            assert not self.is_closed
            return (x[0] * self.weights,)

        def close(self):
            self.is_closed = True

    sizes = ModelSizes(FlatLayout(((3,),)), "numpy", 5, 0, 0)
    built = Scaling(sizes, build=None)
    master = WeightsOnly(sizes, lambda: built)
    master.weights[:] = 1, 2, 3
    assert master.predict((np.ones(3),))[0].tolist() == [1, 2, 3]
    assert built.is_closed


MODULE_WITH_STATE = """
import torch

class Timed(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 1)
        self.register_buffer("start_s", torch.tensor(1700000001.25, dtype=torch.float64))

    def get_extra_state(self):
        return {"version": 2}

    def set_extra_state(self, state):
        self.version = state["version"]
"""


@needs("torch")
def test_buffers_of_double_precision_and_extra_state_of_a_module_are_kept(tmp_path):
    import torch

    (tmp_path / "model.py").write_text(MODULE_WITH_STATE)
    x = np.ones((4, 3), np.float32)
    model = make_model(model_settings(f"{tmp_path}/model.py:Timed", loss="mse"), Example((x,), (x[:, :1],)))
    model.state.set_floats(model.state.floats())
    state = torch.load(model.save(tmp_path / "saved"))
    assert state["start_s"].item() == 1700000001.25
    assert state["_extra_state"] == {"version": 2}
    model.state.set_floats(model.state.floats() + 256)
    assert model.current().start_s.item() == pytest.approx(1700000256, abs=128)


PIXELS_AND_CLASSES = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.pixels, self.classes = torch.nn.Linear(width, 4), torch.nn.Embedding(10, 4)
        self.last = torch.nn.Linear(4, 1)

    def forward(self, pixels, classes):
        return self.last(self.pixels(pixels) + self.classes(classes))
"""


@needs("torch")
@pytest.mark.parametrize(("width", "is_of_dtypes"), [(5, True), (3, False)])
def test_integers_of_which_some_are_real_numbers_for_a_module_need_a_dtype(tmp_path, width, is_of_dtypes):
    (tmp_path / "model.py").write_text(PIXELS_AND_CLASSES)
    settings = model_settings(f"{tmp_path}/model.py:Model", {"width": width}, loss="mse")
    pixels = np.ones((4, 5), np.uint8 if is_of_dtypes else np.float32)
    with pytest.raises(ModelError, match="does not take samples of shape") as caught:
        make_model(settings, Example((pixels, np.ones(4, np.int64)), (np.ones((4, 1), np.float32),)))
    assert ("dtype: {NAME: float32}" in (caught.value.cure or "")) == is_of_dtypes


NOISE = """
import keras
import tensorflow as tf

GENERATOR = tf.random.Generator.from_seed(1)
DRAWS = {
    "tf.random": lambda x: tf.random.normal(tf.shape(x)),
    "in a loop": lambda x: tf.map_fn(lambda row: tf.random.uniform(tf.shape(row)), x),
    "tf.random.Generator": lambda x: GENERATOR.normal(tf.shape(x)),
    "tf.nn.dropout": lambda x: tf.nn.dropout(x, 0.5),
    "stateless": lambda x: tf.random.stateless_normal(tf.shape(x), [1, 2]),
    "keras.random": lambda x: keras.random.normal(tf.shape(x)),
}


class Noise(keras.layers.Layer):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def call(self, x, training=False):
        return x + DRAWS[self.kind](x) if training else x


def noisy(kind):
    return keras.Sequential([keras.Input((3,)), Noise(kind), keras.layers.Dropout(0.5), keras.layers.Dense(1)])


def gan(kind):
    return {"generator": keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]), "discriminator": noisy(kind)}
"""


@needs("keras")
def test_random_numbers_that_a_checkpoint_cannot_hold_are_said(tmp_path):
    (tmp_path / "noise.py").write_text(NOISE)
    model, gan = (f"{tmp_path / 'noise.py'}:{name}" for name in ("noisy", "gan"))
    data = line()
    example = Example([data.training.x[0][:8]], [data.training.y[0][:8]])
    for kind in ("tf.random", "in a loop", "tf.random.Generator", "tf.nn.dropout", "stateless", "keras.random"):
        is_unsaved = kind not in ("stateless", "keras.random")
        made = make_model(
            model_settings(model, {"kind": kind}, "mse", has_checkpoint=True, is_validated=False), example
        )
        assert (made.has_unsaved_random, list(made.notes)) == (is_unsaved, [UNSAVED_RANDOM] * is_unsaved), kind
    noise = np.zeros((8, 2), np.float32)
    for kind, is_unsaved in (("tf.random", True), ("keras.random", False)):
        settings = model_settings(gan, {"kind": kind}, "mse")
        made = make_model(settings, Example([example.x[0], noise], []), AdversarialPair(GanSection(latent=2)))
        assert (made.has_unsaved_random, list(made.notes)) == (is_unsaved, []), kind  # no checkpoint
    configuration = {"model": model, "parameters": {"kind": "tf.random"}, "loss": "mse", "batch_size": 50}
    notes: list[str] = []
    checkpoint = {"checkpoint": {"path": str(tmp_path / "c")}}
    train(configuration | checkpoint, MPI.COMM_SELF, data=data, on_note=notes.append)
    assert notes == [UNSAVED_RANDOM]
    assert f"note         {UNSAVED_RANDOM}" in check(read_configuration(configuration), MPI.COMM_SELF, data=data)


@needs("keras")
@pytest.mark.parametrize("with_floats", [True, False])
def test_assigned_variables_are_stored_one_by_one_except_for_those_that_are_known(with_floats):
    """The first of them is known, or a real number; the state of the random generator comes after them."""
    import keras

    from mpi_learn.models.keras_.network import KerasNetwork

    layers = keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.BatchNormalization()
    module = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)])
    network = KerasNetwork(module, model_settings("no function"))
    network.bind()
    floats, integers = network.floats(), network.integers()
    with network.scope([variable.value for variable in module.trainable_variables]) as scope:
        network(X3, training=True)
    assert len(scope.assigned) == 5
    known = [next(iter(scope.assigned.values()))]
    network.store_assigned(scope, known, with_floats=with_floats)
    is_changed = (network.floats() != floats).reshape(-1, 3).any(axis=1).tolist()
    assert is_changed == ([False, True, True, True] if with_floats else [False] * 4)
    assert (network.integers() != integers).any()


@needs("torch")
def test_arrays_of_a_module_are_the_trained_ones_the_buffers_and_the_frozen_ones():
    import torch

    from mpi_learn.models.torch_.network import TorchNetwork

    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    module[0].weight.requires_grad = module[2].bias.requires_grad = False
    found = [tuple(one) for one in TorchNetwork(module, model_settings("no function")).arrays()]
    assert found == [
        ("0.bias", (2,), "float32", True),
        ("1.weight", (2,), "float32", True),
        ("1.bias", (2,), "float32", True),
        ("2.weight", (1, 2), "float32", True),
        ("1.running_mean", (2,), "float32", False),
        ("1.running_var", (2,), "float32", False),
        ("1.num_batches_tracked", (), "int64", False),
        ("0.weight", (2, 3), "float32", False),
        ("2.bias", (1,), "float32", False),
    ]
