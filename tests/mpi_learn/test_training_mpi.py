"""The training on several ranks: the same results as on one, and a failure ends it on all ranks."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.optional_packages import needs
from tests.world import in_world

pytestmark = pytest.mark.mpi


@cache
def synchronous(n: int) -> dict:
    done = in_world(n, "-m", "tests.mpi_learn.programs.synchronous", timeout=180)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", ["plain", "penalised and clipped"])
def test_ranks_train_to_the_losses_of_one_rank_with_all_their_batches(case):
    alone, together = (synchronous(n)[case][0]["history"] for n in (1, 3))
    for name, values in alone.items():
        tolerance = 1e-4 if "loss" in name else 2e-3
        assert together[name] == pytest.approx(values, abs=tolerance), name


@pytest.mark.parametrize("n", [2, 3])
def test_all_ranks_hold_the_same_history_and_the_same_model(n):
    for case, seen in synchronous(n).items():
        if case != "half":
            assert len(seen) == n
            assert all(one == seen[0] for one in seen), case


def test_batch_normalisation_is_averaged_not_trained_and_validates_well():
    alone, together = synchronous(1)["normalised"][0]["history"], synchronous(2)["normalised"][0]["history"]
    assert together["val_loss"] == pytest.approx(alone["val_loss"], rel=0.05)  # moments are of each rank's own batch


def test_synchronised_moving_means_are_those_of_all_ranks_at_every_step():
    """A moving mean is linear in what it has seen: averaged every step or every epoch, it is the same."""
    every_step, every_epoch = (synchronous(2)[case][0]["history"] for case in ("synchronised", "normalised"))
    assert every_step["loss"] == pytest.approx(every_epoch["loss"], rel=1e-5)
    assert every_step["val_loss"] == pytest.approx(every_epoch["val_loss"], rel=5e-3)


def test_target_ends_the_training_on_all_ranks_at_once():
    history = synchronous(3)["stopped"][0]["history"]
    assert history["val_accuracy"][-1] >= 0.6
    assert len(history["loss"]) < 30


def test_half_of_the_ranks_train_on_a_communicator_of_their_own():
    half = synchronous(3)["half"]
    assert half[1]["history"]["loss"] == pytest.approx(synchronous(1)["plain"][0]["history"]["loss"], abs=1e-4)
    assert half[0]["history"]["loss"] == pytest.approx(half[1]["history"]["loss"], abs=1e-4)


@needs("torch")
@pytest.mark.parametrize("n", [2])
def test_a_rank_that_raises_stops_all_with_its_traceback(n):
    places = ["data", "gradient", "accumulated", "callback", "progress", "validation"]
    done = in_world(n, "-m", "tests.mpi_learn.programs.failing", *places, "exit", "build", timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for where in places:
        rank = 0 if where == "progress" else n - 1
        assert seen[where] == [f"TrainingError of rank {rank}: RuntimeError: boom"] * n, where
    assert seen["exit"] == [f"TrainingError of rank {n - 1}: SystemExit: boom"] * n
    assert all("raised SystemExit: boom" in one for one in seen["build"])
    assert seen["nowhere"] == ["no error"] * n


@cache
def asynchronous() -> dict:
    done = in_world(3, "-m", "tests.mpi_learn.programs.asynchronous", timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs("torch")
@pytest.mark.parametrize("name", ["downpour", "easgd", "gem", "clusters"])
def test_every_algorithm_learns_the_digits_and_all_ranks_agree(name):
    seen = asynchronous()[name]
    assert all(one["history"] == seen[0]["history"] for one in seen)
    history = seen[0]["history"]
    assert history["val_accuracy"][-1] > 0.8
    assert len(history["loss"]) == 4
    assert ("staleness" in history) == (name != "clusters")
    for one in seen:
        if one["accuracy"] is not None:
            assert one["accuracy"] == pytest.approx(history["val_accuracy"][-1], abs=1e-6)


@needs("torch")
def test_a_master_trains_without_a_framework():
    assert asynchronous()["easgd"][0]["frameworks"] == []
    assert "keras" in asynchronous()["easgd"][1]["frameworks"]


@cache
def slow_worker(*shares: str) -> dict:
    done = in_world(4, "-m", "tests.mpi_learn.programs.slow_worker", *shares, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_training_takes_no_message_of_its_caller():
    assert slow_worker("static")["static"]["kept"] == ["the caller's"] * 4


@pytest.mark.timing
def test_dealing_samples_on_demand_compensates_for_a_slow_worker():
    seen = slow_worker("static", "dynamic")
    for share in ("static", "dynamic"):
        assert seen[share]["history"]["samples"] == [960, 960]
        assert seen[share]["history"]["loss"] == [sum(range(960))] * 2
    assert seen["static"]["batches"] == [80, 80, 80]
    *fast, slow = seen["dynamic"]["batches"]
    assert slow < 0.4 * sum(fast) / len(fast)  # a quarter, but for the parts that are dealt at the end


@needs("torch")
@pytest.mark.parametrize("n", [1, 2])
def test_every_algorithm_resumes_with_the_state_of_each_rank(n, tmp_path):
    done = in_world(n, "-m", "tests.mpi_learn.programs.resuming", str(tmp_path), timeout=120)
    assert done.returncode == 0, done.stderr
    for name, (whole, resumed) in json.loads(done.stdout).items():
        assert resumed == whole, name
