"""Scripts of users end as the commands do after an error that they do not catch."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace, TracebackType

import pytest

from mpi_learn.errors import ConfigurationError, MPILearnError
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


def raised_in(module: str, error: BaseException) -> TracebackType | None:
    """The traceback of `error`, raised in a function of `module`."""
    try:
        exec(compile("def call(error):\n    raise error", f"{module}.py", "exec"), names := {"__name__": module})
        names["call"](error.with_traceback(None))
    except MPILearnError as caught:
        return caught.__traceback__
    raise AssertionError


@pytest.mark.parametrize(
    ("rank", "module", "status"),
    [
        (0, "mpi_opt.api", 2),
        (1, "mpi_opt.api", 0),  # all ranks call search(): mpirun would drop the message of rank 0
        (0, "__main__", 2),
    ],
)
def test_an_expected_error_is_one_message_of_rank_0(hooked, monkeypatch, capsys, rank, module, status):
    ending = SimpleNamespace(exit_status=None)
    monkeypatch.setitem(sys.modules, "mpi_learn.mpi.process_end", ending)
    monkeypatch.setattr(script_errors, "launched_rank", lambda: rank)
    with pytest.raises(SystemExit) as end:
        sys.excepthook(type(ERROR), ERROR, raised_in(module, ERROR))
    assert (end.value.code, ending.exit_status, hooked) == (status, status, [])
    said = capsys.readouterr().err
    assert ("sqlite://" in said and "no store\n  → name one\n" in said) if rank == 0 else said == ""
    assert "secret" not in said


@pytest.mark.parametrize("has_mpi", [True, False])  # tasks of srun may call Study.ask without MPI
def test_an_error_that_one_rank_alone_may_have_is_told_by_it(hooked, monkeypatch, capsys, has_mpi):
    if has_mpi:
        monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace())
    else:
        monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    monkeypatch.setattr(script_errors, "launched_rank", lambda: 3)
    with pytest.raises(SystemExit) as end:
        sys.excepthook(type(ERROR), ERROR, raised_in("__main__", ERROR))
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.startswith("mpi-opt: rank 3: ") and said.endswith("no store\n  → name one\n")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("Real(1, 0)", "low: low must be less than high, not 1 ≥ 0\n  → exchange the two"),
        ('Study.open("sqlite:///none.db", "s")', "none.db: there is no such file"),
        ('search(lambda trial: 0.0, space={"x": Real(0, 1)}, trials=0)', "search(): search.trials: expected 1 or more"),
    ],
)
def test_a_mistake_in_a_script_is_one_message_with_its_line(tmp_path, mistake, message):
    (tmp_path / "study.py").write_text(f"from mpi_opt import Real, Study, search\n\n{mistake}\n")
    done = subprocess.run([sys.executable, "study.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mpi-opt: study.py, line 3: ")
    assert message in done.stderr and "Traceback" not in done.stderr


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
