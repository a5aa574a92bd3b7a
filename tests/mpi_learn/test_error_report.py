"""One error is reported once for all ranks, also where some of them are gone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import typer

from mpi_learn.cli import error_report
from mpi_learn.errors import DataError, TrainingError

WORLD_SIZE = 10


class World(SimpleNamespace):
    """The calls of one rank of ten, in order."""

    def __init__(self, rank):
        super().__init__(rank=rank, size=WORLD_SIZE, calls=[])

    def Barrier(self):  # noqa: N802 - of MPI
        self.calls.append("Barrier")

    def Abort(self, status):  # noqa: N802 - of MPI
        self.calls.append(f"Abort {status}")


def said_by(world, error, capsys, debug=False):
    """The status of the program and its standard error."""
    with pytest.raises(typer.Exit) as end, error_report.reported(world, debug):
        raise error
    return end.value.exit_code, capsys.readouterr().err


@pytest.mark.parametrize(("rank", "debug"), [(0, False), (0, True), (2, False)])
def test_the_lowest_living_rank_names_all_lost_ranks_in_order_and_ends_the_job(monkeypatch, capsys, rank, debug):
    monkeypatch.setattr(error_report, "_lost_ranks", lambda world, error: {8, 1})
    waited = []
    monkeypatch.setattr(error_report.time, "sleep", waited.append)
    world = World(rank)
    status, text = said_by(world, RuntimeError("MPI_ERR_PROC_FAILED"), capsys, debug)
    assert (status, world.calls[0]) == (1, "Abort 1")
    assert waited == ([] if rank == 0 else [error_report.GRACE_S])
    if rank == 0:
        assert text.startswith("mpi-learn: rank 1, 8 was lost") and "the same command continues" in text
    assert ("MPI_ERR_PROC_FAILED" in text.split("continues")[0]) is (rank != 0)


@pytest.mark.parametrize("rank", [0, 3])
def test_an_error_of_all_ranks_is_printed_by_rank_0_before_any_rank_ends(monkeypatch, capsys, rank):
    monkeypatch.setattr(error_report, "_lost_ranks", lambda world, error: set())
    world, error = World(rank), DataError("no samples", where="a.h5", cure="add some")
    status, text = said_by(world, error, capsys)
    assert (status, world.calls) == (error.exit_status, ["Barrier", "Barrier"])
    assert text == ("mpi-learn: a.h5: no samples\n  → add some\n" if rank == 0 else "")


def test_an_unknown_error_of_one_rank_has_a_traceback_and_ends_the_others(monkeypatch, capsys):
    monkeypatch.setattr(error_report, "_lost_ranks", lambda world, error: set())
    world = World(3)
    status, text = said_by(world, ZeroDivisionError("of sqlite://ada:secret@host/x"), capsys)
    assert (status, world.calls) == (1, ["Abort 1"])
    assert text.startswith("mpi-learn: Traceback") and "ZeroDivisionError" in text
    assert "secret" not in text


def test_an_error_before_mpi_starts_is_printed_once_and_keeps_its_status(monkeypatch, capsys):
    error = DataError("no samples")
    monkeypatch.setattr(error_report, "launched_rank", lambda: 0)
    assert said_by(None, error, capsys) == (error.exit_status, "mpi-learn: no samples\n")
    monkeypatch.setattr(error_report, "launched_rank", lambda: 1)
    assert said_by(None, error, capsys) == (error.exit_status, "")
    assert "ZeroDivisionError" in said_by(None, ZeroDivisionError(), capsys)[1]


def test_debugging_shows_where_an_error_was_raised(capsys):
    failed = TrainingError(DataError("no samples"))
    short, long = (said_by(None, failed, capsys, debug)[1] for debug in (False, True))
    assert "Traceback" not in short and "Traceback" in long
