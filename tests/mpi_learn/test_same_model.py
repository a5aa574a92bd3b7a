"""Ranks whose functions build different models are refused before the first step; equal models are trained."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.errors import ConfigurationError, DataError, ModelError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.job.launch import launch_environment
from mpi_learn.models.network import ArrayKind
from mpi_learn.models.settings import Example
from mpi_learn.models.weights_only import ModelSizes, WeightsOnly
from mpi_learn.testing.thread_ranks import run_ranks
from mpi_learn.training.ranks.same_model import Mark, agree_on_arrays, agree_on_outputs, are_close
from tests.mpirun import MPIRUN, OPEN_MPI, UNPROTECTED, patient_s
from tests.optional_packages import needs
from tests.world import in_world

EXAMPLE = Example([np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)], [])
FIRST, SECOND = ArrayKind("a", (3,), "float32", True), ArrayKind("b", (1,), "float32", False)


class Line(WeightsOnly):
    """Its outputs are `scale` × x · w, to which `noise` adds other numbers in each call."""

    def __init__(self, arrays=(FIRST, SECOND), scale=1.0, weights=(0.0, 0.0, 0.0), noise=False):
        super().__init__(ModelSizes(FlatLayout(((3,),)), "numpy", 5, 0, 0, arrays), build=None)
        self.weights[:] = weights
        self.scale, self.noise = scale, noise

    def probe(self, x, y, weights=()):
        outputs = self.scale * x[0] @ self.weights + (np.random.default_rng().normal(size=8) if self.noise else 0)
        return [outputs, np.array(np.mean(outputs))]


def compared(models, examples=None, precision="float32"):
    """What the ranks with these models find out together; None for a master."""

    def run(comm):
        model, example = models[comm.rank], (examples or [EXAMPLE] * len(models))[comm.rank]
        before = None if model is None else model.weights.copy()
        agree_on_arrays(comm, model, example)
        first = next(rank for rank, one in enumerate(models) if one is not None)
        agree_on_outputs(comm, model, example, first, precision)
        assert model is None or np.array_equal(model.weights, before)

    run_ranks(len(models), run)


@pytest.mark.parametrize(
    "arrays",
    [
        (SECOND, FIRST),
        (FIRST._replace(name="c"), SECOND),
        (FIRST._replace(shape=(1, 3)), SECOND),
        (FIRST._replace(dtype="float64"), SECOND),
        (FIRST._replace(is_trained=False), SECOND),
        (FIRST,),
        (FIRST, SECOND, SECOND),
    ],
    ids=["order", "name", "shape", "dtype", "trained", "fewer", "more"],
)
def test_ranks_with_other_arrays_are_named_with_the_array(arrays):
    with pytest.raises(
        ModelError, match=r"^model: ranks 2, 3 built another model than rank 1: (array|there are)"
    ) as error:
        compared([None, Line(), Line(arrays), Line(arrays), Line()])
    of_difference = str(error.value).splitlines()[0]
    assert "on rank 1" in of_difference and "on rank 2" in of_difference
    assert "sorted" in error.value.cure


@pytest.mark.parametrize("is_zero", [True, False])
def test_another_constant_is_noticed_also_behind_weights_that_begin_with_zeros(is_zero):
    weights = (0.0,) * 3 if is_zero else (1.0, -2.0, 0.5)
    with pytest.raises(ModelError, match=r"with the same weights, rank 2 and rank 0 compute other outputs") as error:
        compared([Line(weights=weights), Line(weights=weights), Line(scale=1.01, weights=weights)])
    of_rank_2, of_rank_0 = map(float, re.findall(r"samples: (\S+) instead of (\S+)", str(error.value))[0])
    assert of_rank_2 / of_rank_0 == pytest.approx(1.01, rel=1e-4)


def test_rounding_is_no_difference_and_16_bits_round_more():
    compared([Line(), Line(scale=1 + 1e-6)])
    compared([Line(), Line(scale=1.01)], precision="mixed_bfloat16")
    compared([Line((FIRST._replace(dtype="bfloat16"),)), Line((FIRST._replace(dtype="bfloat16"),), scale=1.01)])


def test_models_that_do_not_repeat_their_outputs_are_not_compared():
    compared([Line(), Line(noise=True)])
    compared([Line(noise=True), Line(noise=True), None])


def test_one_of_four_samples_may_differ_and_nan_equals_nan():
    one = np.arange(8.0)[:, None]
    other = one.copy()
    other[:2] += 1
    assert are_close([one], [other], 1.0)
    other[2] += 1
    assert not are_close([one], [other], 1.0)
    assert are_close([one * np.nan], [one * np.nan], 1.0)
    assert not are_close([one * np.nan], [one], 1.0)
    assert not are_close([one], [one * np.nan], 1.0)
    assert not are_close([one], [one, one], 1.0)


def test_ranks_that_read_other_samples_are_named():
    other = Example([EXAMPLE.x[0] + 1], [])
    with pytest.raises(DataError, match=r"^data: rank 1 read other samples than rank 0"):
        compared([Line(), Line(), None], [EXAMPLE, other, EXAMPLE])


def test_a_second_model_of_the_same_function_is_compared():
    mark = Mark.of(Line(), EXAMPLE, "float32")
    mark.check(Line(), EXAMPLE)
    mark.check(Line(weights=(1, 2, 3), scale=2), EXAMPLE)  # other initial weights: nothing to compare
    with pytest.raises(ModelError, match="when it was called again"):
        mark.check(Line(scale=2), EXAMPLE)
    with pytest.raises(ModelError, match=r"array 0 is the trained array a .* in the first call, and the array b"):
        mark.check(Line((SECOND, FIRST)), EXAMPLE)


@needs("torch")
def test_a_checkpoint_of_the_same_arrays_in_another_order_is_refused(tmp_path, monkeypatch):
    """As of a model that iterates over a set of strings, in another process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(
        "import os\nfrom torch import nn\n"
        "class Sum(nn.ModuleDict):\n    def forward(self, x): return (self['a'](x) - 2 * self['b'](x)).sum(1)\n"
        "def build():\n"
        "    return nn.Sequential(nn.Linear(3, 4), Sum({name: nn.Linear(4, 4) for name in os.environ['NAMES']}))\n"
    )
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    samples = Samples((x,), (x.sum(1),))
    configuration = {"model": "m.py:build", "loss": "mse", "data": None, "checkpoint": {"path": "saved"}}

    def trained(names, epochs):
        monkeypatch.setenv("NAMES", names)
        dataset = Dataset(samples, samples, None, np.arange(0))
        return train(configuration | {"epochs": epochs}, MPI.COMM_SELF, data=dataset)

    trained("ab", 1)
    with pytest.raises(ConfigurationError, match=r"in another order than the checkpoint: 1\.b\.weight instead of 1\.a"):
        trained("ba", 2)
    assert trained("ab", 2).epochs == 2


