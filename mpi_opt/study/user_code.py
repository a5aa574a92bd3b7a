"""The code of a study: the user's files, packages and data that its trials run with, and how it changes.

An objective of Python is the same if it has the same name and its file is at the same place: at the same path, or at
the same path from the store. A file has moved if its old place is empty or has the same content. If the function that
made the study is still in the file, beside the present one, it was not edited: the present one is another. An
interactive session has no file; there, a function with other code is another one.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from mpi_learn.data.files.finding import absolute_pattern, find_files, is_url
from mpi_learn.data.files.fingerprint import digest
from mpi_learn.errors import MPILearnError
from mpi_learn.settings.user_files import SourceCode
from mpi_opt.configuration.definition import Definition
from mpi_opt.configuration.plan import Plan
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.store.connecting import file_path, parsed
from mpi_opt.store.records import CodeRecord, StudyRecord, time_of

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


def changed_since(store: Store, study: StudyRecord, trial: TrialRecord, *, files_only: bool = False) -> str:
    """A sentence about what has changed since `trial` ran; empty if nothing has, or if it is not known.

    With `files_only` about the Python files alone, which a saved model may need.

    Files and packages that do not exist on this computer are left out: they cannot be compared.
    """
    code = next((one for one in store.codes(study.id) if one.number == trial.code), None)
    if code is None:
        return ""
    folder = _code_folder(code, study, store.address)
    # what cannot be read now keeps its recorded value, so that it counts as unchanged
    now = replace(code, files={path: _digest(folder / path) or known for path, known in code.files.items()})
    if not files_only:
        data = {place: _described(place, folder) or known for place, known in code.data.items()}
        now = replace(now, data=data, packages={name: version_of(name) or old for name, old in code.packages.items()})
    found = differences(code, now)
    return f"since trial {trial.number} ran: {'; '.join(found)}" if found else ""


def _code_folder(code: CodeRecord, study: StudyRecord, store: str) -> Path:
    """The folder of the relative paths in `code`."""
    if code.objective is None or not code.objective["file"]:
        return Path(study.configuration.get("directory") or Path.cwd())
    file, place = Path(code.objective["file"]), file_path(parsed(store))
    if not file.exists() and place is not None and code.objective["beside_store"]:  # the whole folder was moved
        file = place.parent / code.objective["beside_store"]
    return file.parent


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _described(place: str, folder: Path) -> dict[str, Any] | None:
    with suppress(MPILearnError, OSError, ValueError):
        return described(find_files([absolute_pattern(place, folder)], "data"))
    return None


def differences(before: CodeRecord, now: CodeRecord) -> list[str]:
    """The differences of two codes, each in a few words."""
    found = []
    for path in dict.fromkeys((*before.files, *now.files)):
        if path not in now.files:
            found.append(f"{path} is not used any more")
        elif path not in before.files:
            found.append(f"{path} is new")
        elif before.files[path] != now.files[path]:
            found.append(f"{path} has changed")
    # an objective of a notebook is in no file: only the digest of its code shows that it has changed
    if not found and before.objective != now.objective and before.digest != now.digest:
        found += [f"{one['name']} has changed" for one in (now.objective,) if one is not None]
    for name in dict.fromkeys((*before.packages, *now.packages)):
        was, is_now = before.packages.get(name, "not installed"), now.packages.get(name, "not installed")
        if was != is_now:
            found.append(f"{name} {was}, now {is_now}")
    for place in dict.fromkeys((*before.data, *now.data)):
        if before.data.get(place) != now.data.get(place):
            found.append(f"data {place}: {_size(before.data.get(place))}, now {_size(now.data.get(place))}")
    return found


def _size(described: dict[str, Any] | None) -> str:
    if described is None:
        return "none"
    files = "" if described["files"] == 1 else f" in {described['files']} files"
    return f"{described['bytes']:,} bytes{files} of {described['changed'][:19].replace('T', ' ')}"


_BOUND: dict[tuple[str, str], Mapping[str, str]] = {}
"""Store and name of each study of this process -> the plain values that its objective was bound to.

They are compared within a process only: a partial may have a value that differs from job to job.
"""


def remember_objective(definition: Definition, study: str, where: str) -> None:
    """Remembers the values to which the objective of a study is bound."""
    _BOUND[where, study] = definition.bound


def check_same_objective(
    definition: Definition, study: str, codes: Sequence[CodeRecord], store: str, where: str
) -> None:
    """Verifies that an objective is one that a study was made with.

    Args:
        definition: The objective of this search.
        study: The name of the study.
        codes: The codes of the study.
        store: The URL of the store.
        where: The store in messages.

    Raises:
        ConfigurationError: It is another objective.
    """
    known = [code.objective for code in codes if code.objective is not None]
    bound = _BOUND.get((where, study), definition.bound)
    is_bound_alike = bound == definition.bound
    if not known or (is_bound_alike and any(_is_same(before, definition, store) for before in known)):
        return
    shown = replace(definition, bound={}) if is_bound_alike else definition
    before = replace(shown, name=known[-1]["name"], file=known[-1]["file"], bound={} if is_bound_alike else bound)
    addition = "" if str(before) != str(shown) else ", but another one"
    raise ConfigurationError(
        f"the study {study!r} in {where} was made with another objective: {before}; this is {shown}{addition}",
        where="search(): objective",
        cure='give the new study a name, study="…", or continue the study with this objective: resume=True',
    )


def _is_same(before: Mapping[str, Any], now: Definition, store: str) -> bool:
    if before["name"] != now.name or bool(before["file"]) != bool(now.file):
        return False
    if not now.file:
        return bool(before["digest"] == now.digest)
    place = before["beside_store"]
    if before["file"] == now.file or (place is not None and place == beside(now.file, store)):
        return before["digest"] == now.digest or not now.is_in_file(before["digest"])
    return _has_moved(Path(before["file"]), Path(now.file))


def _has_moved(old: Path, new: Path) -> bool:
    try:
        return old.read_bytes() == new.read_bytes()
    except OSError:
        return old.name == new.name and not old.exists()
