"""Hooks for all tests: how tests are distributed to processes, and when a missing component is an error.

With ``pytest -n`` (pytest-xdist) the tests that start ``mpirun``, marked ``mpi``, form the groups of `GROUPS`. Each
group stays in one process, and so do the other tests of a file. Tests of a promised time are marked ``timing``, by hand
or by `measures_time`, and run alone: ``make test`` runs them last.

A test that fails because PyTorch, an extra, is not installed is skipped.

With ``REQUIRE_ALL=1`` in the environment, as in CI, a test that skips because a component is missing fails.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Generator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import session_folders

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Set before NumPy is imported. With more threads than free cores, many operations take ten times as long."""

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
"""Without a GPU, on which the results have larger errors. ``make test-gpu`` sets a GPU."""

session_folders.use_own_folder()

NOT_INSTALLABLE = re.compile(
    r"the shared data are not here$"  # see tests/shared_data.py
    r"|needs the right to|needs Linux and root|no network namespaces|only root is refused"  # rights
    r"|Linux says|Linux lists"  # /proc
    r"|needs a GPU$"
)
"""Reasons to skip a test that no installation removes; these tests skip with ``REQUIRE_ALL=1`` too."""

EXTRAS = ("torch", "torchmetrics")
"""Packages that tests may import without asking whether they are installed."""

GROUPS = ("mpirun", "end_to_end", "slurm")
"""Groups of tests that start ``mpirun``, longest first. Tests in folders of the last two names mostly wait."""


def pytest_configure() -> None:
    """Lets commands under test receive SIGINT where the shell that started pytest ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that measure time; sorts tests that start ``mpirun`` to the front, because they take longest."""
    for item in items:
        if isinstance(item, pytest.Function) and measures_time(inspect.unwrap(item.function)):
            item.add_marker(pytest.mark.timing)
    order = {group: place for place, group in enumerate(GROUPS)}
    items.sort(key=lambda item: order.get(group_of(item.config.rootpath, item.nodeid), len(GROUPS)))


def pytest_runtest_setup() -> None:
    """Removes what a killed ``mpirun`` left; excludes Keras' and TensorFlow's objects from each garbage collection."""
    session_folders.remove_stale()
    if "keras" in sys.modules:
        freeze_once()


@cache
def freeze_once() -> None:
    """Excludes all objects of this moment from garbage collection, at the first call.

    Garbage is collected before, because it would keep its threads and files open. `gc.get_freeze_count` would count the
    excluded objects one by one, which takes about 60 ms.
    """
    gc.collect()
    gc.freeze()


@cache
def measures_time(function: Callable[..., object]) -> bool:
    """Whether a test calls a clock that is for measurements; waiting with ``time.monotonic`` is none."""
    return bool({"perf_counter", "process_time", "reference_s", "reference_s_of"} & set(function.__code__.co_names))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distributes the groups of `group_of`."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(config.rootpath, nodeid)

    return GroupScheduling(config, log)


def group_of(root: Path, nodeid: str) -> str:
    """One of `GROUPS` for a test that is marked ``mpi``, otherwise its file.

    The process that distributes the tests knows their names only, so the marks are read from the source.
    """
    file, _, test = nodeid.partition("::")
    if test.partition("[")[0] not in marked_mpi(root / file):
        return file
    return next((group for group in GROUPS if group in Path(file).parts), "mpirun")


@cache
def marked_mpi(file: Path) -> frozenset[str]:
    """The functions of a file that are marked ``mpi``, by themselves or with the whole file."""
    source = file.read_text(encoding="utf-8")
    if "mark.mpi" not in source:
        return frozenset()
    statements = ast.parse(source).body
    functions = {one.name: one.decorator_list for one in statements if isinstance(one, ast.FunctionDef)}
    assigned = [ast.unparse(one) for one in statements if isinstance(one, ast.Assign)]
    if any(line.startswith("pytestmark = ") and "mark.mpi" in line for line in assigned):
        return frozenset(functions)
    return frozenset(name for name, marks in functions.items() if any("mark.mpi" in ast.unparse(one) for one in marks))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skips tests that miss one of `EXTRAS`; see `_required`."""
    report = yield
    missing = ""
    if report.failed and call.excinfo:
        missing = missing_extra(call.excinfo.value) or reported_extra(report.longreprtext)
    if missing:
        report.outcome, report.longrepr = "skipped", (*report.location[:2], f"Skipped: needs the package {missing}")
    return _required(report)


def missing_extra(error: BaseException | None) -> str:
    """Returns which of `EXTRAS` the error, its cause or its context did not find; empty if none.

    A failed assertion has none, even if it is about such an error; see `reported_extra`.
    """
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return ""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            return error.name
        error = error.__cause__ or error.__context__
    return ""


def reported_extra(text: str) -> str:
    """Returns which of `EXTRAS` is not installed and missing according to the text of a failure; empty if none.

    The text of a failed assertion may have the output of another process that did not find the package.
    """
    named = (name for name in EXTRAS if f"No module named '{name}'" in text)
    return next((name for name in named if find_spec(name) is None), "")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """See `_required`; for ``importorskip`` at the top of a file."""
    return _required((yield))


def _required(report: Any) -> Any:
    """Turns a skip into a failure with ``REQUIRE_ALL=1``, except for the reasons in `NOT_INSTALLABLE`."""
    if report.skipped and os.environ.get("REQUIRE_ALL") == "1" and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not NOT_INSTALLABLE.search(reason):
            report.outcome, report.longrepr = "failed", f"REQUIRE_ALL=1: a component is missing: {reason}"
    return report


def pytest_sessionfinish() -> None:
    """Ends the ranks that stay between tests."""
    from tests.world import close_worlds

    close_worlds()