PROGRAM = """
import json, sys
import numpy as np
from mpi4py import MPI
from mpi_learn import train
from mpi_learn.errors import UserError
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples

comm = MPI.COMM_WORLD
x = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
samples = Samples((x,), (x.sum(1, keepdims=True),))
found = {}
for name, changes in json.loads(sys.argv[1]).items():
    configuration = {"loss": "mse", "optimizer": "sgd", "batch_size": 4, "data": None, "seed": 1} | changes
    try:
        result = train(configuration, comm, data=Dataset(samples, samples, np.arange(16), np.arange(16, 24)))
        arrays = result.model.state_dict().values() if name[:5] != "keras" else result.model.get_weights()
        found[name] = [float(sum(np.cos(np.arange(one.size) + one.ravel()).sum() for one in map(np.array, arrays)))]
    except UserError as error:
        found[name] = str(error)
    comm.Barrier()
everything = comm.gather(found, root=0)
if comm.rank == 0:
    print(json.dumps(everything))
"""


def built(cases, n=2):
    """The results of trainings on `n` ranks, of each rank: a sum over the weights, or the error."""
    done = in_world(n, "-c", PROGRAM, json.dumps(cases), timeout=180)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TORCH = "tests.mpi_learn.torch_models_for_tests"
KERAS = "tests.mpi_learn.models_for_tests"


