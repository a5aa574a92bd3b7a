"""Functions that a YAML file names."""

from __future__ import annotations

import os
import sys

import pytest

from mpi_learn.errors import ConfigurationError
from mpi_learn.settings.component import Component, make_component
from mpi_learn.settings.user_code import absolute_specification, load_function, signature_of

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


WAYS = {
    "import": "from all_of_it import build",
    "import of all names": "from all_of_it import *",
    "import of all names, if there are any": "try:\n    from all_of_it import *\nexcept ImportError:\n    pass",
    "condition": "if True:\n    def build(units): return 7",
    "other branch": "if not __name__:\n    build = None\nelse:\n    class build:\n        def __new__(cls): return 7",
    "try": "try:\n    import nowhere_at_all\nexcept ImportError:\n    def build(): return 7",
    "with": "import contextlib\nwith contextlib.suppress(Exception):\n    build = lambda: 7",
    "annotated assignment": "build: object = lambda: 7",
    "several targets": "other, (build, *rest) = None, (lambda: 7, 1)",
    "loop": "for build in [lambda: 7]: pass",
    "assignment expression": "[build := lambda: 7 for _ in range(1)]",
    "global statement": "def define():\n    global build\n    build = lambda: 7\ndefine()",
    "attributes on demand": "def __getattr__(name): return lambda: 7",
    "coroutine": "async def build(): return 7",
}


@pytest.mark.parametrize("source", WAYS.values(), ids=WAYS)
def test_function_that_may_be_defined_in_any_way_has_an_unknown_signature(folder, source):
    (folder / "all_of_it.py").write_text("def build(): return 7")
    (folder / "models.py").write_text(source)
    assert callable(load_function("models.py:build", folder))
    assert signature_of("models.py:build", folder).accepts_any


FILE_ENCODINGS = {
    "byte order mark": "def build(units): return 'µ'\n".encode("utf-8-sig"),
    "declared encoding": "# -*- coding: latin-1 -*-\ndef build(units): return 'µ'\n".encode("latin-1"),
}


@pytest.mark.parametrize("content", FILE_ENCODINGS.values(), ids=FILE_ENCODINGS)
def test_file_is_decoded_as_python_decodes_it(folder, content):
    (folder / "models.py").write_bytes(content)
    assert load_function("models.py:build", folder)(1) == "µ"
    assert signature_of("models.py:build", folder).names == ("units",)


def test_file_in_another_encoding_than_declared_is_not_python(folder):
    (folder / "models.py").write_bytes("def build(units): return 'µ'\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match="the file is not valid Python"):
        signature_of("models.py:build", folder)


@pytest.mark.parametrize("content", [b"def build(units): return 1\0\n", b"# -*- coding: foo -*-\n"])
def test_a_file_that_no_line_can_correct_has_to_be_saved_as_text(folder, content):
    (folder / "models.py").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"not valid Python: .*\n.*save the file as text in UTF-8"):
        signature_of("models.py:build", folder)


REBINDINGS = {
    "assignment": "from functools import partial\nbuild = partial(build, scale=2)",
    "assignment in a block": "from functools import partial\nif True:\n    build = partial(build, scale=2)",
    "import": "from doubled_units import build",
    "import under this name": "import doubled_units\nfrom doubled_units import other as build",
}


@pytest.mark.parametrize("rebinding", REBINDINGS.values(), ids=REBINDINGS)
def test_function_that_is_also_assigned_or_imported_has_an_unknown_signature(folder, rebinding):
    (folder / "doubled_units.py").write_text("def build(units): return 2 * units\nother = build")
    (folder / "models.py").write_text(f"def build(units, scale): return units * scale\n{rebinding}\n")
    assert load_function("models.py:build", folder)(3) == 6
    signature_of("models.py:build", folder).check({"units": 3}, "models.py:build")


NOT_REBINDINGS = {
    "local variable": "def outer():\n    build = 7",
    "attribute of a class": "class Outer:\n    build = 7",
    "another name": "model = build",
    "argument": "model = dict(build=build)",
    "import under another name": "from all_of_it import build as other",
}


@pytest.mark.parametrize("source", NOT_REBINDINGS.values(), ids=NOT_REBINDINGS)
def test_name_of_a_function_in_another_scope_does_not_change_its_signature(folder, source):
    (folder / "models.py").write_text(f"def build(units, scale): return units * scale\n{source}\n")
    assert signature_of("models.py:build", folder).required == ("units", "scale")


def test_positional_only_parameters_are_not_passed_by_name(folder):
    (folder / "models.py").write_text(
        "def build(first, second=2, /, units=3, *, rate): ...\n"
        "class Model:\n    def __init__(self, first, /, units): ...\n"
        "class Other:\n    def __init__(self, /, units): ...\n"
    )
    signature = signature_of("models.py:build", folder)
    assert (signature.names, signature.required) == (("units", "rate"), ("first", "rate"))
    with pytest.raises(ConfigurationError, match="has no parameter first"):
        signature.check({"first": 1, "rate": 2}, "models.py:build")
    with pytest.raises(ConfigurationError, match=r"needs a value for first, by position only\n.*remove the `/`"):
        signature.check({"rate": 2}, "models.py:build")
    for name, required in (("Model", ("first", "units")), ("Other", ("units",))):
        signature = signature_of(f"models.py:{name}", folder)
        assert (signature.names, signature.required) == (("units",), required)


