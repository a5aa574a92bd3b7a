"""How frameworks compute: in 16 bits with float32 weights, and activations computed again for the backward pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.flat_layout import LOSS
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.settings import Example
from tests.mpi_learn.configurations_for_tests import model_settings
from tests.mpi_learn.models_for_tests import digits
from tests.optional_packages import by_framework, needs

HERE = Path(__file__).parent
KERAS = (f"{HERE}/models_for_tests.py:build_deep", "sparse_categorical_crossentropy")
TORCH = (f"{HERE}/torch_models_for_tests.py:build_deep", "cross_entropy")
FRAMEWORKS = pytest.mark.parametrize(
    "framework", [KERAS, pytest.param(TORCH, marks=needs("torch"))], ids=["keras", "torch"]
)
rng = np.random.default_rng(0)
X, Y = (rng.random((40, 64)).astype("f"),), (rng.integers(0, 10, 40),)
PLAIN, MIXED, AGAIN = {}, {"precision": "mixed_bfloat16"}, {"gradient_checkpointing": True}


def made(framework: tuple[str, str], computing: dict, **parameters):
    specification, loss = framework
    return make_model(model_settings(specification, parameters, loss, ["accuracy"], seed=1, **computing), Example(X, Y))


@needs("keras")
@FRAMEWORKS
def test_mixed_precision_computes_in_16_bits_with_weights_and_loss_in_32(framework):
    plain, mixed = made(framework, PLAIN), made(framework, MIXED)
    np.testing.assert_array_equal(plain.weights, mixed.weights)
    steps = [model.gradient(X, Y) for model in (plain, mixed)]
    n = plain.layout.size
    assert not np.array_equal(*steps)
    assert steps[0].dtype == steps[1].dtype == np.float32
    assert steps[1][n + LOSS] == pytest.approx(steps[0][n + LOSS], rel=0.01)
    assert np.corrcoef(steps[0][:n], steps[1][:n])[0, 1] > 0.995
    if framework == KERAS:
        assert {layer.compute_dtype for layer in mixed.network.model.layers} == {"bfloat16"}
        assert {weight.dtype for weight in mixed.network.model.weights if "seed" not in weight.path} == {"float32"}
    else:
        import torch

        seen = []
        mixed.module[0].register_forward_hook(lambda module, x, output: seen.append(output.dtype))
        mixed.evaluate(X, Y)
        assert seen == [torch.bfloat16]
        assert mixed.predict(X)[0].dtype == np.float32


@needs("keras")
@FRAMEWORKS
def test_training_in_mixed_precision_reaches_the_loss_of_float32(framework):
    specification, loss = framework
    common = {"model": specification, "loss": loss, "metrics": ["accuracy"], "epochs": 4, "seed": 1}
    plain, mixed = (
        train(common | {"precision": precision}, MPI.COMM_SELF, data=digits())
        for precision in ("float32", "mixed_bfloat16")
    )
    assert mixed.history["val_loss"][-1] == pytest.approx(plain.history["val_loss"][-1], abs=0.06)
    assert mixed.history["val_accuracy"][-1] > 0.8


@needs("keras")
@FRAMEWORKS
def test_checkpointed_step_is_the_same_with_dropout_and_moving_means(framework):
    parameters = {"norm": True, "dropout": 0.3}
    plain, again = made(framework, PLAIN, **parameters), made(framework, AGAIN, **parameters)
    again.state.set_integers(plain.state.integers())
    step = plain.gradient(X, Y).copy()
    after = plain.state.integers()
    if framework == TORCH:  # the two share one generator of random numbers
        again.state.set_integers(made(framework, PLAIN, **parameters).state.integers())
    np.testing.assert_allclose(again.gradient(X, Y), step, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(again.state.floats(), plain.state.floats(), rtol=1e-5)
    np.testing.assert_array_equal(again.state.integers(), after)


@needs("keras")
def test_frozen_weights_of_a_checkpointed_keras_model_keep_float32():
    """They were stored as the 16-bit numbers with which the layer computes."""
    model = made(KERAS, MIXED | AGAIN, frozen=True)
    kernel = model.network.model.layers[0].kernel
    before = kernel.numpy().copy()
    model.gradient(X, Y)
    np.testing.assert_array_equal(kernel.numpy(), before)


@needs("keras")
def test_tensors_that_checkpointed_keras_layers_receive_by_keyword_have_a_gradient():
    framework = (f"{HERE}/models_for_tests.py:build_with_keywords", "sparse_categorical_crossentropy")
    plain, again = (made(framework, computing) for computing in (PLAIN, AGAIN))
    expected = plain.gradient(X, Y)
    assert all(np.abs(part).max() > 1e-4 for part in plain.layout.without_counts.views(expected)[:8:2]), "four kernels"
    np.testing.assert_allclose(again.gradient(X, Y), expected, rtol=1e-4, atol=1e-5)


@needs("keras")
def test_keras_computes_the_layers_again():
    counts = []
    for computing in (PLAIN, AGAIN):
        step = made(KERAS, computing, depth=5)._step
        counts.append(sum(operation.type == "MatMul" for operation in step.graph.get_operations()))
    assert counts[0] == 3 * 6 - 1  # forward, and for the gradient of each layer's weights and (but one) input
    assert counts[1] >= counts[0] + 6


@needs("torch")
def test_torch_computes_the_modules_again_and_keeps_less():
    import torch

    calls, kept_bytes = [], []
    for computing in (PLAIN, AGAIN):
        model, seen, sizes = made(TORCH, computing, depth=9), [], []
        model.module.train()[3].register_forward_pre_hook(lambda module, x, seen=seen: seen.append(1))

        def pack(tensor, sizes=sizes):
            sizes.append(0 if isinstance(tensor, torch.nn.Parameter) else tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss, _ = model._loss(model._call(X), [torch.from_numpy(Y[0])], [], 40, Y)
        forward_only = len(seen)
        loss.backward()
        calls.append((forward_only, len(seen)))
        kept_bytes.append(sum(sizes))
    assert calls == [(1, 1), (1, 2)]
    assert kept_bytes[1] < 0.6 * kept_bytes[0]


@needs("torch")
def test_parts_of_a_module_are_computed_again():
    again = made((f"{HERE}/torch_models_for_tests.py:build_blocks", "cross_entropy"), AGAIN)
    plain = made((f"{HERE}/torch_models_for_tests.py:build_blocks", "cross_entropy"), PLAIN)
    seen = []
    again.module.blocks[1][0].register_forward_pre_hook(lambda module, x: seen.append(1))
    np.testing.assert_allclose(again.gradient(X, Y), plain.gradient(X, Y), rtol=1e-5, atol=1e-6)
    assert len(seen) == 2
    again.evaluate(X, Y)
    assert len(seen) == 3
    assert "forward" not in vars(again.current().blocks[1])


@needs("torch")
def test_checkpointing_leaves_a_module_as_it_was():
    """A module may be an attribute and an entry of a list, and users may replace its ``forward``."""
    import torch

    from mpi_learn.models.torch_.checkpointing import blocks_of, recomputed

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(3, 3)
            self.every = torch.nn.ModuleList([self.first, torch.nn.Linear(3, 3)])

        def forward(self, x):
            return self.every[1](self.first(x)).sum()

    module, x = Twice(), torch.ones(2, 3, requires_grad=True)
    replaced = module.every[1].forward = lambda y: 2 * y
    (expected,) = torch.autograd.grad(module(x), x)
    with recomputed(blocks_of(module)):
        output = module(x)
    (found,) = torch.autograd.grad(output, x)
    torch.testing.assert_close(found, expected)
    assert module.every[1].forward is replaced
    assert "forward" not in vars(module.first)


@needs("torch")
def test_checkpoint_receives_all_tensors_of_a_block_by_position(monkeypatch):
    """PyTorch restores the random numbers of a GPU, for dropout, only if a positional argument is a tensor on it."""
    import torch

    from mpi_learn.models.torch_ import checkpointing

    class Scaled(torch.nn.Linear):
        def forward(self, x, *, factor):
            return factor * super().forward(x)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Scaled(3, 3)

        def forward(self, x):
            return self.block(x, factor=x).sum()

    received, checkpoint = [], checkpointing.checkpoint

    def recording(function, *values, **options):
        received.append(len(values))
        return checkpoint(function, *values, **options)

    monkeypatch.setattr(checkpointing, "checkpoint", recording)
    module, x = Outer(), torch.ones(2, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(module(x), x)
    with checkpointing.recomputed(checkpointing.blocks_of(module)):
        output = module(x)
    (found,) = torch.autograd.grad(output, x)
    torch.testing.assert_close(found, expected)
    assert received == [2]


@needs("torch")
def test_invalid_values_are_refused_with_a_message(tmp_path):
    with pytest.raises(ModelError, match="gradient_checkpointing"):
        made((f"{HERE}/torch_models_for_tests.py:build_one_layer", "cross_entropy"), AGAIN)
    made(KERAS, PLAIN).save(tmp_path / "model")
    saved = {"model": str(tmp_path / "model.keras"), "loss": "sparse_categorical_crossentropy"}
    with pytest.raises(ModelError, match="no layer computes in mixed_bfloat16"):
        train(saved | {"precision": "mixed_bfloat16"}, MPI.COMM_SELF, data=digits())
    with pytest.raises(ConfigurationError, match="precision"):
        train(saved | {"precision": "float8"}, MPI.COMM_SELF, data=digits())


@needs("keras")
@pytest.mark.parametrize(
    "file",
    [pytest.param("models_for_tests.py", marks=pytest.mark.thorough), *by_framework(["torch_models_for_tests.py"])],
    ids=["keras", "torch"],
)
def test_two_models_train_each_other_in_mixed_precision_and_checkpointed(file):
    loss = "binary_crossentropy" if file[0] == "m" else "binary_cross_entropy_with_logits"
    parameters = {"norm": True} | ({"dropout": 0.3} if file[0] == "m" else {})
    common = {"model": f"{HERE}/{file}:build_gan", "loss": loss, "gan": {"latent": 8}, "parameters": parameters}
    plain = train(common, MPI.COMM_SELF, data=digits())
    again = train(common | {"gradient_checkpointing": True}, MPI.COMM_SELF, data=digits())
    mixed = train(common | {"precision": "mixed_bfloat16"}, MPI.COMM_SELF, data=digits())
    assert again.history["loss"] == pytest.approx(plain.history["loss"], rel=1e-3)
    assert mixed.history["loss"] == pytest.approx(plain.history["loss"], rel=0.05)