@needs("torch")
@pytest.mark.mpi
def test_modules_that_differ_between_ranks_are_refused_and_unseeded_initial_weights_are_not():
    easgd = {"algorithm": {"name": "easgd"}}
    cases = {
        name: {"model": f"{TORCH}:build_by_rank", "parameters": {"what": name}}
        for name in ("order", "width", "buffers", "constant", "factor", "weights", "permutation")
    }
    cases["constant again"] = cases["constant"] | {"validation": {"mode": "thread"}}
    ranks = built(cases)
    assert ranks[0] == ranks[1]  # the same errors, and the same weights and buffers
    found = ranks[0]
    for name in ("order", "width", "buffers"):
        assert found[name].startswith("model: rank 1 built another model than rank 0: "), found[name]
    for name in ("constant", "factor", "constant again"):
        assert "rank 1 and rank 0 compute other outputs" in found[name], found[name]
    for name in ("weights", "permutation"):
        assert isinstance(found[name], list), found[name]
    sized_later = {"model": f"{TORCH}:build_scaled", "batch_size": 8, "epochs": 2}  # 16 samples: none for rank 2
    ranks = built({"order": cases["order"] | easgd, "later": sized_later, "later, master": sized_later | easgd}, 3)
    assert ranks[0]["later"] == ranks[1]["later"] == ranks[2]["later"]
    assert all(isinstance(ranks[0][name], list) for name in ("later", "later, master")), ranks[0]
    of_master = ranks[0]["order"]  # at the end
    assert of_master.startswith("the function built another model when it was called again: array 0 "), of_master


@pytest.mark.mpi
def test_keras_models_that_differ_between_ranks_are_refused():
    cases = {
        f"keras {what}": {"model": f"{KERAS}:build_by_rank", "parameters": {"what": what}}
        for what in ("order", "constant", "weights", "sampling")
    }
    ranks = built(cases)
    assert ranks[0] == ranks[1]
    assert ranks[0]["keras order"].startswith("model: rank 1 built another model than rank 0: array 0 is the trained")
    assert "rank 1 and rank 0 compute other outputs" in ranks[0]["keras constant"]
    assert isinstance(ranks[0]["keras weights"], list) and isinstance(ranks[0]["keras sampling"], list)


@pytest.mark.mpi
@pytest.mark.skipif(not OPEN_MPI, reason="finds the ranks by a variable of Open MPI")
def test_a_rank_that_waits_in_the_start_is_ended_by_sigterm(tmp_path):
    (tmp_path / "m.py").write_text(
        "import os, time\nfrom pathlib import Path\n"
        "def build():\n    Path(f'built-{os.getpid()}').touch()\n"
        "    time.sleep(1000 if os.environ.get('OMPI_COMM_WORLD_RANK') == '1' else 0)\n"
        "    raise RuntimeError('rank 0 waits for rank 1')\n"
    )
    np.savez(tmp_path / "d.npz", X=np.zeros((8, 2), np.float32))
    (tmp_path / "t.yaml").write_text(
        "model: m.py:build\ndata: {train: [d.npz], features: X, labels: null}\nloss: mse\n"
    )
    command = [MPIRUN, *UNPROTECTED, "-np", "2", sys.executable, "-m", "mpi_learn", "train", "t.yaml"]
    environment = launch_environment()  # as root
    job = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    )
    try:
        deadline = time.monotonic() + patient_s(60)
        while (
            len(pids := [int(file.name[6:]) for file in tmp_path.glob("built-*")]) < 2 and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        rank_0 = next(pid for pid in pids if "OMPI_COMM_WORLD_RANK=0" in environment_of(pid))
        os.kill(rank_0, signal.SIGTERM)
        _, err = job.communicate(timeout=patient_s(20))
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode != 0
    assert "mpi-learn: got SIGTERM; no epoch had begun" in err


def environment_of(pid):
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def test_an_array_is_described_by_its_name_its_shape_and_whether_it_is_trained():
    assert str(FIRST) == "the trained array a of shape (3,) (float32)"
    assert str(SECOND) == "the array b of shape (1,) (float32)"
