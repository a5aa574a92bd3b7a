"""The table of many starts; see `tests.slurm.starts`."""

from __future__ import annotations

from tests.slurm.starts import N_RANKS, STEPS, table, why_failed


def started(seconds: float = 1.0, status: int = 0, missing: tuple[tuple[int, str], ...] = ()) -> dict:
    """The record of a start, without the reports of the pairs of rank and step in `missing`."""
    in_block = ("met", "created", "formed")
    passed = [(rank, step) for step in STEPS for rank in range(N_RANKS) if rank > 0 or step not in in_block]
    reports = [
        {"rank": rank, "step": step, "s": seconds, "ran_s": 0.5, "queued_s": 0.25}
        for rank, step in passed
        if (rank, step) not in missing
    ]
    return {"status": status, "s": seconds + 1, "load": 1.0, "reports": reports, "output": []}


def test_a_start_has_not_failed_if_every_rank_has_ended():
    assert why_failed(started()) == ""
    assert why_failed(started(missing=((2, "ended"),))) == "status 0, before 'ended'"  # a rank was killed


def test_the_reason_of_a_failure_is_the_first_step_that_a_rank_has_not_passed():
    assert why_failed(started(status=124, missing=((3, "created"), (3, "formed")))) == "not in time, before 'created'"
    assert why_failed(started(status=139, missing=((0, "ended"),))) == "status 139, before 'ended'"
    assert why_failed(started(status=1)) == "status 1, before 'exit'"


def test_the_table_has_the_seconds_of_the_last_rank_and_the_failures_by_reason():
    hung = started(status=124, missing=tuple((rank, "formed") for rank in range(1, N_RANKS)))
    lines = table([started(1.0), started(2.0), started(9.0), hung]).splitlines()
    assert lines[0] == "4 starts, 1 failed"
    assert next(line for line in lines if line.startswith("formed")).split() == ["formed", "2.0", "9.0", "9.0", "0.2"]
    assert lines[-1] == "1 × not in time, before 'formed'"
