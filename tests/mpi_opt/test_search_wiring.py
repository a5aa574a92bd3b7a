"""The settings of a search reach the parts that use them."""

from __future__ import annotations

import itertools
import sqlite3
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

import mpi_opt
from mpi_learn.job.stop_request import StopRequest
from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.read_study import read_study
from mpi_opt.coordinator.run_coordinator import run_coordinator
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.errors import UserError
from mpi_opt.objectives.function_objective import FunctionObjective
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreLockedError, StudyOwnedError
from tests.mpi_opt.fakes import ScriptedLink

SPACE = {"x": mpi_opt.Real(0, 1)}


class Recorder:
    """Takes the place of the coordinator, and keeps what it is given."""

    made: list[Recorder]

    def __init__(self, pool, strategy, store, study_id, settings: SearchSettings) -> None:
        self.pool, self.strategy, self.store, self.study_id, self.settings = pool, strategy, store, study_id, settings
        Recorder.made.append(self)

    def run(self, *, keeps_blocks: bool = False) -> None:
        settings = self.settings
        self.studies = [(study.name, study.id) for study in self.store.studies()]
        self.left_s = settings.stop_condition._limit_s
        self.proposals = [settings.new_strategy().ask(1)[0].parameters for _ in range(2)]
        settings.check_lease()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Recorder]:
    """What each search gives to its coordinator, which runs nothing."""
    monkeypatch.setattr("mpi_opt.coordinator.run_coordinator.Coordinator", Recorder)
    monkeypatch.setattr(Recorder, "made", [], raising=False)
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    return Recorder.made


def search(tmp_path: Path, **options):
    common = {"space": SPACE, "strategy": "random", "study": "wired", "store": f"sqlite:///{tmp_path}/wired.db"}
    return mpi_opt.search(lambda trial: 0.0, **common | options)


def test_the_limits_of_a_search_reach_its_coordinator(recorded, tmp_path):
    options = {"trials": 7, "retries": 3, "timeout": "2m", "target": 0.25, "direction": "maximize", "folds": 3}
    search(tmp_path, **options, time_limit=500, seed=11)
    (found,) = recorded
    limits = found.settings.limits
    assert (limits.n_trials, limits.retries, limits.timeout_s, limits.target) == (7, 3, 120.0, (0.25,))
    assert limits.figures_of_merit.directions == ("maximize",)
    assert found.settings.n_folds == 3
    assert found.left_s == 500
    assert found.studies == [("wired", found.study_id)]
    assert found.settings.study
    assert found.proposals[0] == found.proposals[1] == found.strategy.ask(1)[0].parameters


@pytest.mark.parametrize(("time_limit", "expected_s"), [(None, 570.0), (2000, 570.0), (100, 100.0)])
def test_the_end_of_the_batch_job_reaches_the_coordinator(recorded, tmp_path, monkeypatch, time_limit, expected_s):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 600))
    search(tmp_path, time_limit=time_limit)
    assert recorded[0].left_s == pytest.approx(expected_s, abs=5)


@pytest.mark.parametrize(("n_ranks", "is_loaded"), [(1, False), (2, True)])
def test_a_library_is_loaded_beside_other_processes_but_not_beside_another_thread(
    recorded, tmp_path, monkeypatch, n_ranks, is_loaded
):
    content = {"study": "wired", "store": f"sqlite:///{tmp_path}/wired.db", "objective": "m.py:f"}
    content |= {"space": {"x": {"type": "real", "low": 0, "high": 1}}, "search": {"strategy": "sobol"}}
    (tmp_path / "m.py").write_text("def f(trial): return 0.0\n")
    plan = Plan(read_study(content), tmp_path, FunctionObjective("m.py:f", tmp_path), n_ranks)
    run_coordinator(plan, ScriptedLink(None), StopRequest(), itertools.count(), None)
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(ImportError) if is_loaded else nullcontext():
        recorded[0].settings.load_library()


def test_a_search_ends_before_its_batch_job(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 3))

    def objective(trial) -> float:
        time.sleep(0.05)
        return 0.0

    store = f"sqlite:///{tmp_path}/wired.db"
    study = mpi_opt.search(objective, space=SPACE, strategy="random", study="wired", store=store, trials=10_000)
    assert len(study.trials) < 1000
    with Store.open(store) as opened:
        events = opened.events(opened.study("wired").id)
    assert [event.kind for event in events] == ["search_stopped"]


def test_a_coordinator_learns_that_another_search_has_taken_the_study_over(recorded, tmp_path, monkeypatch):
    def check(lease) -> None:
        raise StudyOwnedError("taken")

    monkeypatch.setattr("mpi_opt.study.opening.lease.Lease.check", check)
    with pytest.raises(UserError, match="taken"):
        search(tmp_path)


@pytest.mark.parametrize("wait", [False, True])
def test_a_search_that_waits_for_another_one_waits_for_its_transaction(recorded, tmp_path, monkeypatch, wait):
    """A coordinator on another host may be frozen in it."""
    monkeypatch.setattr("mpi_opt.store.connecting.WAIT_S", 0.1)
    monkeypatch.setattr("mpi_opt.coordinator.run_coordinator.PAUSE_S", 0.02)
    search(tmp_path)
    frozen = sqlite3.connect(tmp_path / "wired.db", isolation_level=None, check_same_thread=False)
    frozen.execute("BEGIN IMMEDIATE")
    thaw = threading.Timer(0.5, frozen.rollback)
    thaw.start()
    with nullcontext() if wait else pytest.raises(StoreLockedError):
        search(tmp_path, wait=wait)
    thaw.join()
    frozen.close()
    assert len(recorded) == 1 + wait
