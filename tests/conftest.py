"""Hooks for all tests: how tests are distributed to processes, and when a missing component is an error.

With ``pytest -n`` (pytest-xdist) the tests that start ``mpirun``, marked ``mpi``, form the groups of `GROUPS`. Each
group stays in one process, and so do the other tests of a file. Tests of a promised time are marked ``timing``, by hand
or by `measures_time`, and run alone: ``make test`` runs them last.

A test sees only the optional packages that its marks name; see `tests.optional_packages`.

With ``REQUIRE_ALL=1`` in the environment, as in CI, a test that skips because a component is missing fails.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import session_folders
from tests.hiding.sitecustomize import VARIABLE
from tests.optional_packages import hide_always, is_installed, needed, requirements, show_all, show_only

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Set before NumPy is imported. With more threads than free cores, many operations take ten times as long."""

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
"""Without a GPU, on which the results have larger errors. ``make test-gpu`` sets a GPU."""

hypothesis.settings.register_profile("any load", deadline=None)
hypothesis.settings.load_profile("any load")
"""An example may take longer than 0.2 s on a busy machine."""

session_folders.use_own_folder()

NOT_INSTALLABLE = re.compile(
    r"the shared data are not here$"  # see tests/shared_data.py
    r"|needs the right to|needs Linux and root|no network namespaces|only root is refused"  # rights
    r"|Linux says|Linux lists"  # /proc
    r"|needs a GPU$"
    # rules of the public test classes that do not apply to a method
    r"|needs several ranks$|the weights depend on the speed|the strategy (repeats|ignores|does not)"
)
"""Reasons to skip a test that no installation removes; these tests skip with ``REQUIRE_ALL=1`` too."""

CLOCKS = {"perf_counter", "process_time", "reference_s", "reference_s_of"}
"""Clocks that are for measurements."""

GROUPS = ("mpirun", "end_to_end", "slurm")
"""Groups of tests that start ``mpirun``, longest first. Tests in folders of the last two names mostly wait."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for runs without optional packages, and for a second run with more of them."""
    parser.addoption("--without", metavar="PACKAGES", help="hide these optional packages (separated by commas, or all)")
    parser.addoption("--write-ran", metavar="FILE", help="append the names of tests that are not skipped to a file")
    parser.addoption("--not-in", metavar="FILE", help="leave out the tests whose names are in a file")


def pytest_configure(config: pytest.Config) -> None:
    """Applies the options, and compiles loops beside the first tests.

    Lets commands under test receive SIGINT where the shell that started pytest ignores it.
    """
    requirements()  # read before anything is hidden
    if config.option.without:
        hide_always(config.option.without)
    if not hasattr(config, "workerinput"):  # not in the processes of pytest-xdist
        if config.option.write_ran:
            config.pluginmanager.register(RanTests(Path(config.option.write_ran)))
        if getattr(config.option, "numprocesses", None):
            subprocess.Popen([sys.executable, "-m", "tests.compiled_loops"], cwd=config.rootpath)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not import files without a test of a promised time where only these run, as at the end of ``make test``."""
    if not config.option.markexpr.startswith("timing") or collection_path.suffix != ".py":
        return None
    source = collection_path.read_text(encoding="utf-8")
    return None if any(word in source for word in ("mark.timing", *CLOCKS)) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests that measure time; sorts tests that start ``mpirun`` to the front, because they take longest."""
    if config.option.not_in:
        ran = set(Path(config.option.not_in).read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in ran])
        items[:] = [item for item in items if item.nodeid not in ran]
    for item in items:
        if isinstance(item, pytest.Function) and measures_time(inspect.unwrap(item.function)):
            item.add_marker(pytest.mark.timing)
    order = {group: place for place, group in enumerate(GROUPS)}
    items.sort(key=lambda item: order.get(group_of(item.config.rootpath, item.nodeid), len(GROUPS)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Hides the optional packages that a test does not name, also from its fixtures."""
    show_only(needed(item))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test without its packages; removes what a killed ``mpirun`` left; see also `freeze_once`."""
    for package in sorted(needed(item)):
        if not is_installed(package):
            pytest.skip(f"needs the package {package}")
    session_folders.remove_stale()
    freeze_once("keras" in sys.modules)


@cache
def freeze_once(has_keras: bool) -> None:
    """Excludes all objects from garbage collection: before the first test, and again when Keras has been loaded.

    Each search and each training of Keras collects garbage, which would visit the tests and the imported modules: in
    files of many searches this took 28 to 75 % of the CPU time. Garbage is collected before, because it would keep its
    threads and files open.
    """
    gc.collect()
    gc.freeze()
    gc.unfreeze = lambda: None  # the end of a search calls it


@cache
def measures_time(function: Callable[..., object]) -> bool:
    """Whether a test calls a clock that is for measurements; waiting with ``time.monotonic`` is none."""
    return bool(CLOCKS & set(function.__code__.co_names))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distributes the groups of `group_of`."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(config.rootpath, nodeid)

        def remove_node(self, node: Any) -> str | None:
            """Gives the tests of a process that has died to others, without the one that it died in, which has failed.

            That of pytest-xdist 3.8 also gives them groups without a test that is left, for whose end they wait for
            ever, and the test in which the process died.
            """
            groups = self.assigned_work.pop(node)
            left = [(tests, name) for tests in groups.values() for name, is_done in tests.items() if not is_done]
            if not left:
                return None
            tests, crashed = left[0]
            tests[crashed] = True
            self.workqueue.update({group: tests for group, tests in groups.items() if not all(tests.values())})
            for other in self.assigned_work:
                self._reschedule(other)
            return crashed

        def _reschedule(self, node: Any) -> None:
            """Gives a process a group, and another one if it has a single test: it runs one when it knows the next."""
            super()._reschedule(node)
            if self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                self._reschedule(node)

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
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """See `_required`."""
    report = yield
    hidden = os.environ.get(VARIABLE, "").split(",")
    if report.failed and (named := [name for name in hidden if f"No module named '{name}" in report.longreprtext]):
        text = f"This test does not see {named[0]}. If it needs it, mark it: @needs({named[0]!r})."
        report.sections.append(("optional packages", text))
    return _required(report)


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


@dataclass(frozen=True)
class RanTests:
    """A plugin that appends the names of the tests that are not skipped to `file`."""

    file: Path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and (not report.skipped or hasattr(report, "wasxfail")):
            with self.file.open("a", encoding="utf-8") as names:
                names.write(f"{report.nodeid}\n")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends the ranks that stay between tests. With ``--not-in``, it is no error if no test is left."""
    from tests.world import close_worlds

    close_worlds()
    show_all()
    if session.config.option.not_in and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
