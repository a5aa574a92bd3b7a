"""The files on which a training depends, and which of them have changed since a checkpoint was written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpi_learn.data.files.finding import find_files, is_url
from mpi_learn.data.files.fingerprint import versions
from mpi_learn.errors import MPILearnError
from mpi_learn.settings.user_files import fixed_code
from mpi_learn.training.configuration import TrainingConfiguration

N_NAMED = 3
"""The largest number of changed files that a note names."""


def versions_of_inputs(configuration: TrainingConfiguration) -> dict[str, list[Any]]:
    """File -> values that change with its content: of data, time and size; of the user's Python files, a digest.

    Remote files are left out. Files in the current folder are relative to it, which may be moved.
    """
    found: dict[str, list[Any]] = {}
    data = configuration.data
    if data is not None:
        with suppress(MPILearnError, OSError):  # files may be removed while they are in memory
            local = [place for place in (*data.train, *(data.validation or ())) if not is_url(place)]
            found |= {name: [changed_ns, size] for name, changed_ns, size in versions(find_files(local, "data"), data)}
    found |= {path: [digest] for path, digest in fixed_code().digests().items()}
    root = f"{os.path.realpath(Path.cwd())}{os.sep}"
    return {name.removeprefix(root): version for name, version in found.items()}


def note_on_changes(before: Mapping[str, list[Any]], now: Mapping[str, list[Any]], where: str) -> str:
    """The sentence that says which files have changed since a checkpoint was written; empty if none has."""
    changed = [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]
    if not changed:
        return ""
    named = ", ".join(changed[:N_NAMED])
    others = f" and {len(changed) - N_NAMED} more" if len(changed) > N_NAMED else ""
    verb = "have" if len(changed) > 1 else "has"
    return f"{named}{others} {verb} changed since {where} was written; the training continues with the changed files"
