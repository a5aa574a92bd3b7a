"""The samples of a step with a total batch: the same for any number of workers, held or streamed."""

from __future__ import annotations

from contextlib import closing
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.loading import load
from mpi_learn.data.samples.batches import BatchOptions, Dataset, weighted_shares
from mpi_learn.data.samples.make_batches import make_batches, make_sharded_batches
from mpi_learn.data.samples.stored_samples import Samples

N, TOTAL = 50, 12
"""The last of five steps has two samples."""


@pytest.fixture(params=["held", "streamed"])
def dataset(request, tmp_path):
    numbers = np.arange(N, dtype=np.float32)
    if request.param == "held":
        samples = Samples((numbers[:, None],), (numbers,))
        return Dataset(samples, samples)
    np.savez(tmp_path / "a.npz", x=numbers[:, None], y=numbers)
    section = {"train": [str(tmp_path / "a.npz")], "features": "x", "labels": "y", "memory": "stream"}
    return load(DataConfiguration(**section, window_bytes=20 * 8), MPI.COMM_SELF, 0)


def of_workers(dataset, n_workers, shards=None, epoch=1, then=(), **options):
    """The samples of each worker in each step; with shards, those of each of its shards.

    Args:
        then: Speeds that are measured in the epoch before.
    """
    found = []
    for worker in range(n_workers):
        wanted = BatchOptions(-(-TOTAL // n_workers), n_workers, worker, seed=7, total=TOTAL, **options)
        made = make_sharded_batches(dataset, wanted, shards) if shards else make_batches(dataset, wanted)
        with closing(made):
            if then:
                list(made.epoch(epoch - 1))
                made.balance(then)
            steps = list(made.epoch(epoch))
            assert len(steps) == made.n_steps
        found.append([[b.y[0].tolist() for b in (one.batches if shards else [one])] for one in steps])
    return found


def by_step(of_each):
    """(step -> the batches of all workers one after the other)."""
    return [[batch for worker in step for batch in worker] for step in zip(*of_each, strict=True)]


def joined(steps):
    return [[sample for batch in step for sample in batch] for step in steps]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("n_workers", [2, 3, 5, 12])
def test_workers_share_the_steps_of_one_worker(dataset, n_workers, shuffle):
    alone = joined(by_step(of_workers(dataset, 1, shuffle=shuffle)))
    assert [len(step) for step in alone] == [12, 12, 12, 12, 2]
    assert sorted(chain.from_iterable(alone)) == list(range(N))
    together = by_step(of_workers(dataset, n_workers, shuffle=shuffle))
    assert joined(together) == alone
    assert all(max(map(len, step)) - min(map(len, step)) <= 1 for step in together)


@pytest.mark.parametrize("n_workers", [2, 3, 4])
def test_shards_have_the_same_samples_on_any_number_of_workers(dataset, n_workers):
    """Four shards; three workers compute one, one and two of them."""
    alone = by_step(of_workers(dataset, 1, shards=4))
    assert [len(step) for step in alone] == [4] * 5
    assert sorted(chain.from_iterable(joined(alone))) == list(range(N))
    of_each = of_workers(dataset, n_workers, shards=4)
    assert by_step(of_each) == alone
    assert sorted(len(worker[0]) for worker in of_each) == {2: [2, 2], 3: [1, 1, 2], 4: [1] * 4}[n_workers]


def test_samples_that_do_not_fill_a_step_are_left_out_on_any_number_of_workers(dataset):
    alone = joined(by_step(of_workers(dataset, 1, drop_last=True)))
    assert [len(step) for step in alone] == [12] * 4
    assert joined(by_step(of_workers(dataset, 5, drop_last=True))) == alone
    assert [[len(shard) for shard in step] for step in by_step(of_workers(dataset, 3, shards=4, drop_last=True))] == [
        [3] * 4
    ] * 4


def test_epochs_have_orders_of_their_own(dataset):
    assert of_workers(dataset, 3, shards=4, epoch=0) != of_workers(dataset, 3, shards=4, epoch=1)


@settings(deadline=None)
@given(n=st.integers(0, 60), speeds=st.lists(st.floats(0.01, 100), min_size=1, max_size=9))
def test_shares_are_in_proportion_to_speeds_and_leave_no_worker_idle(n, speeds):
    parts = [weighted_shares(n, speeds, worker) for worker in range(len(speeds))]
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == n
    sizes = [part.stop - part.start for part in parts]
    if n >= len(speeds):
        assert min(sizes) >= 1
    expected = n * np.array(speeds) / sum(speeds)
    if expected.min() >= 1:
        assert np.abs(sizes - expected).max() <= 1 + 1e-9


@pytest.mark.parametrize("shards", [None, 6])
def test_balanced_workers_share_the_same_steps_in_other_parts(dataset, shards):
    """Workers with speeds of 1, 1 and 4 have 2, 2 and 8 of 12 samples, or 1, 1 and 4 of 6 shards."""
    alone = joined(by_step(of_workers(dataset, 1, shards=shards, epoch=2)))
    of_each = of_workers(dataset, 3, shards=shards, epoch=2, speeds=(1.0, 1.0, 1.0), then=(1.0, 1.0, 4.0))
    assert joined(by_step(of_each)) == alone
    assert [sum(map(len, worker[0])) for worker in of_each] == [2, 2, 8]
