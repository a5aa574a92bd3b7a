"""PyTorch modules whose parameters are copies of the flat weights, as on a GPU, but in the memory of the host.

`test_gpu.py` runs such trainings on a GPU.
"""

from __future__ import annotations

import pickle
import re
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import ModelError
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.settings import Example
from mpi_learn.training.configuration import read_configuration
from mpi_learn.training.train import check
from tests.mpi_learn import callbacks_for_tests
from tests.mpi_learn.configurations_for_tests import TORCH, gan_configuration, model_settings, unlabelled
from tests.mpi_learn.conformance.rows import configuration, written
from tests.mpi_learn.models_for_tests import digits, line
from tests.optional_packages import is_installed, needs, with_marks

if is_installed("torch"):
    from tests.mpi_learn.conformance.torch_rows import ROWS
else:
    ROWS = {}
pytestmark = needs("torch")
TRAINED = [name for name, row in ROWS.items() if not row.refused]
LINE = {"model": f"{TORCH}:build_regression", "loss": "mse", "batch_size": 30, "epochs": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("devices")
    written(path)
    return path


@pytest.fixture
def copies(monkeypatch):
    """A context in which tensors are copies of arrays."""
    from mpi_learn.models.torch_ import network, tensors

    @contextmanager
    def context():
        with monkeypatch.context() as patch:
            for module in (network, tensors):
                patch.setattr(module, "shares_memory", lambda: False)
            yield

    return context


def weights(model):
    modules = model.values() if isinstance(model, dict) else [model]
    return [value.to_dense().numpy() for module in modules for value in module.state_dict().values()]


def assert_trained_alike(wanted, copies, data=None):
    with copies():
        found = train(wanted, MPI.COMM_SELF, data=data)
    expected = train(wanted, MPI.COMM_SELF, data=data)
    assert found.history.keys() == expected.history.keys()
    for name, values in expected.history.items():
        np.testing.assert_allclose(found.history[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
    for one, other in zip(weights(found.model), weights(expected.model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", with_marks(TRAINED, {"torchmetrics": "torchmetrics"}))
def test_every_kind_of_module_is_trained_alike(folder, copies, name):
    assert_trained_alike(configuration(ROWS[name], "torch", folder, 1), copies)


def test_gan_is_trained_alike(copies):
    assert_trained_alike(gan_configuration(TORCH, parameters={"norm": True}), copies, unlabelled())


def test_callback_receives_the_weights_after_the_epoch_and_may_change_them(copies, monkeypatch):
    seen = []
    monkeypatch.setattr(callbacks_for_tests, "CALLS", seen)
    assert_trained_alike(LINE | {"callbacks": "tests.mpi_learn.callbacks_for_tests:halved"}, copies, line())
    assert len(seen) == 6
    for one, other in zip(seen[:3], seen[3:], strict=True):
        for found, expected in zip(one, other, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-6)


def test_optimizer_receives_parameters_with_the_attributes_of_the_module(copies, tmp_path):
    (tmp_path / "grouped.py").write_text(
        "import torch\n"
        "def build():\n"
        "    module = torch.nn.Linear(3, 1)\n"
        "    module.bias.no_decay = True\n"
        "    return module\n"
        "def make(parameters):\n"
        "    groups = [[one for one in parameters if hasattr(one, 'no_decay') == flag] for flag in (True, False)]\n"
        "    assert list(map(len, groups)) == [1, 1]\n"
        "    return torch.optim.SGD([{'params': groups[0]}, {'params': groups[1], 'weight_decay': 0.5}], lr=0.1)\n"
    )
    wanted = LINE | {"model": f"{tmp_path}/grouped.py:build", "optimizer": f"{tmp_path}/grouped.py:make"}
    assert_trained_alike(wanted, copies, line())


def test_module_that_changes_its_parameters_is_trained_only_where_the_change_remains(folder, copies):
    wanted = configuration(ROWS["changed parameters"], "torch", folder, 1)
    train(wanted, MPI.COMM_SELF)
    with copies(), pytest.raises(ModelError, match=r"embedding\.weight changes when the module is called"):
        train(wanted, MPI.COMM_SELF)


def test_pickled_module_contains_its_weights_once(copies):
    wanted = {"model": f"{TORCH}:build_deep", "parameters": {"depth": 20, "units": 100}, "loss": "cross_entropy"}
    for context in (nullcontext, copies):
        with context():
            module = train(wanted | {"epochs": 1}, MPI.COMM_SELF, data=digits()).model
        n_bytes = 4 * sum(parameter.numel() for parameter in module.parameters())
        assert len(pickle.dumps(module)) < 1.2 * n_bytes


@pytest.mark.parametrize("indices", [np.array([3, 0, 3]), np.zeros(0, np.int64), slice(1, 4), slice(2, 2)], ids=str)
def test_rows_for_a_gpu_are_those_that_numpy_copies(indices):
    from mpi_learn.models.torch_.tensors import page_locked_rows

    numbers = np.arange(40).reshape(5, 2, 4)
    read_only = numbers.astype(np.float32)
    read_only.flags.writeable = False
    arrays = [numbers.astype(kind) for kind in ("uint8", "uint16", "int64", "float32", "float64", ">f4", "bool")]
    for array in (*arrays, numbers[:, 0], numbers[:, ::-1], np.asfortranarray(numbers), read_only):
        for dtype in map(np.dtype, ("float32", array.dtype)):
            rows = page_locked_rows(array, indices, dtype)
            np.testing.assert_array_equal(rows, array[indices].astype(dtype), strict=True)
            assert not np.shares_memory(rows, array)


def test_batches_for_a_gpu_are_copied_into_page_locked_memory(copies, monkeypatch):
    from mpi_learn.models.torch_ import model, tensors

    n_rows = []

    def noted(array, indices, dtype):
        n_rows.append(len(indices))
        return tensors.page_locked_rows(array, indices, dtype)

    monkeypatch.setattr(model, "page_locked_rows", noted)
    train(LINE | {"epochs": 1}, MPI.COMM_SELF, data=line())
    assert not n_rows
    with copies():
        train(LINE | {"epochs": 1}, MPI.COMM_SELF, data=line())
    n = line().n_training
    assert sum(n_rows) == 2 * n, "inputs and labels"


def test_check_says_where_the_model_computes(copies):
    wanted = read_configuration(LINE | {"data": {"train": "unused.h5", "features": "X", "labels": "y"}})
    assert "forward and backward\n" in check(wanted, MPI.COMM_SELF, data=line())
    with copies():
        assert "forward and backward on a GPU\n" in check(wanted, MPI.COMM_SELF, data=line())


def test_model_has_the_weights_that_an_algorithm_has_changed(copies, tmp_path):
    import torch

    x, y = line().training.x, line().training.y
    with copies():
        model = make_model(model_settings(f"{TORCH}:build_regression", loss="mse"), Example(x, y))
        model.weights[:] = 0
        assert not model.predict(x)[0].any()
        assert model.metrics(model.evaluate(x, y))["loss"] == pytest.approx(np.mean(y[0] ** 2))
        model.weights[:] = 1
        assert all((value == 1).all() for value in torch.load(model.save(tmp_path / "model")).values())
        model.weights[:] = 2
        assert all((parameter == 2).all() for parameter in model.current().parameters())


def test_random_numbers_of_a_checkpoint_of_a_gpu_continue_on_the_cpu():
    import torch

    from mpi_learn.models.torch_.tensors import N_GPU_STATE, random_state, set_random_state

    torch.manual_seed(4)
    state = random_state()
    drawn = torch.rand(3)
    state[-N_GPU_STATE:] = 7  # as a GPU would leave it
    set_random_state(state)
    torch.testing.assert_close(torch.rand(3), drawn)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Expected all tensors to be on the same device, cuda:0 and cpu!", "device=x.device"),
        ("can't convert cuda:0 device type tensor to numpy", r"\.cpu\(\)\.numpy\(\)"),
        ("mat1 and mat2 shapes cannot be multiplied", "^$"),
    ],
)
def test_errors_that_only_a_gpu_raises_have_a_cure(monkeypatch, message, said):
    import torch

    from mpi_learn.models.torch_ import errors

    error = RuntimeError(message)
    assert errors.cure_on_gpu(error) == ""
    monkeypatch.setattr(errors, "device", lambda: torch.device("cuda"))
    assert re.search(said, errors.cure_on_gpu(error))
    assert "fewer ranks" in errors.cure_on_gpu(torch.cuda.OutOfMemoryError("CUDA out of memory"))
