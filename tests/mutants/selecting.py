"""Which tests should notice a change at any place: those that run the changed function, the nearest and fastest first.

`CoverageMap` measures once which functions each test runs in the process of pytest. A test file is measured again after
it has changed. Tests that start ``mpirun`` run the changed code in other processes; they are selected by the imports:
from the test file, through modules of tests, to the changed module.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

FOLDERS = ("tests/mpi_learn", "tests/mpi_opt", "tests/end_to_end")
"""Tests of the packages; the others run examples, whose assertions are about the examples."""
FILES_PER_RUN = 10
MPI_TESTS, MPI_TEST_S = 3, 8.0
"""How many tests with ``mpirun`` run for a function that no test runs in its process, and the assumed time of each."""
COMMANDS = {"mpi_opt": "mpi_opt.cli.main", "mpi-opt": "mpi_opt.cli.main"}
COMMANDS |= {"mpi_learn": "mpi_learn.cli.commands", "mpi-learn": "mpi_learn.cli.commands"}
"""What a test file runs that has these texts among its constants."""
SECONDS = "MUTANTS_SECONDS"
"""Environment variable with the file for the durations of passed tests, one JSON list per line."""
CONFIGURATION = "[run]\nsource = mpi_learn,mpi_opt\ndata_file = {data}\n"


@dataclass
class MeasuredFile:
    """What the tests of one file run.

    Attributes:
        digest: Of the file.
        seconds: By the name of each test that passed.
        functions: By test (empty: all tests of the file), then by source file: qualified names of functions.
    """

    digest: str
    seconds: dict[str, float] = field(default_factory=dict)
    functions: dict[str, dict[str, list[str]]] = field(default_factory=dict)


class CoverageMap:
    """Which functions each test runs.

    Args:
        path: Where it is kept.
        root: The project.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self._path, self._root = path, root
        kept = json.loads(path.read_text()) if path.exists() else {}
        self.files = {file: MeasuredFile(**entry) for file, entry in kept.items()}

    def update(self, folders: Iterable[str] = FOLDERS, only: Collection[str] | None = None) -> None:
        """Measures the test files that are new or have changed, of those in `only` if it is given."""
        paths = [path for folder in folders for path in sorted((self._root / folder).rglob("test_*.py"))]
        digests = {str(path.relative_to(self._root)): _digest(path) for path in paths}
        self.files = {file: one for file, one in self.files.items() if file in digests}
        wanted = {file: digest for file, digest in digests.items() if only is None or file in only}
        todo = [file for file, digest in wanted.items() if file not in self.files or self.files[file].digest != digest]
        for start in range(0, len(todo), FILES_PER_RUN):
            batch = todo[start : start + FILES_PER_RUN]
            print(f"measuring which functions the tests run: {start} of {len(todo)} files", flush=True)
            self.files |= {file: MeasuredFile(digests[file]) for file in batch}
            self._measure(batch)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({file: vars(one) for file, one in self.files.items()}))

    def _measure(self, batch: list[str]) -> None:
        import coverage

        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            data, seconds, settings = (Path(folder, name) for name in ("data", "seconds", "settings"))
            settings.write_text(CONFIGURATION.format(data=data))
            pytest = ["pytest", "-q", "-p", "tests.mutants.measuring", "-p", "no:cacheprovider"]
            command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", *pytest]
            # CPython 3.11 never continues a traced thread in which another one has raised an exception
            command += ["-k", "not in_a_thread"]
            command += ["--timeout=300", "-m", "not thorough and not timing and not mpi", *batch]
            environment = os.environ | {SECONDS: str(seconds)}
            subprocess.run(command, cwd=self._root, env=environment, check=False, stdout=subprocess.DEVNULL)
            for line in seconds.read_text().splitlines() if seconds.exists() else ():
                test, took = json.loads(line)
                self.files[test.partition("::")[0]].seconds[test] = took
            if not data.exists():
                return
            measured = coverage.CoverageData(str(data))
            measured.read()
            for source in filter(os.path.exists, measured.measured_files()):  # tests compile code of made-up files
                self._add(source, measured.contexts_by_lineno(source))

    def _add(self, source: str, contexts: dict[int, list[str]]) -> None:
        names = functions_by_line(Path(source).read_text(encoding="utf-8"))
        found: dict[str, set[str]] = defaultdict(set)
        for line, tests in contexts.items():
            for test in tests:
                if test and line in names:
                    found[test].add(names[line])
        file = str(Path(source).relative_to(self._root))
        for test, functions in found.items():
            entry = self.files.get(test.partition("::")[0])
            if entry is not None:
                entry.functions.setdefault(test if test.partition("::")[2] else "", {})[file] = sorted(functions)

    def tests_of(self, source: str, function: str) -> dict[str, float]:
        """Returns the tests that run a function, or anything of the module if `function` is empty, and their times."""
        found = {}
        for entry in self.files.values():
            is_shared = _runs(entry.functions.get("", {}), source, function)
            for test, seconds in entry.seconds.items():
                if is_shared or _runs(entry.functions.get(test, {}), source, function):
                    found[test] = seconds
        return found


