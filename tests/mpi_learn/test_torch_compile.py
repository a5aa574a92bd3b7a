"""The key ``compile:``, with a compiler that counts its calls instead of one that takes a minute."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import ConfigurationError, ModelError
from tests.mpi_learn.configurations_for_tests import TORCH
from tests.mpi_learn.models_for_tests import line
from tests.optional_packages import needs

pytestmark = needs("torch")
LINE = {"model": f"{TORCH}:build_regression", "loss": "mse", "batch_size": 30, "epochs": 2}


def compiled_by(backend, monkeypatch):
    import torch

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))


def trained(**changes):
    return train(LINE | changes, MPI.COMM_SELF, data=line())


def test_a_compiled_module_trains_to_the_same_weights(monkeypatch):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled_by(backend, monkeypatch)
    plain = trained().model
    assert graphs == []
    compiled = trained(compile=True).model
    assert graphs, "nothing was compiled"
    for one, other in zip(compiled.state_dict().items(), plain.state_dict().items(), strict=True):
        assert one[0] == other[0], "the names in the file of the model would differ"
        np.testing.assert_allclose(one[1].numpy(), other[1].numpy(), rtol=1e-5, atol=1e-6)


def test_each_of_many_trainings_in_a_process_is_compiled(monkeypatch):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled_by(backend, monkeypatch)
    for _ in range(12):
        graphs.clear()
        trained(compile=True, epochs=1)
        assert graphs, "this module was not compiled"


def test_a_module_that_cannot_be_compiled_is_refused_before_the_first_step(monkeypatch):
    def backend(graph, inputs):
        raise RuntimeError("no compiler")

    compiled_by(backend, monkeypatch)
    with pytest.raises(ModelError, match=r"torch.compile cannot compile Sequential.*no compiler"):
        trained(compile=True)


REFUSED = {
    "checkpointing": ({"gradient_checkpointing": True}, "not supported with `gradient_checkpointing: true`"),
    "validation in a thread": (
        {"validation": {"mode": "thread"}},
        "(?s)not supported with `validation: {mode: thread}`",
    ),
    "stages": ({"pipeline": {"stages": 1}}, "not supported with `pipeline:`"),
}


@pytest.mark.parametrize(("changes", "problem"), REFUSED.values(), ids=REFUSED)
def test_compiling_is_refused_where_it_has_not_been_tried(changes, problem):
    with pytest.raises(ConfigurationError, match=problem):
        trained(compile=True, **changes)


@needs("keras")
def test_a_keras_model_is_compiled_by_xla_instead():
    from tests.mpi_learn.configurations_for_tests import KERAS

    with pytest.raises(ConfigurationError, match="write `xla: true`"):
        trained(compile=True, model=f"{KERAS}:build_regression")


@pytest.mark.thorough  # a minute and a half: it compiles C++
def test_the_compiler_of_pytorch_trains_to_the_same_weights():
    compiled, plain = trained(compile=True), trained()
    assert compiled.history["loss"] == pytest.approx(plain.history["loss"], rel=1e-4)
