"""The short form of experiments/chaos: searches whose ranks are killed at random moments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mpi_learn.known_data import prepare
from tests.mpirun import SURVIVES_LOST_RANKS

sys.path.append(str(Path(__file__).parents[2] / "experiments" / "chaos"))

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks"),
]


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, float]:
    import resume

    return resume.undisturbed()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_search_without_its_rank_0_keeps_all_that_a_client_has_seen(seed, undisturbed, tmp_path):
    import resume

    assert resume.one_run(seed, tmp_path, undisturbed)["problems"] == []


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow), 3])
def test_killed_ranks_cost_no_trial_and_change_no_figure_of_merit(seed, tmp_path):
    import storm

    prepare("digits", data := tmp_path / "digits.h5")
    _, size, folds = storm.drawn(seed)[0]
    run = storm.one_run(data, seed, tmp_path / "run", storm.undisturbed(data, size, folds))
    assert run["problems"] == []
    assert all(seconds < 5 for seconds in run["noticed_s"])
