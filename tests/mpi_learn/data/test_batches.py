"""The order in which a worker gets samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_learn.data.samples.batches import Batches, BatchOptions, Dataset, Dealer, shares
from mpi_learn.data.samples.make_batches import validation_batches
from mpi_learn.data.samples.stored_samples import Samples


def numbered(n: int) -> Dataset:
    """Sample i holds the number i as feature and as label."""
    samples = Samples((np.arange(n, dtype=np.float32)[:, np.newaxis],), (np.arange(n),))
    return Dataset(samples, samples, None, np.arange(0))


def flat(lists: list[list]) -> list:
    return [item for one in lists for item in one]


def seen(dataset: Dataset, n_workers: int, worker: int, batch_size: int = 4, epoch: int = 0, **options) -> list[list]:
    batches = Batches(dataset, BatchOptions(batch_size, n_workers, worker, **{"seed": 7} | options))
    return [batch.y[0].tolist() for batch in batches.epoch(epoch)]


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 60), n_workers=st.integers(1, 7), batch_size=st.integers(1, 9))
def test_every_sample_is_used_exactly_once_an_epoch(n, n_workers, batch_size):
    dataset = numbered(n)
    steps = [seen(dataset, n_workers, worker, batch_size) for worker in range(n_workers)]
    assert len({len(worker) for worker in steps}) == 1, "all workers make the same number of steps"
    assert sorted(label for worker in steps for batch in worker for label in batch) == list(range(n))


@pytest.mark.parametrize("n", [1, 15, 16, 17, 50])
def test_two_workers_see_the_samples_of_one_with_the_double_batch(n):
    dataset = numbered(n)
    alone = seen(dataset, 1, 0, batch_size=8)
    first, second = (seen(dataset, 2, worker, batch_size=4) for worker in (0, 1))
    assert [a + b for a, b in zip(first, second, strict=True)] == alone


def test_last_step_is_dealt_as_evenly_as_possible():
    sizes = [len(seen(numbered(16 + 7), 4, worker)[-1]) for worker in range(4)]
    assert sum(sizes) == 7
    assert max(sizes) - min(sizes) == 1


def test_worker_without_samples_still_gets_batches_of_the_right_shape():
    dataset = numbered(2)
    batches = Batches(dataset, BatchOptions(4, n_workers=3, seed=7))
    (batch,) = batches.epoch(0)
    assert len(batch) == 0
    assert batch.x[0].shape == (0, 1)


def test_order_is_another_one_every_epoch_and_the_same_for_the_same_seed():
    dataset = numbered(40)
    assert seen(dataset, 1, 0, epoch=0) != seen(dataset, 1, 0, epoch=1)
    assert seen(dataset, 1, 0, epoch=1) == seen(dataset, 1, 0, epoch=1)
    assert seen(dataset, 1, 0, seed=1) != seen(dataset, 1, 0, seed=2)
    batches = Batches(dataset, BatchOptions(4, seed=7))
    for epoch in (0, 1, 0):
        assert [batch.y[0].tolist() for batch in batches.epoch(epoch)] == seen(dataset, 1, 0, epoch=epoch)


def test_samples_stay_in_order_without_shuffling():
    batches = seen(numbered(10), 1, 0, shuffle=False)
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_features_and_labels_stay_together():
    for batch in Batches(numbered(30), BatchOptions(4, seed=3)).epoch(2):
        np.testing.assert_array_equal(batch.x[0][:, 0], batch.y[0])


def test_images_of_bytes_stay_bytes_and_their_labels_become_int64():
    images = np.arange(5 * 4, dtype=np.uint8).reshape(5, 2, 2)
    samples = Samples((images,), (np.arange(5, dtype=np.uint8),))
    batches = Batches(Dataset(samples, samples), BatchOptions(5, shuffle=False))
    (batch,) = batches.epoch(0)
    assert batch.x[0].dtype == np.uint8
    assert batch.y[0].dtype == np.int64
    np.testing.assert_array_equal(batch.x[0], images)


def test_batch_does_not_change_the_samples():
    dataset = numbered(4)
    for batch in Batches(dataset, BatchOptions(4, shuffle=False)).epoch(0):
        batch.x[0][:] = -1
    assert dataset.training.x[0].min() == 0


def test_fold_trains_and_validates_on_its_own_samples_without_a_copy():
    dataset = numbered(10)
    fold = dataset.fold(np.arange(0, 10, 2), np.arange(1, 10, 2))
    assert fold.training.x[0] is dataset.training.x[0]
    assert sorted(flat(seen(fold, 1, 0))) == [0, 2, 4, 6, 8]
    assert [batch.y[0].tolist() for batch in validation_batches(fold, batch_size=3)] == [[1, 3, 5], [7, 9]]
    assert fold.training_labels()[0].tolist() == [0, 2, 4, 6, 8]


def test_fold_of_a_part_counts_within_the_part():
    part = numbered(10).fold(np.arange(5, 10), np.arange(5))
    fold = part.fold(np.array([0, 1]), np.array([4]))
    assert fold.training_labels()[0].tolist() == [5, 6]
    assert fold.take_validation(slice(None)).y[0].tolist() == [9]


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 100), n_workers=st.integers(1, 20))
def test_shares_cover_everything_once_and_differ_by_one_at_most(n, n_workers):
    parts = [list(range(n))[shares(n, n_workers, worker)] for worker in range(n_workers)]
    assert flat(parts) == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_validation_samples_are_shared_out_in_order():
    dataset = Dataset(numbered(1).training, numbered(11).training)
    parts = [
        [batch.y[0].tolist() for batch in validation_batches(dataset, batch_size=2, n_workers=3, worker=worker)]
        for worker in range(3)
    ]
    assert [label for part in parts for batch in part for label in batch] == list(range(11))
    assert max(len(batch) for part in parts for batch in part) == 2


@settings(max_examples=40, deadline=None)
@given(n=st.integers(0, 400), batch_size=st.integers(1, 9), n_workers=st.integers(1, 5), seed=st.integers(0, 99))
def test_dealt_chunks_contain_every_sample_once(n, batch_size, n_workers, seed):
    dealer = Dealer(n, batch_size=batch_size, n_workers=n_workers)
    workers = [Batches(numbered(n), BatchOptions(batch_size, n_workers, worker, seed=3)) for worker in range(n_workers)]
    free = np.random.default_rng(seed)
    labels = []
    while (part := dealer.deal()) is not None:
        batches = list(workers[free.integers(n_workers)].dealt(0, iter([part, None]).__next__))
        assert all(0 < len(batch) <= batch_size for batch in batches)
        labels += [label for batch in batches for label in batch.y[0].tolist()]
    assert sorted(labels) == list(range(n))


def test_batches_of_a_part_end_with_it():
    batches = Batches(numbered(20), BatchOptions(4, shuffle=False))
    assert [batch.y[0].tolist() for batch in batches.dealt(0, iter([slice(2, 9), None]).__next__)] == [
        [2, 3, 4, 5],
        [6, 7, 8],
    ]


def test_a_worker_four_times_slower_holds_up_an_epoch_by_a_quarter_at_most():
    speeds, batch_size, n = [1.0, 1.0, 0.25], 128, 60_000
    dealer = Dealer(n, batch_size=batch_size, n_workers=3)
    free_at = [0.0, 0.0, 0.0]
    while (part := dealer.deal()) is not None:
        worker = int(np.argmin(free_at))
        free_at[worker] += (part.stop - part.start) / speeds[worker]
    assert max(free_at) <= 1.25 * n / sum(speeds)
