"""Vectors in two memories, their optimizers, and their sums over ranks, with tensors in the memory of the host."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from pydantic import TypeAdapter, ValidationError

from mpi_learn import train
from mpi_learn.algorithms.configuration import AllReduce
from mpi_learn.devices.device_vector import DeviceVector
from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import OptimizerConfiguration
from mpi_learn.optimizers.optimizer import make_optimizer
from tests.mpi_learn.configurations_for_tests import TORCH
from tests.mpi_learn.models_for_tests import digits
from tests.mpirun import SURVIVES_LOST_RANKS, mpirun
from tests.optional_packages import is_installed, needs
from tests.world import in_world

if is_installed("torch"):
    import torch

pytestmark = needs("torch")
LAYOUT = FlatLayout(((3, 4), (4,), (4, 2), (2,)))
CLASSES = {"model": f"{TORCH}:build_classes", "loss": "cross_entropy", "batch_size": 128, "epochs": 2, "seed": 2}
SECTIONS = [
    {"name": "sgd", "weight_decay": 0.01},
    {"name": "sgd", "momentum": 0.9},
    {"name": "sgd", "momentum": 0.9, "nesterov": True, "clip_norm": 0.7},
    {"name": "adam", "epsilon": 1e-3},
    {"name": "adamw", "clip_norm": 0.7},
    {"name": "rmsprop", "clip_value": 0.3},
    {"name": "rmsprop", "momentum": 0.5, "centered": True, "weight_decay": 0.01},
    {"name": "adagrad", "weight_decay": 0.01},
    {"name": "adadelta", "learning_rate": 1.0},
    {"name": "lars", "weight_decay": 0.1},
    {"name": "lamb", "weight_decay": 0.1},
]


def gradients(n_steps):
    """Step after step, a gradient and the counts of its arrays; every third one lacks an array."""
    generator, n = np.random.default_rng(5), len(LAYOUT.shapes)
    for step in range(n_steps):
        gradient, counts = generator.standard_normal(LAYOUT.size).astype(np.float32), np.ones(n, np.float32)
        if step % 3 == 2:
            counts[step % n] = 0
            gradient[LAYOUT.bounds[step % n] : LAYOUT.bounds[step % n + 1]] = 0
        yield gradient, counts


class Twins:
    """An optimizer of arrays and one of tensors, which make the same steps."""

    def __init__(self, section):
        options = TypeAdapter(OptimizerConfiguration).validate_python(section)
        rate = lambda step: options.learning_rate / (1 + step)  # noqa: E731
        self.on_host = make_optimizer(options, LAYOUT, rate)
        self.on_device = make_optimizer(options, LAYOUT, rate, torch.device("cpu"))
        self.weights = np.random.default_rng(1).standard_normal(LAYOUT.size).astype(np.float32)
        self.tensor = torch.from_numpy(self.weights.copy())

    def step(self, gradient, counts):
        self.on_host.update(self.weights, np.append(gradient, counts), 1 / 64)
        factor = 0.5  # as if the gradient had not been multiplied yet
        vector = DeviceVector(torch.from_numpy(gradient / factor), counts, factor)
        self.on_device.update(DeviceVector(self.tensor, counts), vector, 1 / 64)

    def check(self):
        np.testing.assert_allclose(self.tensor, self.weights, rtol=2e-5, atol=1e-6)
        mine, theirs = self.on_device.arrays(), self.on_host.arrays()
        assert mine.keys() == theirs.keys()
        for name, array in theirs.items():
            np.testing.assert_allclose(mine[name], array, rtol=2e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_optimizer_changes_tensors_as_it_changes_arrays(section):
    twins = Twins(section)
    for gradient, counts in gradients(7):
        twins.step(gradient, counts)
        twins.check()


def test_state_in_a_checkpoint_continues_on_a_device():
    earlier, later = Twins(SECTIONS[3]), Twins(SECTIONS[3])
    steps = list(gradients(5))
    for step in steps[:3]:
        earlier.step(*step)
    for name, array in later.on_device.arrays().items():
        array[...] = earlier.on_host.arrays()[name]
    later.on_host = earlier.on_host
    later.weights[:] = earlier.weights
    later.tensor[:] = torch.from_numpy(earlier.weights)
    for step in steps[3:]:
        later.step(*step)
    later.check()


def test_slice_of_a_vector_is_in_one_of_its_memories():
    vector = DeviceVector(torch.arange(4.0), np.array([4, 5, 6], np.float32), 2.0)
    assert vector.size == 7
    assert vector[1:3].tolist() == [1, 2]
    assert vector[4:].tolist() == [4, 5, 6]
    assert vector[5:6].tolist() == [5]
    beginning = vector[:5]
    assert (beginning.front is vector.front, beginning.tail.tolist(), beginning.factor) == (True, [4], 2.0)
    assert (vector.multiplied().tolist(), vector.factor) == ([0, 2, 4, 6], 1.0)
    with pytest.raises(IndexError, match="elements 1 to 5"):
        vector[1:5]


@pytest.fixture
def copies(monkeypatch):
    from mpi_learn.models.torch_ import network, tensors

    for module in (network, tensors):
        monkeypatch.setattr(module, "shares_memory", lambda: False)


def test_no_step_reads_a_number_from_the_device(copies, monkeypatch):
    """On a GPU, the step would wait for all steps before it."""
    from mpi_learn.data.samples.stored_samples import copied_rows
    from mpi_learn.models.torch_ import model
    from mpi_learn.models.torch_.model import TorchModel

    monkeypatch.setattr(model, "page_locked_rows", copied_rows)  # the other one uses tensors in the memory of the host
    read, is_in_steps = [], []
    for name in ("item", "numpy", "cpu", "tolist", "__bool__", "__float__"):
        original = getattr(torch.Tensor, name)

        def noted(self, *arguments, name=name, original=original, **options):
            read.extend([name] * bool(is_in_steps))
            return original(self, *arguments, **options)

        monkeypatch.setattr(torch.Tensor, name, noted)
    for name, change in (("begin_steps", lambda: is_in_steps.append(None)), ("end_steps", is_in_steps.clear)):
        original = getattr(TorchModel, name)

        def changed(self, *arguments, original=original, change=change):
            change()
            return original(self, *arguments)

        monkeypatch.setattr(TorchModel, name, changed)
    wanted = {"metrics": ["accuracy"], "optimizer": {"name": "adam", "clip_norm": 1.0}}
    train(CLASSES | wanted, MPI.COMM_SELF, data=digits())
    assert not read
    train(CLASSES | wanted | {"algorithm": {"name": "allreduce", "accumulate": 2}}, MPI.COMM_SELF, data=digits())
    assert "item" in read, "steps on the host do"


def test_checkpoint_of_a_device_continues_on_the_host(monkeypatch, tmp_path):
    from mpi_learn.models.torch_ import network, tensors

    whole = train(CLASSES | {"epochs": 4}, MPI.COMM_SELF, data=digits())
    wanted = CLASSES | {"checkpoint": {"path": str(tmp_path)}}
    with monkeypatch.context() as patch:
        for module in (network, tensors):
            patch.setattr(module, "shares_memory", lambda: False)
        train(wanted, MPI.COMM_SELF, data=digits())
    resumed = train(wanted | {"epochs": 4}, MPI.COMM_SELF, data=digits())
    assert resumed.epochs_before == 2
    np.testing.assert_allclose(resumed.history["loss"], whole.history["loss"], rtol=1e-5)


def test_too_small_memory_is_an_error_with_a_cure(monkeypatch):
    from tests.mpi_learn.torch_models_for_tests import Hungry

    def full(self, x):
        if self.training and len(x) > 8:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")
        return self.layers(x)

    monkeypatch.setattr(Hungry, "forward", full)
    wanted = {"model": "tests.mpi_learn.torch_models_for_tests:build_hungry", "parameters": {"n_values": 0}}
    with pytest.raises(
        ModelError, match=r"batch_size: the memory of the GPU is not enough: CUDA out of memory"
    ) as caught:
        train(CLASSES | wanted, MPI.COMM_SELF, data=digits())
    assert "fewer ranks for each GPU" in str(caught.value)


@pytest.mark.skipif(is_installed("torch") and torch.cuda.is_available(), reason="the device exists")
def test_missing_device_is_an_error_in_one_sentence():
    with pytest.raises(ConfigurationError, match=r"^device: (PyTorch finds no GPU|this PyTorch was built without)"):
        train(CLASSES | {"device": "cuda"}, MPI.COMM_SELF, data=digits())


def test_compressed_gradients_are_summed_by_mpi_alone():
    with pytest.raises(ValidationError, match="compressed on the host, and gloo"):
        AllReduce(compression="float16", reduction="gloo")


PROGRAM = f"""
import json
from mpi4py import MPI
from mpi_learn import train
from mpi_learn.errors import MPILearnError
from mpi_learn.models.torch_ import network, tensors
from tests.mpi_learn.models_for_tests import digits

