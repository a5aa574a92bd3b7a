"""Trainings of PyTorch modules on a GPU: ``make test-gpu`` runs them. They skip on a host without a GPU.

The oracle is a plain loop of PyTorch on the CPU, see `test_conformance.py`. The reduced precision of matrix products
(TF32) is switched off, and the figures are compared with the tolerance of a few hundred float32 operations.
"""

from __future__ import annotations

import gc
import json
import os
from functools import cache
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import ModelError, TrainingError
from tests.mpi_learn import callbacks_for_tests
from tests.mpi_learn.configurations_for_tests import TORCH, gan_configuration, unlabelled
from tests.mpi_learn.models_for_tests import digits
from tests.mpirun import mpirun
from tests.optional_packages import is_installed, needs

if is_installed("torch"):
    from tests.mpi_learn.conformance.torch_rows import ROWS
else:
    ROWS = {}
EXACT = [name for name, row in ROWS.items() if not row.refused and "dropout" not in row.parameters]
CLASSES = {"model": f"{TORCH}:build_classes", "loss": "cross_entropy", "batch_size": 128, "epochs": 4, "seed": 2}
OPTIMIZERS = [
    {"name": "sgd", "momentum": 0.9, "nesterov": True},
    {"name": "adamw", "clip_norm": 0.5},
    {"name": "rmsprop", "momentum": 0.5, "centered": True, "clip_value": 0.01},
    {"name": "adagrad"},
    {"name": "adadelta"},
    {"name": "lars"},
    {"name": "lamb"},
]
ALGORITHMS = {
    "allreduce": {"name": "allreduce"},
    "power-sgd": {"name": "allreduce", "compression": "power-sgd", "matrix_rank": 2},
    "downpour": {"name": "downpour"},
    "easgd": {"name": "easgd"},
    "clusters": {"name": "clusters", "size": 2},
    "gloo": {"name": "allreduce", "reduction": "gloo"},
}
pytestmark = [pytest.mark.thorough, needs("torch", "torchmetrics")]


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    import torch

    if not os.environ.get("CUDA_VISIBLE_DEVICES"):
        pytest.skip("needs a GPU")
    assert torch.cuda.is_available(), "PyTorch finds no GPU; is it installed with CUDA?"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Number of ranks -> what the program of the conformance table wrote."""
    folder = tmp_path_factory.mktemp("gpu")

    @cache
    def start(n_ranks: int) -> dict[str, Any]:
        program = ("-m", "tests.mpi_learn.conformance.run", "torch", str(folder), *EXACT)
        done = mpirun(n_ranks, *program, timeout=300, env={"NVIDIA_TF32_OVERRIDE": "0"})
        assert done.returncode == 0, done.stderr
        return json.loads((folder / f"torch-{n_ranks}.json").read_text())

    return start


@pytest.mark.parametrize("name", EXACT)
def test_module_trains_as_by_pytorch_on_the_cpu(found, name):
    ours = found(1)[name]
    assert not {"refused", "failed"} & set(ours), ours
    np.testing.assert_allclose(ours["weights"], ours["expected"]["weights"], atol=1e-3)
    for key, values in ours["expected"]["history"].items():
        pairs = [(one, other) for one, other in zip(ours["history"][key], values, strict=True) if other is not None]
        np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-3, atol=1e-3, err_msg=key)
    assert ours["same"], "the saved model predicts the same on the CPU"


@pytest.mark.parametrize("name", [name for name in EXACT if ROWS[name].is_exact])
def test_three_ranks_on_a_gpu_train_like_one(found, name):
    np.testing.assert_allclose(found(3)[name]["weights"], found(1)[name]["weights"], atol=1e-3)


def trained_here(**changes):
    return train(CLASSES | changes, MPI.COMM_SELF, data=digits())


def test_callbacks_receive_the_module_on_the_gpu_and_figures_of_merit_on_the_cpu(monkeypatch):
    seen = []
    monkeypatch.setattr(callbacks_for_tests, "CALLS", seen)
    result = trained_here(epochs=1, callbacks=["tests.mpi_learn.callbacks_for_tests:noting_device"])
    assert set(seen) == {"cuda"}
    assert {parameter.device.type for parameter in result.model.parameters()} == {"cpu"}
    result = trained_here(epochs=1, parameters={"norm": True})
    assert {buffer.device.type for buffer in result.model.buffers()} == {"cpu"}


def test_random_numbers_of_the_gpu_continue_after_an_interruption(tmp_path):
    """Without them, the dropout of the third epoch would be that of the first."""
    changes = {"parameters": {"dropout": 0.5}}
    whole = trained_here(**changes)
    changes |= {"checkpoint": {"path": str(tmp_path / "checkpoint"), "every": 2}}

    def interrupted(epoch, metrics):
        if epoch == 2:
            raise InterruptedError
        return False

    with pytest.raises(TrainingError):
        train(CLASSES | changes, MPI.COMM_SELF, data=digits(), on_epoch=interrupted)
    np.testing.assert_allclose(trained_here(**changes).history["loss"], whole.history["loss"], rtol=1e-3)


def test_mixed_precision_trains_almost_alike():
    exact, mixed = trained_here(), trained_here(precision="mixed_bfloat16")
    assert mixed.history["loss"] != exact.history["loss"]
    np.testing.assert_allclose(mixed.history["loss"], exact.history["loss"], rtol=0.05)


def test_gan_trains_as_on_the_cpu():
    wanted = gan_configuration(TORCH, parameters={"norm": True})
    found = train(wanted | {"device": "cuda"}, MPI.COMM_SELF, data=unlabelled())
    expected = train(wanted | {"device": "cpu"}, MPI.COMM_SELF, data=unlabelled())
    for key, values in expected.history.items():
        np.testing.assert_allclose(found.history[key], values, rtol=1e-2, err_msg=key)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_learns_on_four_ranks_of_a_gpu(name):
    wanted = CLASSES | {"epochs": 20, "batch_size": 16, "optimizer": {"name": "sgd", "learning_rate": 0.1}}
    wanted |= {"algorithm": ALGORITHMS[name], "metrics": ["accuracy"]}
    program = (
        "import json, sys; from mpi4py import MPI; from mpi_learn import train;"
        "from tests.mpi_learn.models_for_tests import digits;"
        "found = train(json.loads(sys.argv[1]), MPI.COMM_WORLD, data=digits());"
        "print(found.history['val_accuracy'][-1]) if MPI.COMM_WORLD.rank == 0 else None"
    )
    done = mpirun(4, "-c", program, json.dumps(wanted))
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.85


@pytest.mark.parametrize("wanted", OPTIMIZERS, ids=str)
def test_optimizer_makes_the_same_steps_as_on_the_cpu(wanted):
    found, expected = (trained_here(optimizer=wanted, device=device) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(found.history["loss"], expected.history["loss"], rtol=1e-4)


def test_no_step_copies_anything_to_the_host(monkeypatch):
    import torch

    from mpi_learn.models.torch_.model import TorchModel

    names, original, calls = [], TorchModel.gradient, []
    profile = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    )

    def counted(self, *arguments):
        calls.append(None)
        if len(calls) in (3, 8):
            torch.cuda.synchronize()
        if len(calls) == 3:
            profile.start()
        if len(calls) == 8:
            profile.stop()
            names.extend(event.name for event in profile.events())
        return original(self, *arguments)

    monkeypatch.setattr(TorchModel, "gradient", counted)
    trained_here(metrics=["accuracy"], optimizer={"name": "adam", "clip_norm": 1.0})
    assert sum(name.startswith("Memcpy HtoD") for name in names) >= 2 * 5, "the profile sees inputs and labels"
    assert not [name for name in names if name.startswith("Memcpy DtoH")]
    assert "cudaStreamSynchronize" not in names, "the host waits for the GPU"


def test_too_small_memory_is_an_error_with_a_cure_and_leaves_the_memory_free():
    import torch

    trained_here(epochs=1)
    before = torch.cuda.memory_allocated()
    n_values = torch.cuda.mem_get_info()[1] // 4
    with pytest.raises(ModelError, match=r"(?s)memory of the GPU is not enough.*use a smaller model or batch"):
        trained_here(model=f"{TORCH}:build_hungry", parameters={"n_values": n_values})
    trained_here(epochs=1)
    allowed = 2**20  # libraries keep some kilobytes from their first call; the values of the failed model are gigabytes
    assert torch.cuda.memory_allocated() <= before + allowed


def test_memory_does_not_grow_from_training_to_training():
    import torch

    used = []
    for _ in range(30):
        trained_here(epochs=1)
        gc.collect()
        used.append(torch.cuda.memory_allocated())
    assert used[-1] <= used[2]


def test_page_locked_memory_is_used_again_only_after_its_copy():
    import torch

    from mpi_learn.models.torch_.tensors import on_device, page_locked_rows

    n, copies = 2**22, []
    arrays = [np.full((n, 1), value, np.float32) for value in range(3)]
    page_locked_rows(arrays[0], np.arange(n), arrays[0].dtype)  # its memory is free for the first copy
    torch.cuda._sleep(2**30)  # the copies wait for about half a second
    for array in arrays:
        copies.append(on_device(page_locked_rows(array, np.arange(n), array.dtype)))
    assert [copy.unique().tolist() for copy in copies] == [[0.0], [1.0], [2.0]]


def test_nccl_sums_a_vector_on_the_gpu():
    import torch

    from mpi_learn.devices.process_group import ProcessGroup

    group = ProcessGroup(MPI.COMM_SELF, "nccl")
    tensor = torch.arange(1000.0, device="cuda")
    group.sum(tensor)
    group.sum(tensor)
    torch.cuda.synchronize()
    group.close()
    np.testing.assert_array_equal(tensor.cpu(), np.arange(1000.0))
