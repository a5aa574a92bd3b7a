"""The command ``mpi-opt`` in this process."""

from __future__ import annotations

import io
import json

import pytest

from mpi_opt.cli.main import run


@pytest.fixture
def program(tmp_path, monkeypatch, capsys):
    """Runs ``mpi-opt`` in an empty folder; returns exit status, output as JSON, and error messages."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: str = "") -> tuple[int, object, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = run(list(arguments))
        printed = capsys.readouterr()
        is_json = arguments[0] in ("ask", "tell") and "--lines" not in arguments and status == 0
        return status, json.loads(printed.out) if is_json else printed.out, printed.err

    return call
