"""The distribution of tests to processes, and the handling of missing components.

Tests that run pytest for seconds are thorough, because a user does not depend on what they protect.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.conftest import freeze_once, group_of, pytest_runtest_setup
from tests.mpirun import patient_s
from tests.optional_packages import OPTIONAL as OPTIONAL_PACKAGES
from tests.optional_packages import needs, requirements

ROOT = Path(__file__).parents[1]
SKIPPING = """
import pytest

@pytest.mark.skipif(True, reason="needs a browser")
def test_marked(): pass

def test_called(): pytest.skip("needs PostgreSQL")

@pytest.fixture
def server(): pytest.importorskip("no_such_driver")

def test_of_a_fixture(server): pass

@pytest.mark.xfail
def test_that_is_known_to_fail(): assert False

def test_that_runs(): pass
"""


def run(folder: Path, *arguments: str, extras: str = "", **environment: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(f"from tests.conftest import *\n{extras}")
    unknown = ("-W", "ignore::pytest.PytestUnknownMarkWarning")  # marks are in pyproject.toml
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), "-q", *unknown, *arguments]
    # without CI: where that is set, pytest repeats every message in its summary
    inherited = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")}
    environment = inherited | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, timeout=patient_s(60), check=False
    )
    return done.returncode, done.stdout


@pytest.mark.thorough
def test_a_missing_component_fails_where_all_are_required_and_skips_elsewhere(tmp_path):
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    status, out = run(tmp_path, REQUIRE_ALL="0")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (0, "1 passed, 3 skipped, 1 xfailed")
    status, out = run(tmp_path, REQUIRE_ALL="1")
    assert status == 1
    assert "1 failed, 1 passed, 1 xfailed, 2 errors" in out
    assert out.count("REQUIRE_ALL=1: a component is missing: Skipped: ") == 3
    assert all(reason in out for reason in ("needs a browser", "needs PostgreSQL", "no_such_driver"))


OPTIONAL = """
import subprocess, sys
import pytest
from importlib.util import find_spec
from tests.optional_packages import needs

def is_seen():
    found = subprocess.run([sys.executable, "-c", "import made_up.part"], capture_output=True).returncode == 0
    assert found == ("made_up" in sys.modules or find_spec("made_up") is not None)
    return found

@needs("made_up")
def test_marked():
    import made_up.part
    from project import page
    assert is_seen()

def test_unmarked(): import made_up.part

def test_unmarked_project(): from project import page

def test_that_does_without():
    assert not is_seen()
    assert "made_up.part" not in sys.modules

@pytest.mark.parametrize("name", ["part", pytest.param("made_up.part", marks=needs("made_up"))])
def test_parameter(name):
    assert is_seen() == (name != "part")
    if is_seen():
        import made_up.part
        assert made_up.part is sys.modules["project.plots"].part
