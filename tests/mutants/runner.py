"""Runs tests on copies of the project, each with one change."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutant import ROOT, Change, selected_files

NOTICED, UNNOTICED, TIMEOUT = "noticed", "unnoticed", "timeout"
PASSED = 0
USAGE_ERROR = 4
NO_TESTS = 5
"""Exit statuses of pytest. With a change, all but `PASSED` and `NO_TESTS` count as noticed: a change may end pytest."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py::.+?)(?: - .*)?$", re.MULTILINE)
BEGUN = re.compile(r"^(tests/\S+?\.py::.+?) *(?:PASSED|FAILED|ERROR|SKIPPED|$)", re.MULTILINE)
"""The names of tests in the output of pytest."""
SLOWER, START_S = 4.0, 60.0
"""A run with a change may take SLOWER times as long as without, plus START_S seconds."""


class CannotRun(Exception):
    """The tests do not pass, or cannot be run, without any change."""


@dataclass(frozen=True)
class Result:
    """The outcome of the tests of one mutant.

    Attributes:
        key: Identifies the changed source, the selected tests and their content.
        outcome: ``noticed``, ``unnoticed``, or ``timeout``, which counts as noticed.
        seconds: How long they took.
        test: The test that failed, or that ran when the time was over; empty if pytest itself ended or could not start.
    """

    key: str
    outcome: str
    seconds: float
    test: str = ""


class Results:
    """The results so far, in a file of JSON lines, so that an interrupted run continues."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._known: dict[str, Result] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                result = Result(**json.loads(line))
                self._known[result.key] = result

    def get(self, key: str) -> Result | None:
        """Returns the result with this key, or None."""
        return self._known.get(key)

    def add(self, result: Result) -> None:
        """Appends one result to the file."""
        with self._lock:
            self._known[result.key] = result
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")


def run_mutants(
    mutants: list[Change],
    results: Results,
    report: Callable[[Change, Result], None],
    *,
    n_jobs: int,
    scratch: Path,
    root: Path = ROOT,
) -> list[tuple[Change, Result]]:
    """Runs the selected tests of each mutant that has no result yet.

    Args:
        mutants: In the order in which they are started.
        results: Looked up first, and extended.
        report: Called after each new result, from any thread.
        n_jobs: Copies of the project that are tested at the same time.
        scratch: Folder for the copies.
        root: The project.

    Returns:
        Every mutant with its result, in the order of `mutants`.

    Raises:
        StaleMutant: A change no longer applies.
        CannotRun: The selected tests fail without any change.
    """
    keys = [_key(mutant, root) for mutant in mutants]
    todo = [(mutant, key) for mutant, key in zip(mutants, keys, strict=True) if results.get(key) is None]
    if todo:
        copies = SimpleQueue[Path]()
        for number in range(min(n_jobs, len(todo))):
            copies.put(copied(root, scratch / f"copy-{number}"))
        limits = _Limits()

        def run(mutant: Change, key: str) -> None:
            copy = copies.get()
            try:
                limit_s = limits.of(mutant.stages[0], copy) if mutant.limit_s is None else mutant.limit_s
                result = _tested(mutant, key, copy, limit_s)
            finally:
                copies.put(copy)
            results.add(result)
            report(mutant, result)

        _for_all(run, todo, n_jobs)
    return [(mutant, results.get(key)) for mutant, key in zip(mutants, keys, strict=True)]


def _for_all(run: Callable[[Change, str], None], todo: Iterable[tuple[Change, str]], n_jobs: int) -> None:
    """Calls `run` for all mutants in threads; stops at the first error."""
    with ThreadPoolExecutor(n_jobs) as pool:
        futures = [pool.submit(run, *one) for one in todo]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Limits:
    """How long a selection of tests may take; measured once for each, by running it without a change."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._limits: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()

    def of(self, tests: tuple[str, ...], copy: Path) -> float:
        with self._lock:
            own = self._locks.setdefault(tests, threading.Lock())
        with own:
            if tests not in self._limits:
                status, seconds, output = pytest_status(tests, copy, limit_s=None)
                if status != PASSED:
                    ran = f"pytest {' '.join(tests)}"
                    raise CannotRun(f"without any change, {ran} ends with {status}:\n{output[-4000:]}")
                self._limits[tests] = SLOWER * seconds + START_S
            return self._limits[tests]


def _tested(mutant: Change, key: str, copy: Path, limit_s: float) -> Result:
    file = copy / mutant.file
    original, kept = file.read_text(encoding="utf-8"), file.with_suffix(".original")
    shutil.copy2(file, kept)
    status, seconds, output = PASSED, 0.0, ""
    try:
        file.write_text(mutant.applied_to(original), encoding="utf-8")
        for tests in mutant.stages:
            status, took, output = pytest_status(tests, copy, limit_s)
            seconds += took
            if status == USAGE_ERROR and "ERROR: not found: " in output:  # the change has renamed tests of a table
                status, took, output = pytest_status(tuple(selected_files(mutant)), copy, limit_s)
                seconds += took
            if status == NO_TESTS:  # `make test` leaves out what is marked ``thorough``, and so does this command
                status = PASSED
            if status != PASSED:
                break
    finally:
        kept.replace(file)  # with its time of modification, so that what Python and numba cached stays valid
    outcome = TIMEOUT if status is None else UNNOTICED if status == PASSED else NOTICED
    return Result(key, outcome, round(seconds, 1), _last_test(output) if outcome != UNNOTICED else "")


def _last_test(output: str) -> str:
    """The test that failed, or that had begun when pytest was ended."""
    return (FAILED.findall(output) or BEGUN.findall(output) or [""])[-1]


def failures_without_change(tests: Iterable[str], root: Path, scratch: Path) -> list[str]:
    """Runs tests on an unchanged copy; returns those that fail."""
    chosen = tuple(dict.fromkeys(tests))
    if not chosen:
        return []
    status, _, output = pytest_status(chosen, copied(root, scratch / "unchanged"), limit_s=None, options=())
    failed = set(FAILED.findall(output))
    return [test for test in chosen if status != PASSED and test in failed]


def pytest_status(
    tests: tuple[str, ...], folder: Path, limit_s: float | None, options: tuple[str, ...] = ("-x",)
) -> tuple[int | None, float, str]:
    """Runs pytest in a copy of the project.

    Returns:
        Its exit status (None: ended after `limit_s`), how many seconds it took, and its output.
    """
    command = [sys.executable, "-m", "pytest", *options, "-vv", "--tb=short", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.monotonic()
    with (folder / "pytest.log").open("w+", errors="replace") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                _kill_tree(process)
        log.seek(0)
        return status, time.monotonic() - began, log.read()


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all its descendants, which may be in sessions of their own."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
    family = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def copied(root: Path, target: Path) -> Path:
    """Copies what git tracks, or would track, of a project into a new folder; returns that."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(target, ignore_errors=True)
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
    return target


def _key(mutant: Change, root: Path) -> str:
    """Identifies a run: the changed source, the arguments of pytest, and the content of the selected test files."""
    digest = hashlib.sha256(mutant.applied_to((root / mutant.file).read_text(encoding="utf-8")).encode())
    digest.update("\0".join((mutant.file, *(test for stage in mutant.stages for test in stage))).encode())
    for name in selected_files(mutant):
        paths = sorted((root / name).rglob("*.py")) if (root / name).is_dir() else [root / name]
        for path in paths:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
