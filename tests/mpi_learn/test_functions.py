"""Functions that a YAML file names."""

from __future__ import annotations

import os
import sys

import pytest

from mpi_learn.errors import ConfigurationError
from mpi_learn.settings.user_code import load_function, located_specification, signature_of

SOURCE = """
import neighbour
from math import sqrt

ran = True

def build_model(units, activation="relu", *, rate=0.1):
    return neighbour.VALUE, units, activation, rate

def anything(**others):
    return others

class Objective:
    def __init__(self, scale, shift=0):
        self.scale = scale

alias = build_model
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "models.py").write_text(SOURCE)
    (tmp_path / "neighbour.py").write_text("VALUE = 5")
    return tmp_path


def test_function_is_loaded_with_its_neighbours(folder):
    assert load_function("models.py:build_model", folder)(3) == (5, 3, "relu", 0.1)


def test_package_function_is_loaded():
    assert load_function("math:sqrt")(9) == 3


def test_signature_is_read_without_running_the_file(folder):
    (folder / "models.py").write_text("raise SystemExit\n" + SOURCE)
    found = signature_of("models.py:build_model", folder)
    assert (found.names, found.accepts_any, found.required) == (("units", "activation", "rate"), False, ("units",))
    assert signature_of("models.py:anything", folder).accepts_any
    assert signature_of("models.py:Objective", folder).names == ("scale", "shift")
    assert signature_of("models.py:alias", folder).accepts_any


@pytest.mark.parametrize("module", ["package.models", "package.inner.models", "spread.inner.models", "spread.models"])
def test_signature_of_a_module_imports_neither_it_nor_its_packages(folder, module, monkeypatch):
    """Rank 0 of a search would load a framework with them. A package may have no ``__init__.py``."""
    monkeypatch.syspath_prepend(str(folder))
    file = folder.joinpath(*module.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True)
    if module.startswith("package"):
        for package in (folder / "package", file.parent):
            (package / "__init__.py").write_text("raise RuntimeError('this package was imported')")
    file.write_text("raise RuntimeError('this module was imported')\ndef build(units): ...")
    assert signature_of(f"{module}:build").names == ("units",)
    assert not {"package", "spread"} & set(sys.modules)


def test_signature_of_a_compiled_function_is_unknown():
    assert signature_of("math:sqrt").accepts_any
    assert signature_of("numpy.random.mtrand:RandomState").accepts_any


def test_signature_names_a_module_that_a_package_does_not_have(folder):
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    for module in ("package.missing", "models.build_model", "nowhere.at.all"):
        with pytest.raises(ConfigurationError, match=f"there is no module {module}"):
            signature_of(f"{module}:f", folder)


def test_signature_finds_unknown_and_missing_arguments(folder):
    signature = signature_of("models.py:build_model", folder)
    signature.check({"units": 3, "rate": 1}, "models.py:build_model")
    with pytest.raises(ConfigurationError, match=r"has no parameter unit\n.*did you mean units"):
        signature.check({"unit": 3}, "models.py:build_model")
    with pytest.raises(ConfigurationError, match="needs a value for units"):
        signature.check({"rate": 3}, "models.py:build_model")


@pytest.mark.parametrize("look", [load_function, signature_of])
@pytest.mark.parametrize(
    ("specification", "said"),
    [
        ("model.py:build_model", "did you mean models.py"),
        ("models.py:build_modl", "did you mean build_model"),
        ("nowhere_at_all:f", "there is no module nowhere_at_all"),
        ("models.py", "expected a function"),
        ("broken.py:f", "broken.py"),
    ],
)
def test_missing_function_is_reported_with_file_and_nearest_name(folder, look, specification, said):
    (folder / "broken.py").write_text("def f(:")
    with pytest.raises(ConfigurationError, match=said):
        look(specification, folder)


def test_changed_file_is_read_again(folder):
    assert load_function("models.py:anything", folder)(a=1) == {"a": 1}
    (folder / "models.py").write_text("def anything():\n    return 7")
    os.utime(folder / "models.py", ns=(1, 1))
    assert load_function("models.py:anything", folder)() == 7


def test_only_files_are_located(folder):
    assert located_specification("a.py:f", folder) == f"{folder}/a.py:f"
    assert located_specification("pack.age:f", folder) == "pack.age:f"
    assert located_specification("model.keras", folder) == f"{folder}/model.keras"
    assert located_specification("mse", folder) == "mse"
