from __future__ import annotations

import os
import signal
import time

import pytest

from tests.end_to_end.searches import SEARCH, await_search, await_trials, ranks_of, start
from tests.mpirun import SURVIVES_LOST_RANKS, mpirun, patient_s
from tests.world import in_world

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks"),
]


def test_lost_ranks_are_survived_and_their_trials_run_again_within_seconds(space_file, query, tmp_path):
    sections = {"blocks": {"size": 2}}
    undisturbed = space_file("dying", store="sqlite:///calm.db", **sections)
    for name in ("died-3", "died-5"):
        (tmp_path / name).touch()
    assert in_world(3, *SEARCH, str(undisturbed), cwd=tmp_path).returncode == 0
    for name in ("died-3", "died-5"):
        (tmp_path / name).unlink()
    done = mpirun(7, *SEARCH, str(space_file("dying", **sections)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert query("SELECT count(*), count(DISTINCT number) FROM trials WHERE state = 'complete'") == [(12, 12)]
    assert query("SELECT count(*) FROM events WHERE kind = 'rank_lost'") == [(2,)]
    assert query("SELECT number, attempts FROM trials WHERE attempts > 1 ORDER BY number") == [(3, 2), (5, 2)]
    assert query("SELECT outcome FROM attempts WHERE attempt = 1 AND outcome != 'complete'") == [("lost",), ("lost",)]
    (waited,) = query(
        "SELECT max((julianday(b.started_at) - julianday(a.finished_at)) * 86400) FROM attempts a JOIN attempts b "
        "ON a.trial_id = b.trial_id WHERE a.outcome = 'lost' AND b.attempt = a.attempt + 1"
    )[0]
    assert waited < 5
    (tmp_path / "test.db").rename(tmp_path / "stormy.db")
    stormy = _figures(query, tmp_path, "stormy.db")
    assert stormy == _figures(query, tmp_path, "calm.db")


ONE_THREAD = """
import threading, mpi4py
mpi4py.rc.threads = False
from mpi4py import MPI
from mpi_learn.mpi import messaging
from mpi_opt.cli.main import main

assert MPI.Query_thread() == MPI.THREAD_SINGLE

def alone(call):
    def checked(*arguments, **options):
        assert threading.current_thread() is threading.main_thread(), "another thread calls MPI"
        return call(*arguments, **options)
    return checked

messaging.poll, messaging.revoke_if_protected = alone(messaging.poll), alone(messaging.revoke_if_protected)
"""


def test_with_a_single_mpi_thread_lost_ranks_are_survived(space_file, query, tmp_path):
    path = space_file("dying", blocks={"size": 2}, trial={"timeout": "60s"})
    program = f"{ONE_THREAD}main(['search', {str(path)!r}])"
    done = mpirun(5, "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]
    assert query("SELECT count(*) FROM events WHERE kind = 'rank_lost'") == [(2,)]
    assert "another thread" not in "".join(log.read_text() for log in (tmp_path / "test.logs").iterdir())


def test_spare_ranks_take_the_place_of_lost_ones(space_file, query, tmp_path):
    path = space_file("dying", blocks={"size": 2, "spares": 2})
    done = mpirun(7, *SEARCH, str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    blocks = {row for (row,) in query("SELECT DISTINCT ranks FROM attempts")}
    assert "5,6" in blocks  # the two spare ranks, as soon as a rank was lost
    survivors = {one.split(",")[0] for (one,) in query("SELECT ranks FROM attempts WHERE outcome = 'lost'")}
    assert ",".join(sorted(survivors)) in blocks
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]


@pytest.mark.parametrize("size", [1, 2])
def test_trials_that_fail_in_any_way_are_results(size, space_file, query, tmp_path):
    done = in_world(5, *SEARCH, str(space_file("failing", blocks={"size": size})), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    errors = dict(query("SELECT number, error FROM trials WHERE state = 'failed'"))
    assert sorted(errors) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    expected = {
        1: "this rank says no",
        2: "SystemExit: 3",
        3: "finite number, not nan",
        4: "'a word'",
        5: "MemoryError",
    }
    expected |= {6: "CancelledError: cancelled", 7: "Unspeakable", 8: "MPI_ERR_RANK", 9: "characters left out"}
    assert all(words in errors[number] for number, words in expected.items())
    assert "Traceback" in errors[1]
    assert f"rank {size - 1} on" in errors[1]
    assert f"rank {size - 1} on" in errors[8]  # and not the error of the rank that waits for it
    assert len(errors[9].splitlines()[0]) < 1200
    assert max(map(len, errors.values())) < 10_000
    assert max(map(len, (done.stdout, done.stderr))) < 20_000
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(3,)]
    assert query("SELECT count(*) FROM events WHERE kind = 'rank_lost'") == [(0,)]


def test_a_rank_that_raises_frees_those_that_wait_for_it(space_file, query, tmp_path):
    path = space_file("raising_late", blocks={"size": 3})
    done = in_world(4, *SEARCH, str(path), cwd=tmp_path, timeout=40)
    assert done.returncode == 0, done.stderr
    failed = dict(query("SELECT number, error FROM trials WHERE state = 'failed'"))
    assert sorted(failed) == [1, 3, 5, 7, 9, 11]
    assert all("this rank says no" in error for error in failed.values())
    assert query("SELECT kind FROM events") == [("study_finished",)]


def test_hanging_trials_that_can_be_interrupted_cost_no_rank(space_file, query, tmp_path):
    search = {"strategy": "random", "trials": 6, "seed": 3}
    path = space_file("dozing", blocks={"size": 3}, trial={"timeout": "1s"}, search=search)
    done = in_world(4, *SEARCH, str(path), cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    failed = dict(query("SELECT number, error FROM trials WHERE state = 'failed'"))
    assert sorted(failed) == [1, 4]
    assert all("longer than trial.timeout, 1 s" in error for error in failed.values())
    assert query("SELECT kind FROM events") == [("study_finished",)]


LESS_GRACE = "from mpi_opt.worker import watchdog; watchdog.GRACE_S = 1.0; from mpi_opt.cli.main import main; main()"
"""A program that is ``mpi-opt``, except that processes of overdue trials are ended sooner."""


def test_a_trial_that_locks_the_interpreter_costs_its_rank_and_nothing_else(space_file, query, tmp_path):
    path = space_file("stuck", blocks={"size": 2}, trial={"timeout": "1s"})
    done = mpirun(5, "-c", LESS_GRACE, "search", str(path), cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    (error,) = query("SELECT error FROM trials WHERE state != 'complete'")[0]
    assert "longer than trial.timeout, 1 s" in error
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(11,)]
    (kind,) = query("SELECT kind FROM events ORDER BY id")[0]
    assert kind in ("rank_lost", "block_lost")  # reported first by MPI or by the rank's neighbour
    logs = "".join(log.read_text() for log in (tmp_path / "test.logs").iterdir())
    assert "in stuck" in logs  # the line at which it was


def test_a_rank_that_dies_as_the_search_begins_is_survived(space_file, query, tmp_path):
    process = start(5, space_file("parabola", blocks={"size": 2}), tmp_path)
    have_orders = lambda: any(tmp_path.glob("test.logs/*"))  # noqa: E731
    await_search(process, have_orders, "the ranks do not receive their orders", every_s=0.002)
    os.kill(ranks_of(process.pid)[2], signal.SIGKILL)
    out, _ = process.communicate(timeout=patient_s(60))
    assert process.returncode == 0, out
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]
    assert query("SELECT detail FROM events")[0][0].startswith("rank 2")


# the first rank of its block, and another one
@pytest.mark.parametrize("dying", [4, pytest.param(5, marks=pytest.mark.thorough)])
def test_a_rank_that_dies_on_its_way_to_its_block_costs_no_other_rank(dying, space_file, query, tmp_path):
    program = (
        "import os, signal; from mpi_opt.worker.worker import Worker;"
        f"os.environ['OMPI_COMM_WORLD_RANK'] == '{dying}' and"
        " setattr(Worker, '_serve_in', lambda *_: os.kill(os.getpid(), signal.SIGKILL));"
        f"from mpi_opt.cli.main import main; main(['search', {str(space_file('long_nap', blocks={'size': 3}))!r}])"
    )
    done = mpirun(7, "-c", program, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]
    lost = query("SELECT detail FROM events WHERE kind = 'rank_lost'")
    assert [detail.split(",")[0] for (detail,) in lost] == [f"rank {dying}"]
    logs = "".join(log.read_text() for log in (tmp_path / "test.logs").iterdir())
    assert "rank ends" not in logs  # the others of its block were free when the search ended


def test_a_rank_with_an_internal_error_is_lost_and_blocks_no_other_rank(space_file, query, tmp_path):
    program = (
        "import os; from mpi_opt.worker.worker import Worker;"
        "os.environ['OMPI_COMM_WORLD_RANK'] == '3' and setattr(Worker, '_serve_in', lambda *_: 1 / 0);"
        f"from mpi_opt.cli.main import main; main(['search', {str(space_file('parabola', blocks={'size': 2}))!r}])"
    )
    done = mpirun(5, "-c", program, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]
    assert query("SELECT detail FROM events WHERE kind = 'rank_lost'")[0][0].startswith("rank 3")
    assert "ZeroDivisionError" in (tmp_path / "test.logs" / "rank-0003.log").read_text()


@pytest.mark.parametrize("n_ranks", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_a_rank_that_dies_before_mpi_is_initialised_blocks_no_other_rank(n_ranks, space_file, tmp_path):
    who = f"os.environ['OMPI_COMM_WORLD_RANK'] == '{n_ranks - 1}'"
    dying = f"import os, signal; {who} and os.kill(os.getpid(), signal.SIGKILL);"
    program = f"{dying} from mpi_opt.cli.main import main; main(['search', {str(space_file('parabola'))!r}])"
    done = mpirun(n_ranks, "-c", program, cwd=tmp_path, env={"MPI_LEARN_START_S": "3"}, timeout=40)
    assert done.returncode != 0
    assert "Timeout (0:00:03)!" in done.stderr
    assert "in starting" in done.stderr or "_search_everywhere" in done.stderr


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_hanging_trials_are_ended_and_their_block_continues(size, space_file, query, tmp_path):
    path = space_file("hanging", blocks={"size": size}, trial={"timeout": "2s"})
    done = mpirun(5, "-c", LESS_GRACE, "search", str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    failed = dict(query("SELECT number, error FROM trials WHERE state = 'failed'"))
    assert {1, 2} <= set(failed) <= {1, 2, 3}
    assert "longer than trial.timeout, 2 s" in failed[2]
    assert query("SELECT count(*) FROM trials WHERE state IN ('complete', 'failed')") == [(12,)]


TWICE = """
import os, time, mpi_opt

def objective(trial):
    if trial.number == 1 and trial.comm.rank == 1 and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), 9)
    trial.comm.Barrier()
    return 1.0

if __name__ == "__main__":
    settings = {"space": {"x": mpi_opt.Real(0, 1)}, "strategy": "random", "trials": 3, "block_size": 2}
    mpi_opt.search(objective, study="first", store="sqlite:///first.db", **settings)
    began = time.monotonic()
    mpi_opt.search(objective, study="second", store="sqlite:///test.db", **settings)
    print(time.monotonic() - began)
"""


def test_the_next_search_of_a_script_knows_the_lost_ranks(query, tmp_path):
    (tmp_path / "twice.py").write_text(TWICE)
    done = mpirun(3, "twice.py", cwd=tmp_path)
    assert max(map(float, done.stdout.split())) < 15, done.stderr
    assert query("SELECT state FROM trials") == [("complete",)] * 3
    assert query("SELECT count(*) FROM events WHERE kind = 'rank_lost'") == [(1,)]


def test_a_killed_search_is_resumed_with_everything_that_was_finished(space_file, query, tmp_path):
    path = space_file("nap", search={"strategy": "random", "trials": 100, "seed": 1})
    process = start(3, path, tmp_path)
    await_trials(process, query)
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


def _figures(query, folder, name: str) -> list[tuple]:
    (folder / name).rename(folder / "test.db")
    found = query("SELECT number, parameters, figure_of_merit FROM trials ORDER BY number")
    (folder / "test.db").rename(folder / name)
    return found
