"""Hooks for all tests: how tests are distributed to processes, and when a missing component is an error.

With ``pytest -n`` (pytest-xdist) the tests of a file stay in one process. Files that start ``mpirun`` form the groups
of `GROUPS`, each of which stays in one process. Tests of a promised time are marked ``timing``, by hand or by
`measures_time`, and run alone: ``make test`` runs them last.

With ``REQUIRE_ALL=1`` in the environment, as in CI, a test that skips because a component is missing fails.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Set before NumPy is imported. With more threads than free cores, many operations take ten times as long."""

NOT_INSTALLABLE = re.compile(
    r"are not here$"  # data sets that are not part of the project
    r"|needs the right to|needs Linux and root|no network namespaces|only root is refused"  # rights
    r"|Linux says|Linux lists"  # /proc
    r"|a store in memory has|one process$|ends with its process$"  # a case that does not apply to one of the parameters
)
"""Reasons to skip a test that no installation removes; these tests skip with ``REQUIRE_ALL=1`` too."""

GROUPS = ("mpirun", "end_to_end", "slurm")
"""Groups of files that start ``mpirun``, longest first. Tests in folders of the last two names mostly wait."""


def pytest_configure() -> None:
    """Lets commands under test receive SIGINT where the shell that started pytest ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that measure time; sorts files that start ``mpirun`` to the front, because they take longest."""
    for item in items:
        if isinstance(item, pytest.Function) and measures_time(inspect.unwrap(item.function)):
            item.add_marker(pytest.mark.timing)
    order = {group: place for place, group in enumerate(GROUPS)}
    items.sort(key=lambda item: order.get(group_of(item.config.rootpath, item.nodeid), len(GROUPS)))


def pytest_runtest_setup() -> None:
    """Excludes the objects of Keras and TensorFlow from garbage collection, which follows every training."""
    if "keras" in sys.modules and gc.get_freeze_count() == 0:
        gc.freeze()


@cache
def measures_time(function: Callable[..., object]) -> bool:
    """Whether a test calls a clock that is for measurements; waiting with ``time.monotonic`` is none."""
    return bool({"perf_counter", "process_time", "reference_s"} & set(function.__code__.co_names))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distributes the groups of `group_of`."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(config.rootpath, nodeid)

    return GroupScheduling(config, log)


def group_of(root: Path, nodeid: str) -> str:
    """One of `GROUPS` for a test whose file starts ``mpirun``, otherwise its file."""
    file = nodeid.partition("::")[0]
    if not starts_mpirun(root / file):
        return file
    return next((group for group in GROUPS if group in Path(file).parts), "mpirun")


@cache
def starts_mpirun(file: Path) -> bool:
    """Whether a file has tests marked ``mpi``."""
    return "mark.mpi" in file.read_text(encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """See `_required`."""
    return _required((yield))


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
