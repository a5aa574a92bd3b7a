"""``search.pruning`` in searches under ``mpirun``."""

import pytest

from tests.world import in_world

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("pruning", ["median", "curves"])
def test_blocks_that_run_at_the_same_time_stop_bad_trials(pruning, space_file, query, tmp_path):
    wanted = {"strategy": "random", "trials": 60, "seed": 3, "pruning": pruning}
    path = space_file("learning", direction="maximize", search=wanted)
    done = in_world(4, "-m", "mpi_opt", "search", str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    trials = query("SELECT state, figure_of_merit FROM trials")
    complete = sorted(figure for state, figure in trials if state == "complete")
    assert len(trials) == 60 and 8 <= len(complete) < 50
    ((n_values,),) = query("SELECT count(*) FROM metrics")
    assert n_values < 0.85 * 60 * 12
    assert complete[-1] == max(figure for _, figure in trials)
