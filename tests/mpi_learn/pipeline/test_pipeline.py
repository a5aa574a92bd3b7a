"""Models in stages train like models of one process, on real ranks."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import h5py
import numpy as np
import pytest

from tests.optional_packages import needs
from tests.world import in_world

pytestmark = pytest.mark.mpi
FRAMEWORKS = [pytest.param("torch", marks=needs("torch")), pytest.param("keras", marks=needs("keras"))]
SLOW = [FRAMEWORKS[0], pytest.param("keras", marks=(needs("keras"), pytest.mark.thorough))]
"""The same, with Keras in `make test-all` only, where compiling takes long."""
RANKS = [2, pytest.param(4, marks=pytest.mark.thorough)]
"""Two stages, with one replica and with two."""
N_SAMPLES = 106
"""Seven batches of an epoch, the last one smaller."""


@cache
def folder(n: int) -> Path:
    made = Path(mkdtemp(prefix=f"pipeline-{n}-"))
    random = np.random.default_rng(0)
    x = random.normal(size=(N_SAMPLES, 12)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)
    np.savez(made / "data.npz", x=x, y=y)
    with h5py.File(made / "data.h5", "w") as file:
        file["x"], file["y"] = x, y
    np.savez(made / "labels.npz", x=x, y=y + 3 * (np.arange(N_SAMPLES) == 50))  # none of those that build the model
    return made


@cache
def ran(n: int, framework: str, *cases: str) -> dict:
    done = in_world(n, "-m", "tests.mpi_learn.pipeline.ranks", framework, str(folder(n)), *cases, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_stages_train_to_the_losses_of_a_plain_loop(framework):
    found = ran(2, framework, "plain_loop")["plain_loop"]
    assert found["plain"][-1] < found["plain"][0]
    assert found["stages"] == pytest.approx(found["plain"], abs=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_all_schedules_stages_and_replicas_train_to_the_losses_of_one_process(framework):
    """21 steps with SGD and Adam, two and four stages, both schedules, with and without replicas."""
    found = dict(ran(4, framework, "losses")["losses"])
    for optimizer in ("sgd", "adam"):
        plain = found.pop(f"alone {optimizer}")
        assert plain[-1] < plain[0]
        same = {name: values for name, values in found.items() if name.startswith(optimizer)}
        assert len(same) == 6
        for name, values in same.items():
            assert values == pytest.approx(plain, abs=1e-5), name


@pytest.mark.parametrize("framework", SLOW)
def test_a_list_of_stages_is_one_model_afterwards(framework):
    found = ran(2, framework, "listed")["listed"]
    for name in ("alone", "sequence"):
        for metric, values in found[name]["history"].items():
            assert found["listed"]["history"][metric] == pytest.approx(values, abs=1e-5), (name, metric)
        assert found["listed"]["weights"] == pytest.approx(found[name]["weights"], rel=1e-5)
    losses = found["functions"]["history"]["loss"]
    assert losses[-1] < losses[0]
    assert loaded_checksum(framework, found["file"]) == pytest.approx(found["listed"]["weights"], rel=1e-6)


def loaded_checksum(framework, file):
    """The sum of the magnitudes of the weights in a file, read by the framework alone."""
    if framework == "keras":
        import keras

        return float(sum(np.abs(array).sum() for array in keras.saving.load_model(file).get_weights()))
    import torch

    return float(sum(value.abs().sum() for value in torch.load(file).values()))


@pytest.mark.thorough
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_batch_normalisation_of_a_whole_batch_is_that_of_one_process(framework):
    found = ran(2, framework, "normalised")["normalised"]
    for metric, values in found["alone"]["history"].items():
        assert found["stages"]["history"][metric] == pytest.approx(values, abs=1e-4), metric


@pytest.mark.thorough
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_activations_that_are_computed_again_give_the_same_losses(framework):
    found = ran(2, framework, "recomputed")["recomputed"]
    assert found["checkpointing"] == pytest.approx(found["plain"], abs=1e-6)


@pytest.mark.parametrize("framework", SLOW)
@pytest.mark.parametrize("n", RANKS)
def test_an_interrupted_training_of_stages_continues_exactly(framework, n):
    found = ran(n, framework, "resumed")["resumed"]
    assert found["before"] == 2
    assert found["again"] == found["through"]
    assert found["started"] == 4
    assert "a model in 2 stages, now there are 1" in found["error"]


@pytest.mark.parametrize("framework", SLOW)
@pytest.mark.parametrize("n", RANKS)
def test_stages_by_time_are_measured_once_and_kept_by_a_checkpoint(framework, n):
    found = ran(n, framework, "timed")["timed"]
    notes = {
        "first": "by measured time, the stages have 1, 3 layers",
        "again": "as in the checkpoint, the stages have 1, 3 layers",
        "fresh": "by measured time, the stages have 3, 1 layers",
    }
    assert found == {
        "first": [1, [1, 3], [notes["first"]]],
        "again": [2, [1, 3], [notes["again"]]],
        "fresh": [1, [3, 1], [notes["fresh"]]],
    }


@pytest.mark.parametrize("framework", SLOW)
def test_stages_send_the_bytes_of_their_encoding_in_training_alone(framework):
    """In an epoch, 16 activations of 106 samples in 21 micro-batches, and their gradients; float32 in validation."""
    found = ran(2, framework, "compressed")["compressed"]
    scales = 4 * 21
    lengths = {
        "none": 4 * 16 * N_SAMPLES,
        "bfloat16": 2 * 16 * N_SAMPLES,
        "float16": 2 * 16 * N_SAMPLES + scales,
        "int8": 16 * N_SAMPLES + scales,
    }
    for name, length in lengths.items():
        assert found[name]["bytes"] == [length + lengths["none"], length], name


@pytest.mark.parametrize("framework", SLOW)
def test_stages_with_small_messages_train_nearly_as_in_float32(framework):
    found = ran(2, framework, "compressed")["compressed"]
    exact = found["none"]["history"]["val_loss"]
    for name, distance in {"bfloat16": 0.002, "float16": 0.0005, "int8": 0.005}.items():
        validated = found[name]["history"]["val_loss"]
        assert validated == pytest.approx(exact, abs=distance), name
        assert validated != exact, name
        assert validated[-1] < validated[0], name


@pytest.mark.parametrize("framework", SLOW)
def test_validation_of_stages_sees_the_model_that_is_saved_without_rounding(framework):
    found = ran(2, framework, "compressed")["compressed"]
    assert found["int8"]["still"]["val_loss"] == found["none"]["still"]["val_loss"]
    assert found["int8"]["still"]["loss"] != pytest.approx(found["none"]["still"]["loss"], abs=1e-5)


@needs("torch")
def test_stages_round_activations_and_their_gradients_as_pytorch_does():
    found = ran(2, "torch", "compressed")["compressed"]
    assert found["bfloat16"]["history"]["loss"] == pytest.approx(found["rounded"], abs=1e-6)
    assert found["none"]["history"]["loss"] != pytest.approx(found["rounded"], abs=1e-5)


@pytest.mark.parametrize("framework", SLOW)
@pytest.mark.parametrize("n", RANKS)
def test_an_error_in_one_stage_ends_the_training_on_all_ranks(framework, n):
    for case, errors in ran(n, framework, "failing")["failing"].items():
        assert all("RuntimeError: boom" in error for error in errors), (case, errors)


@pytest.mark.parametrize("framework", SLOW)
@pytest.mark.parametrize("n", RANKS)
def test_an_error_between_the_passes_of_stages_ends_the_training_on_all_ranks(framework, n):
    for case, errors in ran(n, framework, "failing_elsewhere")["failing_elsewhere"].items():
        rank = case.split()[1]
        assert all(error.startswith(f"rank {rank} on ") and "OSError: boom" in error for error in errors), (
            case,
            errors,
        )


REFUSED = {
    "shared": {"torch": "share the weights", "keras": "can be divided into 1 stages at most"},
    "two tensors": {"torch": "expected one tensor of float32", "keras": "expected one tensor of real numbers"},
    "tangled": "cannot be divided into stages",
    "too many": "expected the numbers of layers of 2 stages",
    "list": "expected one model per stage, 2 in all, it returned 4",
    "raises": "building stage 1 raised RuntimeError: boom",
    "nothing": "expected models of Keras or PyTorch, or functions that build them, found None",
    "host": "raised ImportError: no such library here",
    "labels": "is outside of the model's 3 classes",
    "normalised": "no error",
    "penalised": {"keras": "layers before the last stage add terms to the loss"},
}


@pytest.mark.parametrize("framework", SLOW)
def test_models_that_cannot_be_divided_are_refused_in_one_sentence(framework):
    found = ran(2, framework, "refused")["refused"]
    for case, errors in found.items():
        said = REFUSED[case] if isinstance(REFUSED[case], str) else REFUSED[case][framework]
        assert all(said in error for error in errors), errors
    assert len(found) >= 10
