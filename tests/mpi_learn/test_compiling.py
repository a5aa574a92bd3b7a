"""XLA, chosen by timing: the gradients are the same, and the timing has no side effects."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mpi_learn import train
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.errors import ConfigurationError
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.settings import Example
from mpi_learn.training.timing import timed_choices
from tests.mpi_learn.configurations_for_tests import KERAS, TORCH, model_settings
from tests.mpi_learn.models_for_tests import digits
from tests.optional_packages import by_framework, needs
from tests.world import in_world

pytestmark = needs("keras")

LOSS = "sparse_categorical_crossentropy"
rng = np.random.default_rng(0)
X64, CLASSES = rng.random((20, 64)).astype("f"), rng.integers(0, 10, 20)


def made():
    settings = model_settings(
        model=f"{KERAS}:build_model", parameters={"norm": True}, loss=LOSS, metrics=["accuracy"], seed=1
    )
    return make_model(settings, Example((X64,), (CLASSES,)))


@pytest.fixture
def model():
    yield (built := made())
    built.close()


@pytest.fixture(scope="module")
def shared():
    return made()


@pytest.fixture
def untrained(shared):
    """A model for tests of the choice. No test runs its step, so that it is built once."""
    shared.compile_step(by_xla=False)
    return shared


def test_xla_gives_the_same_step_vector_for_full_and_for_smaller_batches(model):
    batches = [(X64, CLASSES), (X64[:7], CLASSES[:7]), (X64, CLASSES)]
    floats = model.state.floats()
    plain = [model.gradient((x,), (y,)).copy() for x, y in batches]
    moved = model.state.floats()
    model.state.set_floats(floats)
    model.compile_step(by_xla=True)
    fast = [model.gradient((x,), (y,)).copy() for x, y in batches]
    for one, other in zip(plain, fast, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.state.floats(), moved, rtol=1e-4, atol=1e-6)
    assert fast[0].flags.writeable


def test_timing_leaves_weights_and_state_as_they_were(model):
    weights, floats, integers = model.weights.copy(), model.state.floats(), model.state.integers()
    plain, fast = timed_choices.both_seconds(model, Samples((X64,), (CLASSES,)))
    assert 0 < plain < 10
    assert 0 < fast < 10
    np.testing.assert_array_equal(model.weights, weights)
    np.testing.assert_array_equal(model.state.floats(), floats)
    np.testing.assert_array_equal(model.state.integers(), integers)
    assert not model.uses_xla


def test_a_step_that_fails_while_it_is_timed_leaves_the_state_as_it_was(model, monkeypatch):
    """As when the memory for XLA is exhausted after the first step."""
    floats, gradient, n_calls = model.state.floats(), model.gradient, []

    def failing(*arguments):
        n_calls.append(model.uses_xla)
        if n_calls.count(True) == 2:
            raise MemoryError
        return gradient(*arguments)

    monkeypatch.setattr(model, "gradient", failing)
    assert timed_choices.both_seconds(model, Samples((X64,), (CLASSES,)))[1] == float("inf")
    np.testing.assert_array_equal(model.state.floats(), floats)


def test_xla_compiles_once_however_often_it_is_chosen(model):
    for by_xla in (True, False, True):
        model.compile_step(by_xla=by_xla)
        model.gradient((X64,), (CLASSES,))
    assert model._xla.experimental_get_tracing_count() == 1
    model.compile_step(by_xla=True)
    model.gradient((X64[:7],), (CLASSES[:7],))  # batches of the size of the next one
    assert model._xla.experimental_get_tracing_count() == 2


@pytest.mark.parametrize(
    ("wish", "worth_s", "seconds", "expected"),
    [
        ("auto", 0.0, (2.0, 1.0), True),
        ("auto", 0.0, (1.0, 0.98), False),
        ("auto", 0.0, (1.0, float("inf")), False),
        ("auto", 1e9, (2.0, 1.0), False),
        (True, 1e9, (1.0, 2.0), True),
        (False, 0.0, (2.0, 1.0), False),
    ],
)
def test_xla_is_chosen_only_if_it_is_faster(untrained, monkeypatch, wish, worth_s, seconds, expected):
    from mpi4py import MPI

    from mpi_learn.training.configuration import TrainingConfiguration
    from mpi_learn.training.context import open_context

    configuration = TrainingConfiguration(model="unused", loss=LOSS, xla=wish)
    monkeypatch.setattr(timed_choices, "WORTH_STEPS", 1)
    monkeypatch.setattr(timed_choices, "WORTH_S", worth_s)
    monkeypatch.setattr(timed_choices, "both_seconds", lambda *arguments: seconds)
    with open_context(configuration, MPI.COMM_SELF, digits()) as context:
        timed_choices.choose_compiler(context, untrained)
    assert untrained.uses_xla == expected


def test_a_training_of_few_steps_is_not_held_up_by_timing_any(untrained, monkeypatch):
    from mpi4py import MPI

    from mpi_learn.training.configuration import TrainingConfiguration
    from mpi_learn.training.context import open_context

    monkeypatch.setattr(untrained, "gradient", lambda *batch: pytest.fail("a step was timed"))
    configuration = TrainingConfiguration(model="unused", loss=LOSS)
    with open_context(configuration, MPI.COMM_SELF, digits()) as context:
        timed_choices.choose_compiler(context, untrained)
    assert not untrained.uses_xla


def test_training_with_xla_gives_the_same_weights():
    from mpi4py import MPI

    common = {"model": f"{KERAS}:build_model", "loss": LOSS, "epochs": 2, "batch_size": 128}
    histories = [train(common | {"xla": wish}, MPI.COMM_SELF, data=digits()).history for wish in (False, True)]
    assert histories[1]["val_loss"] == pytest.approx(histories[0]["val_loss"], rel=1e-3)


@pytest.mark.parametrize(
    "changes", by_framework([{"model": f"{TORCH}:build_classes", "loss": "cross_entropy"}, {"gan": {"latent": 8}}])
)
def test_xla_without_support_is_refused(changes):
    from mpi4py import MPI

    configuration = {"model": f"{KERAS}:build_gan", "loss": "binary_crossentropy", "xla": True} | changes
    with pytest.raises(ConfigurationError, match="only the step of a single Keras model"):
        train(configuration, MPI.COMM_SELF, data=digits())


@pytest.mark.mpi
def test_all_workers_choose_the_variant_that_is_faster_in_total():
    done = in_world(3, "-m", "tests.mpi_learn.programs.compiled", timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert [one["chosen"] for one in seen["allreduce"]] == [[True]] * 3
    assert [one["chosen"] for one in seen["downpour"]] == [[], [True], [True]]
    for ranks in seen.values():
        assert all(one["loss"] == ranks[0]["loss"] for one in ranks)
