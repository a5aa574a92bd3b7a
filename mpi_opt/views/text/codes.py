"""The codes of a study as text: when each was first used, and what changed."""

from __future__ import annotations

from collections.abc import Sequence

from mpi_opt.store.records import CodeRecord, readable
from mpi_opt.study.user_code import differences


def codes_text(codes: Sequence[CodeRecord]) -> str:
    """One line per code."""
    return "\n".join(f"  code {code.number}  {line}" for code, line in zip(codes, _lines(codes), strict=True))


def versions_text(code: CodeRecord) -> str:
    """The packages of a code with their versions."""
    return ", ".join(f"{name} {version}" for name, version in code.packages.items())


def _lines(codes: Sequence[CodeRecord]) -> list[str]:
    before = [None, *codes[:-1]]
    return [_line(code, last) for code, last in zip(codes, before, strict=True)]


def _line(code: CodeRecord, before: CodeRecord | None) -> str:
    commit = "" if code.git_commit is None else f", commit {code.git_commit[:10]}"
    changed = "" if before is None else f": {'; '.join(differences(before, code))}"
    return f"since {readable(code.since)}{commit}{changed}"