ELSEWHERE = {
    "local": "def outer():\n    build = 7",
    "of a class": "class Outer:\n    def build(self): ...",
    "used": "import contextlib\nwith contextlib.suppress(NameError):\n    build()",
    "used in a function": "def outer(): return build()",
    "imported under another name": "from math import sqrt as build_model",
    "attribute": "import math\nmath.build = 7",
}


@pytest.mark.parametrize("source", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("look", [load_function, signature_of])
def test_name_that_a_module_only_uses_is_not_a_function_of_it(folder, look, source):
    (folder / "models.py").write_text(source)
    with pytest.raises(ConfigurationError, match="there is no function build"):
        look("models.py:build", folder)


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


def test_decorator_may_supply_and_accept_arguments(folder):
    (folder / "models.py").write_text(
        "def with_scale(function):\n"
        "    return lambda units, **others: (function(units, 2), others)\n"
        "@with_scale\n"
        "def build(units, scale): return units * scale\n"
    )
    signature = signature_of("models.py:build", folder)
    for arguments in ({"units": 3}, {"units": 3, "seed": 1}):
        signature.check(arguments, "models.py:build")
    assert (signature.names, signature.accepts_any) == (("units", "scale"), False)  # it is not given other arguments
    assert load_function("models.py:build", folder)(3, seed=1) == (6, {"seed": 1})


@pytest.mark.parametrize("look", [load_function, signature_of])
def test_missing_file_lists_the_python_files_beside_it(folder, look):
    with pytest.raises(ConfigurationError, match=rf"Python files in {folder}: models\.py, neighbour\.py$"):
        look("xyz.py:build", folder)
    (folder / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=r"Python files in .*/empty: none$"):
        look("empty/xyz.py:build", folder)


@pytest.mark.parametrize("look", [load_function, signature_of])
@pytest.mark.parametrize(
    ("specification", "problem", "cure"),
    [
        (f"{'long' * 99}.py:f", "the file is not accessible: File name too long", "check the path and the permissions"),
        ("~nosuchuser/f.py:f", "there is no home directory ~nosuchuser", "write the whole path"),
    ],
)
def test_file_that_cannot_be_looked_for_is_reported_with_its_path(folder, look, specification, problem, cure):
    with pytest.raises(ConfigurationError, match=problem) as caught:
        look(specification, folder)
    assert caught.value.where.endswith(specification.removesuffix(":f"))
    assert cure in caught.value.cure


@pytest.mark.parametrize("look", [load_function, signature_of])
@pytest.mark.parametrize(
    ("specification", "said"),
    [
        ("model.py:build_model", "did you mean models.py"),
        ("models.py:build_modl", "did you mean build_model"),
        ("nowhere_at_all:f", "there is no module nowhere_at_all"),
        ("models.py", "expected a function"),
        ("broken.py:f", r"broken\.py: .*(raised SyntaxError|not valid Python): invalid syntax"),
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


def test_file_that_was_interrupted_runs_again_from_its_beginning(folder):
    (folder / "models.py").write_text(
        "from pathlib import Path\n"
        "if not Path(__file__).with_name('begun').exists():\n"
        "    Path(__file__).with_name('begun').touch()\n"
        "    raise KeyboardInterrupt\n"
        "def build(): return 7\n"
    )
    with pytest.raises(KeyboardInterrupt):
        load_function("models.py:build", folder)
    assert load_function("models.py:build", folder)() == 7


def test_only_files_become_absolute(folder):
    assert absolute_specification("a.py:f", folder) == f"{folder}/a.py:f"
    assert absolute_specification("pack.age:f", folder) == "pack.age:f"
    assert absolute_specification("model.keras", folder) == f"{folder}/model.keras"
    assert absolute_specification("mse", folder) == "mse"


FUNCTIONS_AND_FACTORIES = """
def made(*arguments): return "made"
def plain(outputs, labels): return "called"
def with_default(outputs, labels=None): return "called"
def with_options(outputs, labels, *, gamma=2): return "called"
def with_rest(*arrays): return "called"
def needs_gamma(outputs, labels, gamma): return "called"
def factory(): return made
def factory_with_defaults(alpha=1, gamma=2): return made
def factory_of_gamma(gamma): return made
def factory_by_keyword(*, gamma=2): return made
"""


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("plain", {}, "called"),
        ("with_default", {}, "called"),
        ("with_options", {"gamma": 3}, "called"),
        ("with_rest", {}, "called"),
        ("needs_gamma", {"gamma": 3}, "called"),
        ("factory", {}, "made"),
        ("factory_with_defaults", {}, "made"),
        ("factory_with_defaults", {"gamma": 3}, "made"),
        ("factory_of_gamma", {"gamma": 3}, "made"),
        ("factory_by_keyword", {}, "made"),
    ],
)
def test_a_function_is_a_factory_if_it_needs_no_argument_or_takes_too_few(folder, name, arguments, result):
    (folder / "losses.py").write_text(FUNCTIONS_AND_FACTORIES)
    wanted = Component.model_validate({"name": f"{folder}/losses.py:{name}"} | arguments)
    assert make_component(wanted, 2)("outputs", "labels") == result
