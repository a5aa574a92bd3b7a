"""The distribution of tests to processes, and the handling of missing components."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import freeze_once, group_of, pytest_runtest_setup

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
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), "-q", *arguments]
    # without CI: where that is set, pytest repeats every message in its summary
    inherited = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")}
    environment = inherited | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout


def test_a_missing_component_fails_where_all_are_required_and_skips_elsewhere(tmp_path):
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    status, out = run(tmp_path, REQUIRE_ALL="0")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (0, "1 passed, 3 skipped, 1 xfailed")
    status, out = run(tmp_path, REQUIRE_ALL="1")
    assert status == 1
    assert "1 failed, 1 passed, 1 xfailed, 2 errors" in out
    assert out.count("REQUIRE_ALL=1: a component is missing: Skipped: ") == 3
    assert all(reason in out for reason in ("needs a browser", "needs PostgreSQL", "no_such_driver"))


def test_a_test_without_pytorch_fails_where_all_are_required_and_skips_elsewhere(tmp_path):
    failing = "try: raise ModuleNotFoundError(name='{}')\n    except ImportError: raise ValueError from None\n"
    asserting = failing.replace("ValueError from None", "AssertionError")
    tests = {
        "needs": failing.format("torch"),
        "fails": failing.format("torch.no_such_module"),
        "asserts": asserting.format("torch"),
    }
    lines = [f"def test_{name}():\n    {body}" for name, body in tests.items()]
    (tmp_path / "test_importing.py").write_text("\n".join(lines))
    status, out = run(tmp_path, REQUIRE_ALL="0")
    assert (status, out.splitlines()[-1].partition(" in ")[0]) == (1, "2 failed, 1 skipped")
    assert "test_importing.py::test_fails" in out
    assert "test_importing.py::test_asserts" in out
    status, out = run(tmp_path, REQUIRE_ALL="1")
    assert "3 failed" in out
    assert "REQUIRE_ALL=1: a component is missing: Skipped: needs the package torch" in out


@pytest.mark.parametrize(("package", "outcome"), [("no_such_extra", "1 skipped"), ("pytest", "1 failed")])
def test_output_that_names_an_extra_skips_a_test_unless_the_extra_is_installed(tmp_path, package, outcome):
    out = f"ModuleNotFoundError: No module named '{package}'"
    (tmp_path / "test_printing.py").write_text(f'def test_output():\n    out = "{out}"\n    assert "1 epoch" in out\n')
    extras = f"import tests.conftest\ntests.conftest.EXTRAS = ('{package}',)\n"
    _, printed = run(tmp_path, extras=extras, REQUIRE_ALL="0")
    assert printed.splitlines()[-1].partition(" in ")[0] == outcome


def test_a_file_that_skips_as_a_whole_fails_where_all_are_required(tmp_path):
    (tmp_path / "test_skipping.py").write_text("import pytest\npytest.importorskip('no_such_package')\n")
    assert run(tmp_path, REQUIRE_ALL="0")[0] == 5
    status, out = run(tmp_path, REQUIRE_ALL="1")
    assert status == 2
    assert "REQUIRE_ALL=1" in out
    assert "no_such_package" in out


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


MARKS = {
    "one": ("import pytest\n@pytest.mark.mpi\ndef test_ranks(): pass\ndef test_plain(): pass\n", ["test_ranks"]),
    "parameters": (
        "@pytest.mark.slow\n@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.mpi)])\n"
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


def test_objects_are_excluded_from_garbage_collection_once_and_never_counted(monkeypatch):
    """With the objects of Keras and TensorFlow, counting takes longer than most tests."""
    calls = []
    monkeypatch.setitem(sys.modules, "keras", gc)
    for name in ("freeze", "get_freeze_count"):
        monkeypatch.setattr(gc, name, lambda name=name: calls.append(name))
    freeze_once.cache_clear()
    pytest_runtest_setup()
    pytest_runtest_setup()
    assert calls == ["freeze"]
