"""Outputs of models, and what the configuration says about each of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.settings import Example
from tests.mpi_learn.configurations_for_tests import model_settings
from tests.optional_packages import by_framework, needs

HERE = Path(__file__).parent
KERAS_KINDS = f"{HERE}/conformance/keras_models.py"
KERAS, TORCH = f"{HERE}/models_for_tests.py", f"{HERE}/torch_models_for_tests.py"
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(20, 3)).astype("f"), rng.normal(size=(20, 1)).astype("f")
EXAMPLE = Example((X,), (Y,))


def settings(build, **given):
    return model_settings(build, **({"loss": "mse", "seed": 1} | given))


OF_TWO = {
    "loss": {"loss": {"energy": "mse", "kind": "mse"}},
    "metrics": {"metrics": {"energy": ["mae"], "kind": ["mae"]}},
    "loss_weights": {"loss_weights": {"energy": 0.5, "kind": 0.5}},
}


@needs("keras")
@pytest.mark.parametrize("file", by_framework([KERAS, TORCH]), ids=["keras", "torch"])
@pytest.mark.parametrize("key", OF_TWO)
def test_mapping_of_two_entries_for_one_output_without_a_name_is_refused(key, file):
    with pytest.raises(ConfigurationError, match=rf"^{key}: the model has one output, found entries for 2: energy, ki"):
        make_model(settings(f"{file}:build_regression", **OF_TWO[key]), EXAMPLE)


FORMS = {"dict": {"out": "mse"}, "list": "mse"}


@needs("keras")
@pytest.mark.parametrize("form", FORMS)
def test_outputs_of_keras_that_are_none_are_left_out(form):
    models = [
        make_model(
            settings(f"{KERAS_KINDS}:build_with_none", parameters={"form": form, "extra": extra}, loss=FORMS[form]),
            EXAMPLE,
        )
        for extra in (False, True)
    ]
    steps = [model.gradient((X,), (Y,)) for model in models]
    assert steps[0].any()
    np.testing.assert_array_equal(steps[1], steps[0])
    assert [len(model.predict((X,))) for model in models] == [1, 1]
    np.testing.assert_array_equal(models[1].evaluate((X,), (Y,)), models[0].evaluate((X,), (Y,)))


@needs("keras")
def test_loss_method_of_a_keras_model_receives_outputs_that_are_none():
    """It asserts that they are."""
    model = make_model(settings(f"{KERAS_KINDS}:build_with_none_and_loss", loss=None), EXAMPLE)
    assert model.gradient((X,), (Y,)).any()
    assert len(model.predict((X,))) == 1


@needs("torch")
@pytest.mark.parametrize("place", ["module", "loss", "metric"])
def test_any_exception_of_the_users_code_is_one_message(place):
    given = {"module": {}, "loss": {"loss": f"{TORCH}:failing"}, "metric": {"metrics": [f"{TORCH}:failing"]}}[place]
    build = "build_asserting" if place == "module" else "build_regression"
    with pytest.raises(ModelError, match="not in this week"):
        make_model(settings(f"{TORCH}:{build}", **given), EXAMPLE)


@needs("torch")
def test_lazy_layer_without_parameters_is_refused():
    """Its moving mean has no size yet."""
    with pytest.raises(ModelError, match="lazy layers"):
        make_model(settings(f"{TORCH}:build_lazy_norm"), EXAMPLE)
