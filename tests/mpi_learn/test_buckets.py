"""Gradients that are summed piece by piece while back-propagation goes on."""

from __future__ import annotations

import json
from functools import cache

import pytest

from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.training.configuration import read_configuration
from tests.world import in_world

pytest.importorskip("torch")


@cache
def trained(n: int) -> dict:
    done = in_world(n, "-m", "tests.mpi_learn.programs.buckets", timeout=150)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.mpi
@pytest.mark.parametrize("case", ["plain", "clipped", "accumulated"])
def test_buckets_give_exactly_the_losses_of_one_piece(case):
    for rank in trained(2)[case]:
        assert isinstance(rank["whole"], dict), rank
        assert rank["buckets"] == rank["whole"]


@pytest.mark.mpi
def test_a_rank_that_raises_between_two_buckets_stops_all():
    assert trained(2)["raising"] == ["TrainingError: RuntimeError: boom"] * 2


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [(1, [[3], [2], [1], [0]]), (40, [[3, 2], [1, 0]]), (48, [[3, 2, 1], [0]]), (10**9, [[3, 2, 1, 0]])],
)
def test_buckets_are_neighbours_from_the_end_on(n_bytes, expected):
    layout = FlatLayout(((5, 2), (2,), (8,), (2,)))
    assert [list(arrays)[::-1] for arrays in layout.buckets(n_bytes)] == expected


def test_buckets_and_compression_exclude_each_other():
    algorithm = {"name": "allreduce", "bucket_bytes": 1000, "compression": "float16"}
    with pytest.raises(ConfigurationError, match="exclude each other"):
        read_configuration({"model": "a.py:b", "loss": "mse", "algorithm": algorithm})
