"""The short form of ``make chaos``. It needs no protection against lost ranks: with each MPI library it must pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "experiments" / "chaos"))

IN_SHORT = ["rank killed", "rank 0 killed", "mpirun killed", "rank 0 frozen for 3 s", "store locked", "clock jumps"]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("seed", "n_faults"), [(2, 1), *(pytest.param(seed, 6, marks=pytest.mark.thorough) for seed in (3, 4))]
)
def test_a_search_is_finished_although_things_fail_around_it(seed, n_faults, tmp_path):
    import chaos

    content = chaos.space(40, trains=False)
    one = chaos.one_round(seed, tmp_path / "round", 40, IN_SHORT, n_faults, content)
    assert one["problems"] == []
    assert len(one["faults"]) >= min(n_faults, 1)
