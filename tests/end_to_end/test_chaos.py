"""The short form of experiments/chaos: searches whose ranks are killed at random moments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mpi_learn.known_data import prepare
from mpi_learn.settings.yaml_file import dumped
from mpi_opt import Real, search
from tests.end_to_end.searches import SEARCH
from tests.mpirun import SURVIVES_LOST_RANKS
from tests.optional_packages import needs
from tests.world import in_world

sys.path.append(str(Path(__file__).parents[2] / "experiments" / "chaos"))

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks"),
]


@pytest.mark.parametrize(
    "seed", [pytest.param(0, marks=pytest.mark.thorough), pytest.param(1, marks=pytest.mark.thorough), 25]
)
def test_a_search_without_its_rank_0_keeps_all_that_a_client_has_seen(seed, tmp_path):
    import resume

    run = resume.one_run(seed, tmp_path, in_one_process(resume.space()["search"]))
    assert run["problems"] == []
    assert run["was_killed"] or seed != 25


def in_one_process(settings: dict) -> dict[str, float]:
    """Trial -> figure of merit of `resume.space`, whose objective returns x² after a pause."""
    study = search(lambda trial: trial.parameters["x"] ** 2, space={"x": Real(-1, 1)}, store="sqlite://", **settings)
    return {str(trial.number): trial.figure_of_merit for trial in study.trials}


FEW_RANKS = (5, 2, 1), [(4, 2, 0.0), (2, 6, 0.0)]
"""Ranks, ranks per block and folds; and kills: one rank of each block."""


@pytest.mark.thorough  # test_resilience kills ranks, too
@pytest.mark.parametrize("seed", [None, 0, 1, 3])
@needs("torch")
def test_killed_ranks_cost_no_trial_and_change_no_figure_of_merit(seed, tmp_path):
    import storm

    setting, kills = (FEW_RANKS[0], [storm.Kill(*one) for one in FEW_RANKS[1]]) if seed is None else storm.drawn(seed)
    prepare("digits", data := tmp_path / "digits.h5")
    run = storm.one_run(data, setting, kills, tmp_path / "run", on_one_block(setting, data, tmp_path))
    assert run["problems"] == []
    if seed is None:  # the search continues after both kills; with other seeds it may have ended before
        assert len(run["kills"]) == len(run["noticed_s"]) == len(kills)
    assert all(seconds < 5 for seconds in run["noticed_s"])


def on_one_block(setting: tuple[int, int, int], data: Path, folder: Path) -> dict[str, float]:
    """Trial -> figure of merit of the search of `storm` with this setting, on a single block without lost ranks."""
    import storm

    _, size, folds = setting
    (folder / "space.yaml").write_text(dumped(storm.space(data, size, folds)))
    done = in_world(1 + size, *SEARCH, "space.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    return storm.figures(folder / "storm.db")
