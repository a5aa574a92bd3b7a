"""How the user's files, and packages, differ from those that a trial ran with, so that a new training would differ."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpi_learn.data.files.find_files import absolute_pattern, find_files
from mpi_learn.errors import MPILearnError
from mpi_opt.core.trial import TrialRecord
from mpi_opt.store import Store
from mpi_opt.store.connecting import file_path, parsed
from mpi_opt.store.records import CodeRecord, StudyRecord
from mpi_opt.study.user_code.code import described, version_of
from mpi_opt.study.user_code.code_changes import differences


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
