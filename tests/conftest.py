"""What holds for all tests: how they are shared out to processes, and when a missing component is an error.

With ``pytest -n 2`` (pytest-xdist) the tests of a file stay together in one process, and all files that start
``mpirun`` in another, so that no two of them run at the same time. Tests of a promised time are marked ``timing`` and
run alone: ``make test`` runs them last.

With ``REQUIRE_ALL=1`` in the environment, as in CI, a test that skips because a component is missing fails.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest


def pytest_configure() -> None:
    """Commands under test hear Ctrl-C also where the tests were started in the background, as a CI may do."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests whose data are not here; files under ``mpirun`` come first, for they take longest."""
    missing = [item for item in items if any(not Path(mark.args[0]).exists() for mark in item.iter_markers("data"))]
    if missing:
        config.hook.pytest_deselected(items=missing)
        config.stash[MISSING_DATA] = len(missing)
    kept = [item for item in items if item not in set(missing)]
    items[:] = sorted(kept, key=lambda item: not starts_mpirun(item.path))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Shares out whole files, all that start ``mpirun`` to one process."""
    from xdist.scheduler import LoadScopeScheduling

    class FileScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "mpirun" if starts_mpirun(config.rootpath / file) else file

    return FileScheduling(config, log)


@cache
def starts_mpirun(file: Path) -> bool:
    """Whether a file has tests marked ``mpi``."""
    return "mark.mpi" in file.read_text(encoding="utf-8")


MISSING_DATA = pytest.StashKey[int]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says how many tests were left out for want of data."""
    if n_missing := config.stash.get(MISSING_DATA, 0):
        terminalreporter.write_line(f"{n_missing} tests on data sets that are not here were left out (marked `data`)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """See `_required`."""
    return _required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """See `_required`; for ``importorskip`` at the top of a file."""
    return _required((yield))


def _required(report: pytest.TestReport) -> pytest.TestReport:
    """With ``REQUIRE_ALL=1`` a skipped test has failed."""
    if report.skipped and os.environ.get("REQUIRE_ALL") == "1" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"REQUIRE_ALL=1: a component is missing: {reason}"
    return report


def pytest_sessionfinish() -> None:
    """Ends the ranks that stay between tests."""
    from tests.world import close_worlds

    close_worlds()
