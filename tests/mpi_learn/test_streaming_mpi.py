"""Training on files that are read during the training."""

from __future__ import annotations

import json
from functools import cache
from tempfile import TemporaryDirectory

import pytest

from tests.optional_packages import needs
from tests.world import in_world

pytestmark = [pytest.mark.mpi, needs("torch")]


@cache
def streaming(n: int) -> dict:
    with TemporaryDirectory() as folder:
        done = in_world(n, "-m", "tests.mpi_learn.programs.streaming", folder, timeout=180)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def history(n: int, case: str) -> dict:
    (first, *others) = [one["found"] for one in streaming(n)[case]]
    assert all(other == first for other in others)
    return first


@pytest.mark.parametrize("n", [1, 2])
def test_the_same_seed_gives_the_same_losses(n):
    assert history(n, "again") == history(n, "streamed")


@pytest.mark.parametrize("n", [1, 2])
def test_a_resumed_training_gives_the_losses_of_one_that_was_never_stopped(n):
    assert history(n, "interrupted") == history(n, "streamed")


@pytest.mark.parametrize("n", [1, 2])
def test_streamed_samples_train_as_well_as_held_ones(n):
    streamed, held = history(n, "streamed"), history(n, "held")
    assert streamed["loss"][0] != held["loss"][0], "the order is another one"
    assert streamed["val_loss"][-1] == pytest.approx(held["val_loss"][-1], rel=0.2)
    assert streamed["val_accuracy"][-1] == pytest.approx(held["val_accuracy"][-1], abs=0.05)


def test_streamed_samples_are_dealt_on_demand():
    assert history(2, "dealt")["val_accuracy"][-1] > 0.5


@pytest.mark.parametrize("n", [1, 2])
def test_a_reader_that_fails_ends_the_training_with_the_name_of_the_file(n):
    for one in streaming(n)["broken"]:
        assert one["found"].startswith("DataError: ")
        assert "part_1.h5: X: sample" in one["found"]


@pytest.mark.parametrize("n", [1, 2])
def test_no_thread_outlives_its_training(n):
    assert not [one["threads"] for ranks in streaming(n).values() for one in ranks if one["threads"]]
