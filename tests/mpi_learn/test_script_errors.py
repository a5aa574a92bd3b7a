"""Scripts of users end as the commands do after an error that they do not catch."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from mpi_learn.errors import ConfigurationError
from mpi_learn.job import script_errors

ERROR = ConfigurationError("no store", where="sqlite://ada:secret@host/a", cure="name one")


@pytest.fixture
def hooked(monkeypatch):
    """What the hook before ours has received."""
    received = []
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.setattr(sys, "excepthook", lambda *error: received.append(error))
    script_errors.report_errors()
    return received


@pytest.mark.parametrize(("rank", "status"), [(0, 2), (1, 0)])
def test_an_expected_error_is_one_message_of_rank_0_and_its_status(hooked, monkeypatch, capsys, rank, status):
    """Other ranks end without an error: mpirun would drop the message."""
    ending = SimpleNamespace(exit_status=None)
    monkeypatch.setitem(sys.modules, "mpi_learn.mpi.process_end", ending)
    monkeypatch.setattr(script_errors, "launched_rank", lambda: rank)
    with pytest.raises(SystemExit) as end:
        sys.excepthook(type(ERROR), ERROR, None)
    assert (end.value.code, ending.exit_status, hooked) == (status, status, [])
    said = capsys.readouterr().err
    assert said.startswith("mpi-opt: sqlite://") and "no store\n  → name one\n" in said if rank == 0 else said == ""
    assert "secret" not in said


def test_other_errors_are_left_to_the_hook_before_ours_which_is_set_once(hooked):
    ours = sys.excepthook
    script_errors.report_errors()
    assert sys.excepthook is ours
    error = ZeroDivisionError()
    sys.excepthook(ZeroDivisionError, error, None)
    assert hooked == [(ZeroDivisionError, error, None)]


def test_interactive_sessions_keep_their_hook(monkeypatch):
    before = sys.excepthook
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    script_errors.report_errors()
    assert sys.excepthook is before
