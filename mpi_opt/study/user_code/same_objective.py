"""Whether an objective of Python is the one that a study was made with, possibly edited, or another one.

It is the same if it has the same name and its file is at the same place: at the same path, or at the same path from the
store. A file has moved if its old place is empty or has the same content. If the function that made the study is still
in the file, beside the present one, it was not edited: the present one is another. An interactive session has no file;
there, a function with other code is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpi_opt.configuration.definition import Definition
from mpi_opt.errors import ConfigurationError
from mpi_opt.store.records import CodeRecord
from mpi_opt.study.user_code.code import beside

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