comm, seen = MPI.COMM_WORLD, {{}}
wanted = {CLASSES!r} | {{"batch_size": 60, "optimizer": "adam", "metrics": ["accuracy"]}}

def trained(reduction, **changes):
    section = {{"name": "allreduce", "reduction": reduction}}
    return train(wanted | {{"algorithm": section}} | changes, comm, data=digits())

shares_memory = tensors.shares_memory
for place in ("host", "device"):
    if place == "device":
        network.shares_memory = tensors.shares_memory = lambda: False
    for reduction in ("mpi", "gloo"):
        result = trained(reduction)
        seen[f"{{reduction}} {{place}}"] = result.history["loss"]
    model = "tests.mpi_learn.torch_models_for_tests:build_failing"
    try:
        trained("gloo", model=model, parameters={{"rank": 1, "step": 5}})
    except MPILearnError as error:
        seen[f"failed {{place}}"] = str(error).splitlines()[0]
try:
    trained("nccl")
except MPILearnError as error:
    seen["nccl"] = str(error)
network.shares_memory = tensors.shares_memory = shares_memory
if comm.rank == 0:
    print(json.dumps(seen))
"""


def test_gloo_sums_as_mpi_and_a_failed_rank_ends_the_training_of_all(tmp_path: Path):
    done = in_world(2, "-c", PROGRAM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    alone = train(CLASSES | {"batch_size": 120, "optimizer": "adam"}, MPI.COMM_SELF, data=digits()).history["loss"]
    for name in ("mpi host", "gloo host", "mpi device", "gloo device"):
        np.testing.assert_allclose(seen[name], alone, rtol=1e-6, err_msg=name)
    for place in ("host", "device"):
        assert "rank 1" in seen[f"failed {place}"]
        assert "step 5" in seen[f"failed {place}"]
    assert seen["nccl"].startswith("algorithm.reduction: nccl sums gradients on GPUs")


DYING = """
import os, signal
import numpy as np
from mpi4py import MPI
from mpi_learn.algorithms.process_group_sum import ProcessGroupSum
from mpi_learn.mpi.messaging import RankLost, is_consequence

comm = MPI.COMM_WORLD
reduction = ProcessGroupSum(comm, "gloo", 4)
step = np.zeros(9, np.float32)
reduction.sum(comm, step)
if comm.rank == 1:  # after the sum of the counts by MPI
    reduction._group.sum = lambda gradient: os.kill(os.getpid(), signal.SIGKILL)
try:
    reduction.sum(comm, step)
except RankLost as error:
    assert is_consequence(error)
    print(error, flush=True)
os._exit(0)  # the end of MPI would wait for the lost rank
"""


@pytest.mark.mpi
@pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks")
def test_a_rank_that_dies_between_the_sums_of_mpi_and_gloo_is_lost(tmp_path: Path):
    done = mpirun(2, "-c", DYING, cwd=tmp_path)
    assert "gloo has lost a rank: " in done.stdout, done.stderr