"""
MADE_UP = """
import tests.hiding.hide, tests.optional_packages
tests.hiding.hide.PROJECT = ("project",)
tests.optional_packages.OPTIONAL = frozenset({"made_up"})
"""


@pytest.fixture
def optional(tmp_path: Path) -> Path:
    """Tests of an optional package; a module of the project imports it, and another one imports this module."""
    files = {
        "made_up/__init__.py": "",
        "made_up/part.py": "",
        "project/__init__.py": "",
        "project/plots.py": "from made_up import part",
        "project/page.py": "from project import plots",
        "test_optional.py": OPTIONAL,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_test_sees_the_optional_packages_that_it_names(optional):
    status, out = run(optional, "-rf", extras=MADE_UP)
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (1, "2 failed, 4 passed")
    assert out.count("FAILED test_optional.py::test_unmarked") == 2
    assert out.count("This test does not see made_up. If it needs it, mark it: @needs('made_up').") == 2


@pytest.mark.thorough
def test_a_hidden_package_skips_the_tests_that_need_it_unless_all_are_required(optional):
    hidden = ("--without", "made_up", "-k", "not unmarked")
    status, out = run(optional, *hidden, extras=MADE_UP, REQUIRE_ALL="0")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (0, "2 passed, 2 skipped, 2 deselected")
    status, out = run(optional, *hidden, extras=MADE_UP, REQUIRE_ALL="1")
    assert status == 1
    assert out.count("REQUIRE_ALL=1: a component is missing: Skipped: needs the package made_up") == 2
    status, out = run(optional, "--without", "made", extras=MADE_UP)
    assert status == 4


@pytest.mark.thorough
def test_a_second_run_has_the_tests_that_the_first_one_skipped(optional):
    first = ("--write-ran=ran", "--without=made_up", "-k", "not unmarked", "-n", "2", "--no-loadscope-reorder")
    run(optional, *first, extras=MADE_UP, REQUIRE_ALL="0")
    second = ("--write-ran=ran", "--not-in=ran", "-k", "not unmarked")
    status, out = run(optional, *second, extras=MADE_UP, REQUIRE_ALL="1")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (0, "2 passed, 4 deselected")
    status, out = run(optional, *second, extras=MADE_UP, REQUIRE_ALL="1")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (0, "6 deselected")


@pytest.mark.thorough
def test_without_keras_its_tests_are_skipped_and_tensorflow_is_hidden_too(tmp_path):
    (tmp_path / "test_frameworks.py").write_text(
        "from importlib.util import find_spec\nfrom tests.optional_packages import needs\n"
        "FRAMEWORKS = ('keras', 'tensorflow')\n"
        "@needs('keras')\ndef test_marked(): assert all(map(find_spec, FRAMEWORKS))\n"
        "def test_unmarked(): assert not any(map(find_spec, FRAMEWORKS))\n"
    )
    status, out = run(tmp_path, "--without", "keras,torch", REQUIRE_ALL="0")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (0, "1 passed, 1 skipped")
    status, out = run(tmp_path, "-k", "test_marked")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (0, "1 passed, 1 deselected")


def test_tests_ask_for_optional_packages_with_marks_only():
    """`importorskip` would skip a test that has no mark everywhere, because the package is hidden from it."""
    asking = [file.name for file in (ROOT / "tests").rglob("*.py") if "importorskip(" in file.read_text()]
    assert asking == [Path(__file__).name]


def test_every_package_of_an_extra_is_optional_in_the_tests():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    always = {"cpu", "gpu", "openmpi", "mpich", "docs", "dev", "all"}  # see `make test`
    extras = {name: text for name, text in setup["options.extras_require"].items() if name not in always}
    packages = {re.split(r"[^\w-]", line)[0].replace("-", "_") for text in extras.values() for line in text.split()}
    assert packages - {"requests"} == OPTIONAL_PACKAGES, "TensorFlow requires requests"


@needs("torchmetrics")
def test_packages_that_another_one_requires_are_visible_with_it():
    assert requirements()["torchmetrics"] == {"fsspec", "torch", "torchmetrics"}


@pytest.mark.thorough
def test_a_file_that_skips_as_a_whole_fails_where_all_are_required(tmp_path):
    (tmp_path / "test_skipping.py").write_text("import pytest\npytest.importorskip('no_such_package')\n")
    assert run(tmp_path, REQUIRE_ALL="0")[0] == 5
    status, out = run(tmp_path, REQUIRE_ALL="1")
    assert status == 2
    assert "REQUIRE_ALL=1" in out
    assert "no_such_package" in out


@pytest.mark.thorough
@pytest.mark.parametrize("reason", ["the shared data are not here", "needs the right to mount a small file system"])
def test_a_test_that_no_installation_enables_is_skipped_in_any_case(tmp_path, reason):
    (tmp_path / "test_skipping.py").write_text(f"import pytest\ndef test_data(): pytest.skip('{reason}')\n")
    status, out = run(tmp_path, REQUIRE_ALL="1")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (0, "1 skipped")


def test_tests_under_mpirun_come_first(tmp_path):
    marked = "import pytest\n@pytest.mark.mpi\ndef test_mpi(): open('log', 'a').write('mpi ')\n"
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text("def test_plain(): open('log', 'a').write('plain ')\n")
        (tmp_path / f"test_mpi_{number}.py").write_text(marked)
    assert run(tmp_path, "--no-loadscope-reorder")[0] == 0
    assert (tmp_path / "log").read_text().split() == ["mpi"] * 3 + ["plain"] * 3


def test_tests_under_mpirun_share_a_process_except_for_searches_and_slurm(tmp_path):
    folders = [tmp_path / name for name in ("mpi_learn", "docs", "end_to_end", "slurm", "plain")]
    for folder in folders:
        folder.mkdir()
        mark = "" if folder.name == "plain" else "@pytest.mark.mpi\n"
        (folder / f"test_{folder.name}.py").write_text(
            f"import os, pathlib, pytest\n{mark}"
            "def test_mpi(): pathlib.Path(__file__).with_name('log').write_text(str(os.getpid()))\n"
        )
    assert run(tmp_path, "-n", "3", "--no-loadscope-reorder")[0] == 0
    learn, docs, searches, slurm, _ = ((folder / "log").read_text() for folder in folders)
    assert learn == docs
    assert len({learn, searches, slurm}) == 3


DYING = """
import os, signal

