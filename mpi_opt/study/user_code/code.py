"""The code of a study: the user's files, packages and data that its trials run with, and how it changes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from mpi_learn.data.files.find_files import absolute_pattern, find_files, is_url
from mpi_learn.data.files.fingerprint import digest
from mpi_learn.errors import MPILearnError
from mpi_learn.settings.user_files.source_code import SourceCode
from mpi_opt.configuration.definition import Definition
from mpi_opt.configuration.plan import Plan
from mpi_opt.store import Store
from mpi_opt.store.connecting import file_path, parsed
from mpi_opt.store.records import CodeRecord, time_of
from mpi_opt.study.user_code.code_changes import differences

PACKAGES = ("mpi-opt", "numpy", "scikit-optimize", "mpi4py")
"""Packages that every search uses, if they are installed."""

FRAMEWORKS = ("keras", "tensorflow", "tensorflow-cpu", "jax", "torch")
"""The packages that train models. A model of Keras runs on one of the others."""

DISTRIBUTIONS = {"sklearn": "scikit-learn", "skopt": "scikit-optimize", "yaml": "PyYAML", "PIL": "pillow"}
"""Modules whose package has another name."""


def code_record(plan: Plan, source: SourceCode) -> CodeRecord:
    """The code with which a search of `plan` runs its trials, of which `source` are the user's files."""
    trains = plan.configuration.training is not None
    wanted = {DISTRIBUTIONS.get(name, name) for name in source.installed}
    if trains or wanted & set(FRAMEWORKS):
        wanted |= set(FRAMEWORKS)
    versions = {name: found for name in (*PACKAGES, *sorted(wanted)) if (found := version_of(name)) is not None}
    for name in wanted - set(versions) - set(FRAMEWORKS):
        versions |= _versions_of_module(name)
    return CodeRecord(
        files={_shown(path, plan.code_folder): one for path, one in source.digests().items()},
        packages={"Python": platform.python_version()} | versions,
        data=dict(_data(plan)) | {_shown(path, plan.code_folder): described([path]) for path in source.compiled},
        git_commit=git_commit(plan.code_folder),
        objective=None if plan.definition is None else _objective(plan.definition, plan.configuration.store),
    )


def _objective(definition: Definition, store: str) -> dict[str, Any]:
    place = {"file": definition.file, "beside_store": beside(definition.file, store)}
    return {"name": definition.name, "digest": definition.digest} | place


def beside(file: str, store: str) -> str | None:
    """The path of a file from the folder of the store; None without a file, or if a server has the store."""
    place = file_path(parsed(store))
    return os.path.relpath(file, os.path.realpath(place.parent)) if file and place is not None else None


def use_code(store: Store, study_id: int, code: CodeRecord) -> int:
    """Records the code of a search; returns its number. A code that the study had before keeps its number."""
    known = store.codes(study_id)
    number = next((one.number for one in known if one.digest == code.digest), None)
    if number is None:
        number = len(known) + 1
        store.add_code(study_id, replace(code, number=number))
    return number


def changes(store: Store, study_id: int, code: CodeRecord) -> list[str]:
    """How `code` differs from the code that the latest attempt of the study ran with; empty without such an attempt."""
    latest = store.latest_code(study_id)
    before = next((one for one in store.codes(study_id) if one.number == latest), None)
    return [] if before is None or before.digest == code.digest else differences(before, code)


def git_commit(directory: Path) -> str | None:
    """The commit that is checked out in `directory`, read without starting ``git``; None without a repository."""
    for folder in (directory, *directory.parents):
        with suppress(OSError):
            place = folder / ".git"
            if place.is_file():  # a worktree
                place = folder / place.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
            if place.is_dir():
                return _commit(place)
    return None


def _commit(place: Path) -> str | None:
    head = (place / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return head[:64]
    name = head.removeprefix("ref:").strip()
    shared = place / "commondir"
    common = place / shared.read_text(encoding="utf-8").strip() if shared.is_file() else place
    for root in (place, common):
        if (root / name).is_file():
            return (root / name).read_text(encoding="utf-8").strip()[:64]
    packed = common / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), None)


def _data(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """The files of data, and of a saved model, that the training names."""
    training = plan.configuration.training or {}
    section = training.get("data")
    places = [training.get("model")]
    if isinstance(section, Mapping):
        for key in ("train", "validation"):
            given = section.get(key)
            places += given if isinstance(given, list) else [given]
    for place in places:
        if isinstance(place, str) and not is_url(place):
            with suppress(MPILearnError, OSError, ValueError):  # the training raises the error
                yield place, described(find_files([absolute_pattern(place, plan.directory)], "data"))


def described(paths: list[str]) -> dict[str, Any]:
    """Files of data, as in `CodeRecord.data`."""
    states = [(Path(path).name, Path(path).stat()) for path in paths]
    versions = [(name, state.st_size, state.st_mtime_ns) for name, state in states]
    return {
        "files": len(paths),
        "bytes": sum(state.st_size for _, state in states),
        "changed": time_of(max(state.st_mtime for _, state in states)),
        "digest": digest(versions),
    }


def _shown(path: str, directory: Path) -> str:
    """A path relative to the folder of the study if it is in it: the folder may be moved."""
    root = os.path.realpath(directory) + os.sep
    return path.removeprefix(root)


def version_of(package: str) -> str | None:
    """The installed version of a package, or of Python; None if it is not installed."""
    if package == "Python":
        return platform.python_version()
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions_of_module(name: str) -> dict[str, str]:
    found = {package: version_of(package) for package in _distributions().get(name, ())}
    return {package: version for package, version in found.items() if version is not None}


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Module -> packages that install it. Slow: it reads the files of all packages."""
    return metadata.packages_distributions()
