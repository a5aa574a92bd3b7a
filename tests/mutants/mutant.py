"""The list of mutants: one wrong change each, found in the source by its text."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import yaml

LISTS = Path(__file__).parent
ROOT = LISTS.parents[1]


class StaleMutant(Exception):
    """The list no longer describes the source."""


class Change(Protocol):
    """A wrong change and the tests that should notice it: a `Mutant` of a list, or one that is drawn."""

    @property
    def file(self) -> str:
        """The source file, relative to the project."""

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """Arguments of pytest; the next ones are used if these tests pass."""

    @property
    def limit_s(self) -> float | None:
        """How long the tests may take; None: it is measured, without the change."""

    @property
    def argued(self) -> str:
        """Why no test needs to notice it; empty if one must."""

    def applied_to(self, source: str) -> str:
        """Returns the changed source."""


@dataclass(frozen=True)
class Mutant:
    """One wrong change of one source file.

    Attributes:
        listed_in: The YAML file that lists it.
        file: The source file, relative to the project.
        what: What the changed program does wrong.
        old: The text that is replaced; it occurs once in the file, or once after `after`.
        new: What replaces it.
        tests: Arguments of pytest: the tests that should notice the change.
        after: Text that precedes `old`, where `old` alone is ambiguous.
        argued: Why no test needs to notice it; empty if one must.
    """

    listed_in: str
    file: str
    what: str
    old: str
    new: str
    tests: tuple[str, ...]
    after: str = ""
    argued: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """Arguments of pytest; the next ones are used if these tests pass."""
        return (self.tests,)

    @property
    def limit_s(self) -> float | None:
        """How long the tests may take; None: it is measured, without the change."""
        return None

    def applied_to(self, source: str) -> str:
        """Returns the changed source.

        Raises:
            StaleMutant: `old` does not occur exactly once, or the changed source is no Python or the same program.
        """
        start = 0
        if self.after:
            self._must_occur_once(self.after, source, "after")
            start = source.index(self.after) + len(self.after)
            if self.old not in source[start:]:
                raise self._stale(f"`old` does not occur after {self.after!r}: {self.old!r}")
        else:
            self._must_occur_once(self.old, source, "old")
        start = source.index(self.old, start)
        changed = source[:start] + self.new + source[start + len(self.old) :]
        try:
            is_same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source))
        except SyntaxError as error:
            raise self._stale(f"the changed source is not Python: {error}") from None
        if is_same:
            raise self._stale("the changed source is the same program")
        return changed

    def _must_occur_once(self, text: str, source: str, key: str) -> None:
        n = source.count(text)
        if n != 1:
            raise self._stale(f"`{key}` occurs {n} times, not once: {text!r}")

    def _stale(self, reason: str) -> StaleMutant:
        return StaleMutant(f"tests/mutants/{self.listed_in}: {self}: {reason}")


def read_mutants(folder: Path = LISTS) -> list[Mutant]:
    """Reads all lists of a folder, in the order of their names.

    Raises:
        StaleMutant: An entry lacks a key or has an unknown one.
    """
    found = []
    for path in sorted(folder.glob("*.yaml")):  # code is not to be read as numbers: BaseLoader keeps text
        for file, section in yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader).items():
            tests = _arguments(section["tests"])
            found += [_mutant(path.name, file, tests, entry) for entry in section["changes"]]
    return found


def _mutant(listed_in: str, file: str, tests: tuple[str, ...], entry: dict[str, Any]) -> Mutant:
    own_tests = {"tests": _arguments(entry["tests"])} if "tests" in entry else {}
    if not all(isinstance(value, str) for value in entry.values()):
        raise StaleMutant(f"tests/mutants/{listed_in}: {file}: expected text for each key, found {entry}")
    try:
        return Mutant(listed_in, file, **({"tests": tests} | entry | own_tests))
    except TypeError as error:
        raise StaleMutant(f"tests/mutants/{listed_in}: {file}: {entry}: {error}") from None


def _arguments(tests: str) -> tuple[str, ...]:
    return tuple(shlex.split(tests))


def stale_mutants(mutants: list[Mutant], root: Path = ROOT) -> dict[Mutant, str]:
    """Returns the mutants that do not match the source and tests below `root`, with the reason for each."""
    return {mutant: reason for mutant in mutants if (reason := _mismatch(mutant, root))}


def _mismatch(mutant: Mutant, root: Path) -> str:
    try:
        mutant.applied_to(_source_of(mutant, root))
    except StaleMutant as error:
        return str(error)
    missing = [test for test in selected_files(mutant) if not (root / test).exists()]
    missing = missing or _words_of_no_test(mutant, root)
    return f"tests/mutants/{mutant.listed_in}: {mutant}: no such tests: {', '.join(missing)}" if missing else ""


def _words_of_no_test(mutant: Mutant, root: Path) -> list[str]:
    """Returns the words after ``-k`` that neither the selected tests nor the suites for users contain."""
    paths = [root / name for name in (*selected_files(mutant), "mpi_learn/testing", "mpi_opt/testing")]
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
    text = " ".join([*map(str, files), *(file.read_text(encoding="utf-8") for file in files)]).lower()
    pairs = [pair for stage in mutant.stages for pair in pairwise(stage)]
    words = {word for option, value in pairs if option == "-k" for word in re.findall(r"[^\s()]+", value)}
    return sorted(f"-k {word}" for word in words - {"and", "or", "not"} if word.lower() not in text)


def selected_files(change: Change) -> list[str]:
    """Returns the files and folders among the arguments of pytest."""
    tests = (test for stage in change.stages for test in stage)
    return list(dict.fromkeys(test.partition("::")[0] for test in tests if test.startswith("tests/")))


def _source_of(mutant: Mutant, root: Path) -> str:
    try:
        return (root / mutant.file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise StaleMutant(f"tests/mutants/{mutant.listed_in}: no such file: {mutant.file}") from None