def test_first(): pass

def test_that_dies():
    with open("died", "a") as file:
        file.write("once ")
    os.kill(os.getpid(), signal.SIGKILL)

def test_after_a_death(): pass
"""


@pytest.mark.thorough
@pytest.mark.parametrize("n_processes", ["1", "2"])
def test_the_other_tests_run_after_the_death_of_a_process_and_the_run_has_failed(tmp_path, n_processes):
    for number in range(4):  # the process has finished some of them before it dies
        (tmp_path / f"test_{number}.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    (tmp_path / "test_dying.py").write_text(DYING)
    for number in range(2):
        (tmp_path / f"test_last_{number}.py").write_text("def test_single(): pass\n")
    status, out = run(tmp_path, "-n", n_processes, "--no-loadscope-reorder")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (1, "1 failed, 12 passed")
    assert "crashed while running 'test_dying.py::test_that_dies'" in out
    assert (tmp_path / "died").read_text() == "once "


MARKS = {
    "one": ("import pytest\n@pytest.mark.mpi\ndef test_ranks(): pass\ndef test_plain(): pass\n", ["test_ranks"]),
    "parameters": (
        "@pytest.mark.thorough\n@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.mpi)])\n"
        "def test_ranks(n): pass\ndef test_plain(): pass\n",
        ["test_ranks"],
    ),
    "all": (
        "pytestmark = [pytest.mark.mpi]\ndef test_ranks(): pass\ndef test_plain(): pass\n",
        ["test_ranks", "test_plain"],
    ),
    "none": ("# not pytest.mark.mpi\nx = 'mark.mpi'\ndef test_ranks(): pass\n", []),
}


@pytest.mark.parametrize(("source", "marked"), MARKS.values(), ids=MARKS)
def test_only_the_tests_of_a_file_that_are_marked_mpi_join_a_group(source, marked, tmp_path):
    (tmp_path / "test_some.py").write_text(source)
    groups = {name: group_of(tmp_path, f"test_some.py::{name}") for name in ("test_ranks[2-a]", "test_plain")}
    assert [name.partition("[")[0] for name, group in groups.items() if group == "mpirun"] == marked
    assert set(groups.values()) <= {"mpirun", "test_some.py"}


def test_tests_that_measure_time_are_marked(tmp_path):
    (tmp_path / "test_times.py").write_text(
        "import time, pytest\n"
        "@pytest.mark.parametrize('x', [1, 2])\ndef test_fast(x): assert time.perf_counter() > 0\n"
        "def test_waiting(): assert time.monotonic() > 0\n"
        "class TestClass:\n    def test_cpu(self): assert time.process_time() > 0\n"
    )
    status, out = run(tmp_path, "-m", "timing")
    assert status == 0
    assert "3 passed, 1 deselected" in out


def test_objects_are_excluded_from_garbage_collection_once_and_stay_excluded(monkeypatch, request):
    """With the objects of Keras and TensorFlow, counting takes longer than most tests."""
    calls = []
    monkeypatch.setitem(sys.modules, "keras", gc)
    for name in ("freeze", "unfreeze", "get_freeze_count"):
        monkeypatch.setattr(gc, name, lambda name=name: calls.append(name))
    freeze_once.cache_clear()
    for _ in range(2):
        pytest_runtest_setup(request.node)
    gc.unfreeze()  # as at the end of a search
    assert calls == ["freeze"]
