from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from mpi_learn.known_data import prepare
from tests.in_process import in_process
from tests.mpirun import MPIRUN, UNPROTECTED, mpirun, run
from tests.optional_packages import needs
from tests.world import in_world

ROOT = Path(__file__).parents[2]
SEARCH = ("-m", "mpi_opt", "search")


@pytest.mark.mpi
@pytest.mark.parametrize(("n_ranks", "size"), [(1, 1), (2, 1), (5, 2), (4, 2), (3, 8)])
def test_a_search_runs_on_any_number_of_ranks(n_ranks, size, space_file, query, tmp_path):
    path = space_file("parabola", blocks={"size": size})
    done = in_world(n_ranks, *SEARCH, str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the best trials:" in done.stdout
    assert query("SELECT count(*), count(figure_of_merit) FROM trials WHERE state = 'complete'") == [(12, 12)]
    assert all(fom == (x - 1) ** 2 for x, fom in query("SELECT x, figure_of_merit FROM study_test"))
    ranks = {rank for (row,) in query("SELECT ranks FROM attempts") for rank in row.split(",")}
    assert ranks == {"0"} if n_ranks == 1 else ranks <= {str(rank) for rank in range(1, n_ranks)}


@pytest.mark.mpi
@pytest.mark.parametrize(("n_ranks", "size", "folds"), [(1, 1, 3), (5, 4, 3)])
def test_the_figure_of_merit_is_the_mean_over_the_folds(n_ranks, size, folds, space_file, query, tmp_path):
    path = space_file("folded", blocks={"size": size}, folds=folds, search={"strategy": "random", "trials": 4})
    done = in_world(n_ranks, *SEARCH, str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = query("SELECT fold, figure_of_merit FROM folds ORDER BY trial_id, fold")
    assert [fold for fold, _ in rows] == list(range(folds)) * 4
    values = [value for _, value in rows[:folds]]
    assert sum(values) == 50 + sum(range(folds))  # every sample validates once
    mean = sum(values) / folds
    spread = (sum((value - mean) ** 2 for value in values) / (folds - 1)) ** 0.5
    found = query("SELECT figure_of_merit, uncertainty FROM trials")
    assert all(row == pytest.approx((mean, spread)) for row in found)


def test_the_same_seed_gives_the_same_trials_in_one_process(space_file, tmp_path):
    found = []
    for strategy in ("random", "bayesian", "evolutionary"):
        for repeat in range(2):
            path = space_file(
                "parabola",
                store=f"sqlite:///{strategy}{repeat}.db",
                search={"strategy": strategy, "trials": 14, "seed": 5},
            )
            assert in_process("search", str(path), cwd=tmp_path).returncode == 0
            connection = sqlite3.connect(tmp_path / f"{strategy}{repeat}.db")
            found.append(connection.execute("SELECT number, parameters, figure_of_merit FROM trials").fetchall())
            connection.close()
        assert found[-1] == found[-2]
        assert len(found[-1]) == 14


@pytest.mark.mpi
def test_the_same_command_continues_a_study(space_file, query, tmp_path):
    path = space_file("parabola")
    assert in_world(3, *SEARCH, str(path), "--trials", "5", cwd=tmp_path).returncode == 0
    before = query("SELECT number, parameters, figure_of_merit FROM trials ORDER BY number")
    again = in_world(3, *SEARCH, str(path), "--trials", "9", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    after = query("SELECT number, parameters, figure_of_merit FROM trials ORDER BY number")
    assert after[:5] == before
    assert [number for number, *_ in after] == list(range(9))
    assert len({parameters for _, parameters, _ in after}) == 9


@pytest.mark.mpi
@pytest.mark.parametrize("launcher", [(), pytest.param((MPIRUN, *UNPROTECTED, "-np", "2"), marks=pytest.mark.thorough)])
def test_a_trial_that_ends_every_search_is_failed_after_three_times(launcher, space_file, query, tmp_path):
    command = [*launcher, sys.executable, *SEARCH, str(space_file("fatal"))]
    statuses = [run(command, cwd=tmp_path, timeout=60).returncode for _ in range(4)]
    assert [status == 0 for status in statuses] == [False, False, False, True]
    assert query("SELECT number FROM trials WHERE state != 'complete'") == [(1,)]
    ((error,),) = query("SELECT error FROM trials WHERE state = 'failed'")
    assert "killed 3 times soon after the start of this trial" in error
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(11,)]


def test_a_study_is_not_continued_with_another_space(space_file, tmp_path):
    assert in_process("search", str(space_file("parabola")), cwd=tmp_path).returncode == 0
    space = {"x": {"type": "real", "low": 0.0, "high": 3.0}, "y": {"type": "integer", "low": 0, "high": 3}}
    done = in_process("search", str(space_file("parabola", space=space)), cwd=tmp_path)
    assert done.returncode == 2
    assert "was created with another space: x.high: 2.0, now 3.0; y: nothing, now {" in done.stderr
    assert "type" not in done.stderr.split("; y")[0]  # equal values are not shown
    assert "--study NAME" in done.stderr


@pytest.mark.mpi
def test_the_store_can_be_read_while_the_search_runs(space_file, tmp_path):
    path = space_file("nap", search={"strategy": "random", "trials": 60, "seed": 1})
    seen = set()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(in_world, 3, *SEARCH, str(path), cwd=tmp_path)
        while not running.done():
            if (tmp_path / "test.db").exists():
                connection = sqlite3.connect(tmp_path / "test.db")
                try:
                    query = "SELECT count(*) FROM study_test WHERE state = 'complete'"
                    seen |= set(connection.execute(query).fetchone())
                except sqlite3.OperationalError as error:
                    assert "no such table" in str(error)  # the first moment
                connection.close()
            time.sleep(0.05)
    assert running.result().returncode == 0
    assert len(seen) > 5


@pytest.mark.mpi
def test_a_reached_target_ends_the_search(space_file, query, tmp_path):
    path = space_file("nap", search={"strategy": "random", "trials": 500, "seed": 1, "target": 1.0})
    assert in_world(3, *SEARCH, str(path), cwd=tmp_path).returncode == 0
    assert query("SELECT count(*) FROM trials")[0][0] < 60


@pytest.mark.mpi
def test_a_study_may_be_called_anything(space_file, tmp_path):
    path = space_file("parabola", study="digits/units: 'a\"b'")
    done = in_world(3, *SEARCH, str(path), "--report", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(one.suffix for one in tmp_path.iterdir()) == [".db", ".html", ".logs", ".yaml"]


def test_a_search_continues_if_nothing_can_be_printed(space_file, query, tmp_path):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        command = [sys.executable, *SEARCH, str(space_file("parabola"))]
        subprocess.run(command, cwd=tmp_path, stdout=full, timeout=60, check=False)
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]


@pytest.mark.mpi
def test_other_ranks_write_to_files(space_file, tmp_path):
    path = space_file("parabola")
    done = in_world(3, *SEARCH, str(path), cwd=tmp_path)
    assert done.returncode == 0
    assert sorted(file.name for file in (tmp_path / "test.logs").iterdir()) == ["rank-0001.log", "rank-0002.log"]


@pytest.mark.mpi
def test_trials_that_print_do_not_fail_on_a_full_disk(space_file, query, tmp_path):
    (tmp_path / "test.logs").mkdir()
    for rank in (1, 2):
        (tmp_path / "test.logs" / f"rank-{rank:04d}.log").symlink_to("/dev/full")
    done = in_world(3, *SEARCH, str(space_file("talkative")), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert query("SELECT count(*) FROM trials WHERE state = 'complete'") == [(12,)]


@pytest.mark.mpi
def test_option_n_starts_mpirun_and_its_workers_load_little(space_file, query, tmp_path):
    command = [sys.executable, *SEARCH, str(space_file("little_loaded")), "-n", "4", "--block-size", "3"]
    done = run(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert query("SELECT DISTINCT state, error FROM trials") == [("complete", None)]
    assert query("SELECT DISTINCT ranks FROM attempts") == [("1,2,3",)]


@pytest.mark.mpi
def test_intermediate_values_are_recorded(space_file, query, tmp_path):
    path = space_file("reporting", search={"strategy": "random", "trials": 2})
    assert in_world(3, *SEARCH, str(path), cwd=tmp_path).returncode == 0
    rows = query(
        "SELECT epoch, value - x FROM metrics JOIN trials ON trials.id = trial_id JOIN study_test USING (number)"
    )
    assert sorted(epoch for epoch, _ in rows) == sorted(list(range(5)) * 2)
    assert all(value == pytest.approx(epoch) for epoch, value in rows)


CONTRACT_EXAMPLE = """
from mpi_opt import Categorical, Integer, Real, search, Study

def objective(trial):
    x, n, kind = trial.parameters["x"], trial.parameters["n"], trial.parameters["kind"]
    assert trial.comm.size == 1 and trial.fold == 0 and trial.folds == 1 and isinstance(trial.seed, int)
    trial.report(0, x)
    assert trial.should_stop() is False
    return (x - 1) ** 2 + n + (kind == "b")

study = search(objective, space={"x": Real(-5, 10), "n": Integer(1, 8), "kind": Categorical(["a", "b"])},
               trials=20, strategy="bayesian", direction="minimize", seed=7,
               block_size=1, folds=1, study="demo", store="sqlite:///demo.db", options={})
assert len(study.trials) == 20
assert study.best.figure_of_merit == min(trial.figure_of_merit for trial in study.trials)
assert study.best.parameters["kind"] in ("a", "b") and study.best.uncertainty is None and study.best.number >= 0
assert Study.open("sqlite:///demo.db", "demo").best == study.best
print("best", study.best.number)
"""


@pytest.mark.mpi
@pytest.mark.parametrize("n_ranks", [None, pytest.param(1, marks=pytest.mark.thorough), 4])
def test_the_contracts_python_works_as_written(n_ranks, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CONTRACT_EXAMPLE)
    if n_ranks is None:
        done = run([sys.executable, str(script)], cwd=tmp_path)
    else:
        done = in_world(n_ranks, str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    numbers = [line for line in done.stdout.splitlines() if line.startswith("best")]
    assert len(numbers) == (n_ranks or 1)
    assert len(set(numbers)) == 1  # the same on every rank


STARTING = """
import multiprocessing, os, subprocess, sys, time, mpi_opt

def objective(trial):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    started = subprocess.Popen(["sleep", "60"])
    time.sleep(0.2)
    child.terminate(), started.terminate()
    child.join()
    return child.exitcode + started.wait()

if __name__ == "__main__":
    study = mpi_opt.search(objective, space={"x": mpi_opt.Real(0, 1)}, trials=1, strategy="random", store="sqlite://")
    print(study.best.figure_of_merit)
"""


@pytest.mark.mpi
def test_processes_that_an_objective_starts_can_be_ended_by_signals(tmp_path):
    (tmp_path / "starting.py").write_text(STARTING)
    done = mpirun(2, "starting.py", cwd=tmp_path, timeout=30)
    assert done.stdout.split() == ["-30.0"] * 2, done.stderr


TWICE = """
import time, mpi_opt
from mpi4py import MPI

def first(trial):
    time.sleep(1 + trial.number)
    return float(trial.number)

def second(trial):
    time.sleep(0.3)
    trial.should_stop()
    return 1.0

if __name__ == "__main__":
    settings = {"space": {"x": mpi_opt.Real(0, 1)}, "strategy": "random", "store": "sqlite:///test.db"}
    mpi_opt.search(first, trials=2, target=0.0, study="first", **settings)  # trial 1 is told to stop, and does not look
    study = mpi_opt.search(second, trials=4, study="second", **settings)
    print([trial.state for trial in study.trials])
"""


@pytest.mark.mpi
def test_late_messages_of_a_search_do_not_reach_the_next_one(query, tmp_path):
    (tmp_path / "twice.py").write_text(TWICE)
    done = in_world(3, "twice.py", cwd=tmp_path, timeout=60)
    assert done.stdout.splitlines() == [str(["complete"] * 4)] * 3, done.stderr
    blocks = [
        set(query(f"SELECT block FROM attempts JOIN trials ON id = trial_id WHERE study_id = {i}")) for i in (1, 2)
    ]
    assert not blocks[0] & blocks[1]


FORKING = """
import asyncio, os, sys, mpi_opt

def objective(trial):
    if trial.number == 1:
        raise asyncio.CancelledError("given up")
    child = os.fork()
    if child == 0 and trial.number == 2:
        return 7.0
    if child == 0:
        sys.exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

if __name__ == "__main__":
    space = {"x": mpi_opt.Real(0, 1)}
    study = mpi_opt.search(objective, space=space, trials=4, strategy="random", timeout=20, store="sqlite:///test.db")
    print([(trial.state, trial.figure_of_merit) for trial in study.trials])
"""


@pytest.mark.mpi
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_processes_that_an_objective_forks_do_not_continue_the_search(n_ranks, tmp_path):
    (tmp_path / "forking.py").write_text(FORKING)
    command = [sys.executable, "forking.py"]
    done = run(command, cwd=tmp_path, timeout=30) if n_ranks == 1 else mpirun(2, *command[1:], cwd=tmp_path, timeout=30)
    expected = str([("complete", 3.0), ("failed", None), ("complete", 0.0), ("complete", 3.0)])
    assert done.stdout.splitlines() == [expected] * n_ranks, done.stderr


REPORTING = """
import resource, sys
from mpi_opt.cli.main import main

try:
    main()
finally:
    from mpi4py import MPI
    if MPI.COMM_WORLD.rank == 0:
        mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"rank 0: {mb:.0f} MB", sorted({"tensorflow", "keras", "torch"} & set(sys.modules)))
"""


MODEL = """
from torch import nn

def build_model(units, layers, activation, dropout):
    act = {"relu": nn.ReLU, "elu": nn.ELU, "selu": nn.SELU}[activation]
    parts = [nn.Linear(64, units), act(), nn.Dropout(dropout)]
    for _ in range(layers - 1):
        parts += [nn.Linear(units, units), act(), nn.Dropout(dropout)]
    return nn.Sequential(*parts, nn.Linear(units, 10))
"""


@pytest.fixture(scope="module")
def digits_search(tmp_path_factory) -> tuple[Path, str]:
    """The folder and the standard output of a search on the digits by successive halving, on 3 fresh ranks."""
    folder = tmp_path_factory.mktemp("digits")
    prepare("digits", folder / "digits.h5")
    (folder / "digits.py").write_text(MODEL)
    content = yaml.safe_load((ROOT / "searchspaces" / "digits.yaml").read_text())
    options = {"min_budget": 1, "max_budget": 2, "factor": 2}
    content |= {"search": {"strategy": "halving", "trials": 5, "seed": 7, "options": options}, "folds": 1}
    content["training"]["data"]["validation_fraction"] = 0.2
    (folder / "digits.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    (folder / "script.py").write_text(REPORTING)
    done = mpirun(3, "script.py", "search", "digits.yaml", cwd=folder, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "5/5 trials" in done.stdout
    line = r"study \S+ in \S+: new, 5 trials will run; \d blocks? of \d ranks?"
    assert re.search(line, done.stdout)  # before the first trial ends
    return folder, done.stdout


@pytest.mark.mpi
@needs("torch")
def test_rank_0_of_a_search_never_loads_a_framework(digits_search):
    line = next(line for line in digits_search[1].splitlines() if line.startswith("rank 0:"))
    assert line.endswith("[]"), line
    assert int(line.split()[2]) < 250, line


@pytest.mark.mpi
@needs("torch")
def test_promoted_trials_resume_from_the_previous_checkpoint(digits_search):
    with sqlite3.connect(digits_search[0] / "digits.db") as connection:
        query = "SELECT number, epoch, value FROM metrics JOIN trials ON trials.id = trial_id WHERE name = 'val_loss'"
        curves = {(number, epoch): value for number, epoch, value in connection.execute(query)}
        query = "SELECT number, resume_from FROM trials WHERE resume_from IS NOT NULL"
        promoted = connection.execute(query).fetchall()
    assert promoted
    for number, before in promoted:
        assert curves[number, 0] == curves[before, 0]  # taken over, not trained again
        assert (number, 1) in curves


def test_a_process_without_a_terminal_gets_plain_lines(space_file, tmp_path):
    done = in_process("search", str(space_file("parabola")), cwd=tmp_path)
    assert "\x1b" not in done.stdout
    assert os.linesep.join(["", "the best trials:"]) in done.stdout
