"""Default options of a strategy that depend on the whole search."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import mpi_opt
from mpi_opt.configuration.placeholders import filled
from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.read_study import read_study
from mpi_opt.errors import ConfigurationError, SpaceError
from mpi_opt.objectives.make_objective import check_objective
from mpi_opt.strategies import make_strategy


def plan(n_ranks: int, strategy: str, **options) -> Plan:
    content = {
        "objective": "any.py:thing",
        "space": {"x": {"type": "real", "low": 0.0, "high": 2.0}},
        "search": {"strategy": strategy, "options": options},
    }
    configuration = read_study(content)
    return Plan(configuration, Path(), n_ranks=n_ranks)


@pytest.mark.parametrize(("n_ranks", "lag"), [(1, 16), (17, 16), (33, 32)])
def test_results_are_awaited_by_at_least_as_many_trials_as_there_are_blocks(n_ranks, lag):
    assert plan(n_ranks, "random", reproducible=True).options == {"reproducible": True, "lag": lag}
    assert plan(n_ranks, "random", reproducible=True, lag=3).options["lag"] == 3
    assert plan(n_ranks, "random").options == {}


@pytest.mark.parametrize(("n_ranks", "n_first"), [(2, 10), (33, 32)])
def test_a_generation_is_large_enough_for_every_block(n_ranks, n_first):
    wanted = plan(n_ranks, "evolutionary", generational=True)
    assert len(make_strategy("evolutionary", wanted.space, options=wanted.options).ask(100)) == n_first
    assert plan(n_ranks, "evolutionary", generational=True, population=5).options["population"] == 5


@pytest.mark.parametrize("epochs", [27, 27.0, "27"])
def test_the_last_rung_of_halving_is_a_full_training(epochs):
    content = {
        "space": {"x": {"type": "real", "low": 0.0, "high": 2.0}},
        "search": {"strategy": "halving"},
        "training": {"model": "any.py:build", "epochs": epochs},
    }
    assert Plan(read_study(content), Path()).options == {"max_budget": 27}


@pytest.mark.parametrize("strategy", ["halving", "population"])
def test_epochs_that_the_strategy_chooses_cannot_be_a_hyperparameter(strategy):
    content = {
        "space": {"n": {"type": "integer", "low": 1, "high": 9}},
        "search": {"strategy": strategy},
        "training": {"model": "any.py:build", "epochs": "$n"},
    }
    with pytest.raises(ConfigurationError, match=rf"training.epochs: \$n has no effect: {strategy} chooses the epochs"):
        read_study(content)
    assert read_study(content | {"search": {"strategy": "random"}})


def test_a_hyperparameter_may_have_any_letters():
    content = {
        "space": {"η": {"type": "real", "low": 0.1, "high": 0.2}},
        "training": {"model": "any.py:build", "optimizer": {"name": "sgd", "learning_rate": "$η"}},
    }
    assert filled(read_study(content).training, {"η": 0.15})["optimizer"]["learning_rate"] == 0.15


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("2x", "the name of a hyperparameter must consist of letters, digits and _"),
        ("learning rate", "the name of a hyperparameter must consist of letters, digits and _"),
        ("µ", "Python changes this name in code, from µ (U+00B5) to μ (U+03BC)"),
        ("x²", "the name of a hyperparameter must consist of letters, digits and _"),
        ("ﬁlters", "Python changes this name in code, from ﬁlters (U+FB01) to filters (ASCII)"),
    ],
)
def test_a_name_that_no_function_can_have_is_refused_in_yaml_and_in_python(name, problem):
    content = {"objective": "any.py:thing", "space": {name: {"type": "real", "low": 0.1, "high": 0.2}}}
    with pytest.raises(SpaceError) as of_yaml:
        read_study(content)
    with pytest.raises(SpaceError) as of_python:
        mpi_opt.search(lambda trial: 1.0, space={name: mpi_opt.Real(0.1, 0.2)}, trials=1, store="sqlite://")
    assert (of_yaml.value.problem, of_yaml.value.where) == (problem, f"space.{name}")
    assert (of_python.value.problem, of_python.value.where) == (problem, f"space.{name}")


def test_the_arguments_of_every_model_among_the_categories_are_used(tmp_path):
    (tmp_path / "m.py").write_text("def one(units=3):\n    pass\n\n\ndef two(also=3):\n    pass\n")
    np.savez(tmp_path / "data.npz", X=np.zeros((9, 2), np.float32), y=np.zeros(9))
    whole = {"type": "integer", "low": 1, "high": 9}
    configuration = read_study(
        {
            "space": {
                "architecture": {"type": "categorical", "categories": ["m.py:one", "m.py:two"]},
                "units": whole,
                "also": whole,
                "neither": whole,
            },
            "training": {
                "model": "$architecture",
                "data": {"train": ["data.npz"], "features": "X", "labels": "y", "validation_fraction": 0.2},
                "loss": "mse",
            },
        }
    )
    with pytest.raises(ConfigurationError, match="the hyperparameter neither is not used"):
        check_objective(configuration, configuration.search_space(), tmp_path, "")
    del configuration.space["neither"]
    check_objective(configuration, configuration.search_space(), tmp_path, "")


FLAG = {"type": "categorical", "categories": [True, False]}
MOMENTUM = {"type": "real", "low": 0.5, "high": 0.99}
ONLY_WITH_NORM = "m.py:one needs a value for momentum, but the hyperparameter momentum exists only when {'norm': True}"


@pytest.mark.parametrize(
    ("space", "training", "problem"),
    [
        ({"norm": FLAG, "momentum": MOMENTUM | {"when": {"norm": True}}}, {"model": "m.py:one"}, ONLY_WITH_NORM),
        ({"norm": FLAG, "momentum": MOMENTUM | {"when": {"norm": [True, False]}}}, {"model": "m.py:one"}, ""),
        ({"norm": FLAG, "momentum": MOMENTUM | {"when": {"norm": True}}}, {"model": "m.py:default"}, ""),
        (
            {"norm": FLAG, "momentum": MOMENTUM | {"when": {"norm": True}}},
            {"model": "m.py:one", "parameters": {"momentum": "$momentum"}},
            ONLY_WITH_NORM,
        ),
        (
            {"kind": {"type": "categorical", "categories": ["m.py:one", "m.py:none"]},
             "norm": FLAG, "momentum": MOMENTUM | {"when": {"kind": "m.py:one"}}},
            {"model": "$kind"},
            "",
        ),
        (
            {"norm": FLAG, "deep": FLAG | {"when": {"norm": True}}, "momentum": MOMENTUM | {"when": {"deep": True}}},
            {"model": "m.py:one"},
            "m.py:one needs a value for momentum, but the hyperparameter momentum exists only when {'deep': True}",
        ),
    ],
)  # fmt: skip
def test_an_argument_without_a_default_needs_a_hyperparameter_that_always_exists(tmp_path, space, training, problem):
    functions = {"one": "norm, momentum, deep=0", "default": "norm, momentum=0.9", "none": "norm"}
    (tmp_path / "m.py").write_text("".join(f"def {name}({text}): pass\n" for name, text in functions.items()))
    np.savez(tmp_path / "data.npz", X=np.zeros((9, 2), np.float32), y=np.zeros(9))
    data = {"train": ["data.npz"], "features": "X", "labels": "y", "validation_fraction": 0.2}
    configuration = read_study({"space": space, "training": {"data": data, "loss": "mse"} | training})
    with pytest.raises(ConfigurationError, match=re.escape(problem)) if problem else nullcontext():
        check_objective(configuration, configuration.search_space(), tmp_path, "")


def test_reproducible_trials_do_not_depend_on_the_number_of_blocks():
    assert "population" not in plan(33, "evolutionary", generational=True, reproducible=True).options
    assert plan(33, "evolutionary").options == {}
