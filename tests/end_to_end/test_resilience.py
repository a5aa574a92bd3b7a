from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from mpi_learn.launch import find_mpirun, launch_environment, launch_flags
from tests.mpirun import mpirun

SEARCH = ("-m", "mpi_opt", "search")
PROTECTED = launch_flags(find_mpirun())

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif("ulfm" not in PROTECTED, reason="this MPI does not survive lost ranks"),
]


def test_lost_ranks_are_survived_and_their_trials_run_again(space_file, query, tmp_path):
    sections = {"blocks": {"size": 2}}
    undisturbed = space_file("dying", store="sqlite:///calm.db", **sections)
    for name in ("died-3", "died-5"):
        (tmp_path / name).touch()
    assert mpirun(7, *SEARCH, str(undisturbed), cwd=tmp_path).returncode == 0
    for name in ("died-3", "died-5"):
        (tmp_path / name).unlink()
    done = mpirun(7, *SEARCH, str(space_file("dying", **sections)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert query("SELECT count(*), count(DISTINCT number) FROM trials WHERE state = 'complete'") == [(12, 12)]
    assert query("SELECT count(*) FROM events WHERE kind = 'rank_lost'") == [(2,)]
    assert query("SELECT number, attempts FROM trials WHERE attempts > 1 ORDER BY number") == [(3, 2), (5, 2)]
    assert query("SELECT outcome FROM attempts WHERE attempt = 1 AND outcome != 'complete'") == [("lost",), ("lost",)]
    (tmp_path / "test.db").rename(tmp_path / "stormy.db")
    stormy = _figures(query, tmp_path, "stormy.db")
    assert stormy == _figures(query, tmp_path, "calm.db")


def test_spare_ranks_take_the_place_of_lost_ones(space_file, query, tmp_path):
    path = space_file("dying", blocks={"size": 2, "spares": 2})
    done = mpirun(7, *SEARCH, str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    blocks = {row for (row,) in query("SELECT DISTINCT ranks FROM attempts")}
    assert "5,6" in blocks  # the two spare ranks, as soon as a rank was lost
    survivors = {one.split(",")[0] for (one,) in query("SELECT ranks FROM attempts WHERE outcome = 'lost'")}
    assert ",".join(sorted(survivors)) in blocks
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]


def test_a_lost_trial_is_assigned_again_within_seconds(space_file, query, tmp_path):
    assert mpirun(7, *SEARCH, str(space_file("dying", blocks={"size": 2})), cwd=tmp_path).returncode == 0
    (waited,) = query(
        "SELECT max((julianday(b.started_at) - julianday(a.finished_at)) * 86400) FROM attempts a JOIN attempts b "
        "ON a.trial_id = b.trial_id WHERE a.outcome = 'lost' AND b.attempt = a.attempt + 1"
    )[0]
    assert waited < 5


@pytest.mark.parametrize("size", [1, 2])
def test_trials_that_fail_in_any_way_are_results(size, space_file, query, tmp_path):
    done = mpirun(5, *SEARCH, str(space_file("failing", blocks={"size": size})), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    errors = dict(query("SELECT number, error FROM trials WHERE state = 'failed'"))
    assert sorted(errors) == [1, 2, 3, 4, 5]
    expected = {1: "this rank says no", 2: "SystemExit: 3", 3: "returned nan", 4: "'a word'", 5: "MemoryError"}
    assert all(words in errors[number] for number, words in expected.items())
    assert "Traceback" in errors[1]
    assert f"rank {size - 1} on" in errors[1]
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(7,)]
    assert query("SELECT count(*) FROM events WHERE kind = 'rank_lost'") == [(0,)]


def test_a_rank_that_raises_frees_those_that_wait_for_it(space_file, query, tmp_path):
    path = space_file("raising_late", blocks={"size": 3})
    done = mpirun(4, *SEARCH, str(path), cwd=tmp_path, timeout=40)
    assert done.returncode == 0, done.stderr
    failed = dict(query("SELECT number, error FROM trials WHERE state = 'failed'"))
    assert sorted(failed) == [1, 3, 5, 7, 9, 11]
    assert all("this rank says no" in error for error in failed.values())
    assert query("SELECT count(*) FROM events") == [(0,)]


def test_hanging_trials_that_can_be_interrupted_cost_no_rank(space_file, query, tmp_path):
    path = space_file("dozing", blocks={"size": 3}, trial={"timeout": "1s"})
    done = mpirun(4, *SEARCH, str(path), cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    failed = dict(query("SELECT number, error FROM trials WHERE state = 'failed'"))
    assert sorted(failed) == [1, 4, 7, 10]
    assert all("longer than trial.timeout, 1 s" in error for error in failed.values())
    assert query("SELECT count(*) FROM events") == [(0,)]


def test_a_trial_that_locks_the_interpreter_costs_its_rank_and_nothing_else(space_file, query, tmp_path):
    path = space_file("stuck", blocks={"size": 2}, trial={"timeout": "1s"})
    done = mpirun(5, *SEARCH, str(path), cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    (error,) = query("SELECT error FROM trials WHERE state != 'complete'")[0]
    assert "longer than trial.timeout, 1 s" in error
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(11,)]
    (kind,) = query("SELECT kind FROM events ORDER BY id")[0]
    assert kind in ("rank_lost", "block_lost")  # whoever is first to tell: MPI, or the rank's neighbour
    logs = "".join(log.read_text() for log in (tmp_path / "test.logs").iterdir())
    assert "in stuck" in logs  # where it stood


def test_a_rank_that_dies_as_the_search_begins_is_survived(space_file, query, tmp_path):
    process = _start(5, space_file("parabola", blocks={"size": 2}), tmp_path)
    while not (tmp_path / "test.logs").exists():  # the ranks have just been told what to do
        time.sleep(0.002)
    os.kill(_ranks(process)[2], signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]
    assert query("SELECT detail FROM events")[0][0].startswith("rank 2")


@pytest.mark.parametrize("dying", [4, 5])  # the first rank of its block, another one
def test_a_rank_that_dies_on_its_way_to_its_block_costs_no_other_rank(dying, space_file, query, tmp_path):
    program = (
        "import os, signal; from mpi_opt.rank import Rank;"
        f"os.environ['OMPI_COMM_WORLD_RANK'] == '{dying}' and"
        " setattr(Rank, '_serve_in', lambda *_: os.kill(os.getpid(), signal.SIGKILL));"
        f"from mpi_opt.cli import main; main(['search', {str(space_file('long_nap', blocks={'size': 3}))!r}])"
    )
    done = mpirun(7, "-c", program, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]
    lost = query("SELECT detail FROM events WHERE kind = 'rank_lost'")
    assert [detail.split(",")[0] for (detail,) in lost] == [f"rank {dying}"]
    logs = "".join(log.read_text() for log in (tmp_path / "test.logs").iterdir())
    assert "rank ends" not in logs  # the others of its block were free when the search ended


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_a_rank_that_dies_before_mpi_begins_leaves_nobody_waiting_for_ever(n_ranks, space_file, tmp_path):
    who = f"os.environ['OMPI_COMM_WORLD_RANK'] == '{n_ranks - 1}'"
    dying = f"import os, signal; {who} and os.kill(os.getpid(), signal.SIGKILL);"
    program = f"{dying} from mpi_opt.cli import main; main(['search', {str(space_file('parabola'))!r}])"
    done = mpirun(n_ranks, "-c", program, cwd=tmp_path, env={"MPI_LEARN_START_S": "3"}, timeout=40)
    assert done.returncode != 0
    assert "Timeout (0:00:03)!" in done.stderr
    assert "in starting" in done.stderr or "_search_everywhere" in done.stderr


@pytest.mark.parametrize("size", [1, 2])
def test_hanging_trials_are_ended_and_their_block_goes_on(size, space_file, query, tmp_path):
    path = space_file("hanging", blocks={"size": size}, trial={"timeout": "2s"})
    done = mpirun(5, *SEARCH, str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    failed = dict(query("SELECT number, error FROM trials WHERE state = 'failed'"))
    assert {1, 2} <= set(failed) <= {1, 2, 3}
    assert "longer than trial.timeout, 2 s" in failed[2]
    assert query("SELECT count(*) FROM trials WHERE state IN ('complete', 'failed')") == [(12,)]


def test_a_killed_search_is_resumed_with_everything_that_was_finished(space_file, query, tmp_path):
    path = space_file("nap", search={"strategy": "random", "trials": 100, "seed": 1})
    process = _start(3, path, tmp_path)
    while not _count(query):
        time.sleep(0.1)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = dict(query("SELECT number, figure_of_merit FROM trials WHERE state = 'complete'"))
    assert before
    done = mpirun(3, *SEARCH, str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = dict(query("SELECT number, figure_of_merit FROM trials WHERE state = 'complete'"))
    assert after.items() >= before.items()
    assert sorted(after) == list(range(100))
    assert query("SELECT count(*) FROM events WHERE kind = 'study_resumed'") == [(1,)]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_a_signal_to_rank_0_ends_the_search_in_order(name, space_file, query, tmp_path):
    path = space_file("nap", search={"strategy": "random", "trials": 10_000, "seed": 1})
    process = _start(3, path, tmp_path)
    while not _count(query):
        time.sleep(0.1)
    os.kill(_ranks(process)[0], getattr(signal, name))
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "run the same command again" in out
    assert query("SELECT count(*) FROM trials WHERE state = 'running'") == [(0,)]


def test_a_time_limit_ends_the_search_in_order(space_file, query, tmp_path):
    path = space_file("long_nap", search={"strategy": "random", "trials": 10_000, "time_limit": "3s"})
    done = mpirun(3, *SEARCH, str(path), cwd=tmp_path, timeout=30)
    assert done.returncode == 0, done.stderr
    assert "after the time limit" in done.stdout
    assert query("SELECT count(*) FROM trials WHERE state = 'running'") == [(0,)]


def _start(n: int, path, cwd) -> subprocess.Popen:
    command = [find_mpirun(), *PROTECTED, "-np", str(n), sys.executable, *SEARCH, str(path)]
    return subprocess.Popen(
        command, cwd=cwd, env=launch_environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def _ranks(launcher: subprocess.Popen) -> list[int]:
    """The process ids of the ranks, in their order: the launcher starts them one after the other."""
    found = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True, check=True)
    return sorted(map(int, found.stdout.split()))


def _count(query) -> int:
    try:
        return query("SELECT count(*) FROM trials WHERE state = 'complete'")[0][0]
    except Exception as error:  # noqa: BLE001 - the store is not there yet
        assert "no such table" in str(error) or "unable to open" in str(error)
        return 0


def _figures(query, folder, name: str) -> list[tuple]:
    (folder / name).rename(folder / "test.db")
    found = query("SELECT number, parameters, figure_of_merit FROM trials ORDER BY number")
    (folder / "test.db").rename(folder / name)
    return found
