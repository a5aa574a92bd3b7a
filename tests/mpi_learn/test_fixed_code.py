"""Code of a user that is fixed while a search or a training runs."""

from __future__ import annotations

import importlib
import pickle
import shutil
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_learn.mpi.library import MPI
from mpi_learn.settings.user_code import load_function, signature_of
from mpi_learn.settings.user_files import fix, fixed, fixed_code, names_of_functions, read_source_code
from mpi_learn.training.ranks.same_model import same_code

FILES = {
    "model.py": """
import beside
import numpy as np
from shared.layers import width
from spread.part import PART

CONFIGURATION = {"model": "other.py:build"}

def build(units):
    import late
    return [beside.VALUE, width(), PART, late.VALUE, units]

def fail():
    raise ValueError("seen")  # the line that ran
""",
    "other.py": "def build(): return 'other'",
    "beside.py": "VALUE = 1",
    "late.py": "VALUE = 4",
    "unused.py": "VALUE = 0",
    "shared/__init__.py": "from . import layers",
    "shared/layers.py": "from .sizes import WIDTH\ndef width(): return WIDTH",
    "shared/sizes.py": "WIDTH = 2",
    "spread/part.py": "PART = 3",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model of several modules; afterwards the modules and paths are as before."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield tmp_path
    fix(None)
    roots = {Path(name).parts[0].removesuffix(".py") for name in FILES}
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in roots or str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def read(folder: Path, *names: str):
    return read_source_code(names or ["model.py:build"], folder)


def test_files_of_a_function_and_its_local_imports_are_read(folder):
    code = read(folder)
    assert {Path(path).relative_to(folder).as_posix() for path in code.files} == set(FILES) - {"unused.py"}
    assert code.installed == {"numpy"}
    assert {name for name in code.modules if code.modules[name].file} == {
        *("beside", "late", "shared", "shared.layers", "shared.sizes", "spread.part")
    }


@pytest.mark.parametrize("change", ["edited", "damaged", "deleted"])
def test_code_runs_as_it_was_read_whatever_happens_to_its_files(folder, change):
    """A file is edited, saved while it is no Python, or not there: another host sees the folder later."""
    with fixed(pickle.loads(pickle.dumps(read(folder)))):  # as another rank receives it
        if change == "deleted":
            shutil.rmtree(folder)
        else:
            for name in FILES:
                (folder / name).write_text("VALUE = WIDTH = PART = 100" if change == "edited" else "no Python (")
        importlib.invalidate_caches()
        assert load_function("model.py:build", folder)(5) == [1, 2, 3, 4, 5]
        assert load_function("other.py:build", folder)() == "other"
        assert signature_of("model.py:build", folder).required == ("units",)
        with pytest.raises(ValueError, match="seen") as raised:
            load_function("model.py:fail", folder)()
        assert "# the line that ran" in "".join(traceback.format_exception(raised.value))


def test_module_named_without_a_file_runs_as_it_was_read(folder):
    with fixed(read(folder, "shared.layers:width")):
        (folder / "shared" / "layers.py").write_text("def width(units): return 100")
        (folder / "shared" / "sizes.py").write_text("WIDTH = 100")
        assert signature_of("shared.layers:width", folder).required == ()
        assert load_function("shared.layers:width", folder)() == 2


def test_next_code_runs_the_edited_files_and_all_that_import_them(folder):
    with fixed(read(folder)):
        assert load_function("model.py:build", folder)(5) == [1, 2, 3, 4, 5]
    (folder / "beside.py").write_text("VALUE = 10")
    with fixed(read(folder)):
        assert load_function("model.py:build", folder)(5) == [10, 2, 3, 4, 5]


def test_unchanged_code_is_run_once(folder):
    found = []
    for _ in range(2):
        with fixed(read(folder)):
            found.append(load_function("model.py:fail", folder))
            (folder / "model.py").write_text("# edited\n" * 30)
            with pytest.raises(ValueError, match="seen") as raised:
                found[-1]()
            assert "# the line that ran" in "".join(traceback.format_exception(raised.value))
        (folder / "model.py").write_text(FILES["model.py"])
    assert found[0] is found[1]


def test_file_is_read_again_when_no_code_is_fixed(folder):
    with fixed(read(folder)):
        load_function("other.py:build", folder)
    (folder / "other.py").write_text("def build(): return 'new'")
    assert load_function("other.py:build", folder)() == "new"


def test_link_that_points_elsewhere_later_has_no_effect(folder):
    (folder / "link.py").symlink_to("other.py")
    (folder / "newer.py").write_text("def build(): return 'newer'")
    with fixed(read(folder, "link.py:build")):
        (folder / "link.py").unlink()
        (folder / "link.py").symlink_to("newer.py")
        assert load_function("link.py:build", folder)() == "other"


@pytest.mark.parametrize("text", ["torch.nn:Linear", "numpy:sum", "data/*.h5:x", "s3://bucket:key", "no.py:f", "x y:z"])
def test_other_texts_with_a_colon_are_no_code_of_the_user(folder, text):
    assert not read_source_code(names_of_functions({"key": [text]}), folder).files


def training(folder: Path):
    return SimpleNamespace(model_dump=lambda: {"model": f"{folder}/other.py:build"})


def test_training_reads_its_files_at_its_start(folder):
    for content in ("first", "second"):
        (folder / "other.py").write_text(f"def build(): return '{content}'")
        with same_code(training(folder), MPI.COMM_SELF):
            (folder / "other.py").write_text("no Python (")
            assert load_function("other.py:build", folder)() == content
    assert not fixed_code().files


def test_training_in_a_search_keeps_its_files_until_the_end_of_the_search(folder):
    with fixed(read(folder, "unused.py:VALUE")):
        for _ in range(2):
            with same_code(training(folder), MPI.COMM_SELF):
                assert load_function("other.py:build", folder)() == "other"
            (folder / "other.py").write_text("def build(): return 'edited'")