def _runs(functions: dict[str, list[str]], source: str, function: str) -> bool:
    return function in functions.get(source, ()) if function else source in functions


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def functions_by_line(source: str) -> dict[int, str]:
    """Returns the qualified name of the innermost function of each line of a body; other lines are not in it."""
    names: dict[int, str] = {}

    def walk(node: ast.AST, scope: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.ClassDef):
                inner = (*scope, child.name)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = range(child.body[0].lineno, int(child.end_lineno or 0) + 1)
                names.update(dict.fromkeys(lines, ".".join((*scope, child.name))))
                inner = (*scope, child.name, "<locals>")
            walk(child, inner)

    walk(ast.parse(source), ())
    return names


class Selection:
    """Chooses the tests of a change.

    Args:
        measured: Which functions the tests run.
        root: The project.
        budget_s: How long the tests of one change may take, as measured.
    """

    def __init__(self, measured: CoverageMap, root: Path, budget_s: float) -> None:
        self._measured, self._root, self._budget_s = measured, root, budget_s

    def stages(self, source: str, function: str) -> tuple[tuple[tuple[str, ...], ...], float]:
        """Returns arguments of pytest, first for tests in its process, and the expected time in seconds."""
        distances = self._distances(source)
        times = self._measured.tests_of(source, function) or self._measured.tests_of(source, "")
        if not times:  # nothing runs in the process: the tests of the nearest files
            near = sorted(self._measured.files, key=lambda file: distances.get(file, 99))[:3]
            times = {test: seconds for file in near for test, seconds in self._measured.files[file].seconds.items()}
        far = max(distances.values(), default=0) + 1
        by_file = {test: distances.get(test.partition("::")[0], far) for test in times}
        ordered = sorted(times, key=lambda test: (by_file[test] > 1, times[test] * by_file[test], test))
        here, spent = self._within(((test, times[test]) for test in ordered), 0.0)
        if self._measured.tests_of(source, function):
            return (here,), spent
        nearest = sorted((distances[file], file, test) for file, test in self._mpi if file in distances)
        ranks = [f"{file}::{test}" for _, file, test in nearest[:MPI_TESTS]]
        there, spent = self._within(((test, MPI_TEST_S) for test in ranks), spent)
        return tuple(stage for stage in (here, there) if stage), spent

    def nearest(self, source: str, n: int) -> list[str]:
        """The `n` test files with the fewest imports between them and a module."""
        distances = {file: far for file, far in self._distances(source).items() if file.startswith(FOLDERS)}
        return sorted(distances, key=lambda file: (distances[file], file))[:n]

    def _within(self, tests: Iterable[tuple[str, float]], spent: float) -> tuple[tuple[str, ...], float]:
        chosen = []
        for test, seconds in tests:
            if spent + seconds <= self._budget_s or (not chosen and not spent):
                chosen.append(test)
                spent += seconds
        return tuple(chosen), spent

    @cached_property
    def _mpi(self) -> list[tuple[str, str]]:
        from tests.conftest import marked_mpi

        files = [path for folder in FOLDERS for path in sorted((self._root / folder).rglob("test_*.py"))]
        return [(str(path.relative_to(self._root)), test) for path in files for test in sorted(marked_mpi(path))]

    @cached_property
    def _graph(self) -> dict[str, set[str]]:
        """The modules that import each module, or run it as a command."""
        import grimp

        graph = grimp.build_graph("mpi_opt", "mpi_learn", "tests", cache_dir=None)
        importers: dict[str, set[str]] = defaultdict(set)
        for module in graph.modules:
            for imported in graph.find_modules_directly_imported_by(module):
                importers[imported].add(module)
            path = self._root / (module.replace(".", "/") + ".py")
            if module.startswith("tests.") and path.exists():
                text = path.read_text(encoding="utf-8")
                for word, command in COMMANDS.items():
                    if f'"{word}' in text:
                        importers[command].add(module)
        return importers

    def _distances(self, source: str) -> dict[str, int]:
        """How many imports are between a module and each test file."""
        module = source.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        distances, reached = {module: 0}, [module]
        for current in reached:
            for importer in sorted(self._graph[current]):
                if importer not in distances:
                    distances[importer] = distances[current] + 1
                    reached.append(importer)
        return {name.replace(".", "/") + ".py": n for name, n in distances.items() if ".test_" in name}
