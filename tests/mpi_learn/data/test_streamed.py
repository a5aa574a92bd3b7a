"""Samples that stay in their files: each is read once per epoch, in an order that does not depend on timing."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI

from mpi_learn.data import loading
from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.loading import load
from mpi_learn.data.samples.batches import BatchOptions, Dealer
from mpi_learn.data.samples.make_batches import make_batches, validation_batches
from mpi_learn.data.samples.stored_samples import ClassWeights, StreamedSamples
from mpi_learn.data.samples.streamed_batches import StreamedBatches
from mpi_learn.errors import DataError
from mpi_learn.testing.thread_ranks import run_ranks
from mpi_learn.training.setup import check_signs
from tests.mpi_learn.data.formats import FORMATS, marked
from tests.optional_packages import needs

N_COLUMNS = 3
SAMPLE_BYTES = 4 * N_COLUMNS + 8


def write(path, first, n, **options):
    """Samples `first` to `first` + n - 1; sample i holds i as label and as each of its features."""
    labels = np.arange(first, first + n)
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=np.repeat(labels[:, np.newaxis], N_COLUMNS, 1).astype(np.float32), **options)
        file["y"] = labels


def streamed(tmp_path, *, sizes=(50, 1, 70), window=40, **options):
    for number, n in enumerate(sizes if not any(tmp_path.glob("part_*")) else []):
        write(tmp_path / f"part_{number}.h5", sum(sizes[:number]), n)
    files = {"train": str(tmp_path / "part_*.h5"), "features": "X", "labels": "y"}
    configuration = DataConfiguration(**files, memory="stream", window_bytes=window * SAMPLE_BYTES, **options)
    return load(configuration, MPI.COMM_SELF, seed=3)


def seen(dataset, n_workers=1, worker=0, batch_size=4, epoch=0, seed=7, **options):
    batches = make_batches(dataset, BatchOptions(batch_size, n_workers, worker, seed, **options))
    try:
        return [batch.y[0].tolist() for batch in batches.epoch(epoch)]
    finally:
        batches.close()


def flat(lists):
    return [item for one in lists for item in one]


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("reading ahead")]


@settings(max_examples=15)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    window=st.integers(1, 300),
    n_workers=st.integers(1, 5),
    batch_size=st.integers(1, 9),
)
def test_every_sample_is_used_exactly_once_an_epoch(tmp_path_factory, sizes, window, n_workers, batch_size):
    dataset = streamed(tmp_path_factory.mktemp("data"), sizes=sizes, window=window)
    workers = [seen(dataset, n_workers, worker, batch_size) for worker in range(n_workers)]
    assert len({len(worker) for worker in workers}) == 1, "all workers make the same number of steps"
    assert max(len(batch) for worker in workers for batch in worker) <= batch_size
    assert sorted(flat(flat(workers))) == list(range(sum(sizes)))


def test_features_and_labels_stay_together(tmp_path):
    batches = make_batches(streamed(tmp_path), BatchOptions(8, seed=3))
    for batch in batches.epoch(2):
        assert batch.x[0].dtype == np.float32
        assert batch.y[0].dtype == np.int64
        np.testing.assert_array_equal(batch.x[0], np.repeat(batch.y[0][:, np.newaxis], N_COLUMNS, 1))
    batches.close()


def test_order_is_another_one_every_epoch_and_the_same_for_the_same_seed(tmp_path):
    dataset = streamed(tmp_path)
    assert seen(dataset, epoch=0) != seen(dataset, epoch=1)
    assert seen(dataset, epoch=1) == seen(dataset, epoch=1)
    assert seen(dataset, seed=1) != seen(dataset, seed=2)


def test_a_later_epoch_is_the_same_whether_or_not_those_before_were_seen(tmp_path):
    dataset = streamed(tmp_path)
    batches = make_batches(dataset, BatchOptions(4, seed=7))
    epochs = [[batch.y[0].tolist() for batch in batches.epoch(epoch)] for epoch in range(3)]
    assert [batch.y[0].tolist() for batch in batches.epoch(1)] == epochs[1]
    batches.close()
    assert epochs[2] == seen(dataset, epoch=2)


def test_the_next_window_is_read_ahead_also_across_epochs_and_no_window_twice(tmp_path, monkeypatch):
    read, asked = StreamedBatches._read, []
    monkeypatch.setattr(StreamedBatches, "_read", lambda self, window: (asked.append(window), read(self, window))[1])
    batches = make_batches(streamed(tmp_path), BatchOptions(4, seed=7))
    steps, until = batches.epoch(0), time.monotonic() + 10
    next(steps)
    while len(asked) < 2:
        assert time.monotonic() < until, "nothing is read ahead"
        time.sleep(1e-3)
    list(steps)
    while asked[-1].epoch == 0:
        assert time.monotonic() < until, "the next epoch is not read ahead"
        time.sleep(1e-3)
    list(batches.epoch(1))
    batches.close()
    assert len(set(asked)) == len(asked)


def test_timing_does_not_change_the_order(tmp_path, monkeypatch):
    expected = seen(streamed(tmp_path))
    fill, pause_s = StreamedSamples.fill, iter([0.02, 0.0, 0.01] * 100)

    def slow(*arguments):
        time.sleep(next(pause_s))
        fill(*arguments)

    monkeypatch.setattr(StreamedSamples, "fill", slow)
    assert seen(streamed(tmp_path)) == expected


def test_shuffling_mixes_blocks_from_all_over_the_files_in_one_window(tmp_path):
    n, window = 6400, 640  # a window of 64 blocks of 10 samples
    labels = np.array(flat(seen(streamed(tmp_path, sizes=[n], window=window), batch_size=64)))
    means = labels.reshape(-1, 64).mean(1)
    assert means.std() < 1.5 * n / np.sqrt(12 * 64)  # as of 64 samples drawn at random
    assert abs(np.corrcoef(labels[:-1], labels[1:])[0, 1]) < 0.05
    assert len(np.unique(labels.reshape(-1, window).argsort(1), axis=0)) == 10, "windows are shuffled alike"


def test_samples_stay_in_order_without_shuffling(tmp_path):
    assert flat(seen(streamed(tmp_path), shuffle=False)) == list(range(121))


def test_fractions_and_folds_are_seen_through_indices(tmp_path):
    dataset = streamed(tmp_path, validation_fraction=0.25)
    validation = flat(batch.y[0].tolist() for batch in validation_batches(dataset, batch_size=5))
    assert len(validation) == round(121 * 0.25)
    assert sorted(flat(seen(dataset)) + validation) == list(range(121))
    fold = streamed(tmp_path).fold(np.arange(0, 121, 2), np.arange(1, 121, 2))
    assert sorted(flat(seen(fold))) == list(range(0, 121, 2))
    assert fold.training_labels()[0].tolist() == list(range(0, 121, 2))
    shared = [validation_batches(fold, batch_size=4, n_workers=2, worker=worker) for worker in (0, 1)]
    assert flat(batch.y[0].tolist() for worker in shared for batch in worker) == list(range(1, 121, 2))


@pytest.mark.parametrize("window", [40, 6400])
def test_streamed_samples_equal_samples_in_memory(tmp_path, window):
    """Blocks are single samples, or the files."""
    dataset = streamed(tmp_path, window=window)
    wanted = np.array([120, 3, 50, 51, 3, 0])
    assert dataset.training.take(wanted).y[0].tolist() == wanted.tolist()
    assert dataset.take_training(slice(48, 53)).x[0][:, 0].tolist() == [48, 49, 50, 51, 52]
    assert dataset.training.take(slice(0, 2)).x[0].shape == (2, N_COLUMNS)
    assert [label for (labels,) in dataset.training.labels() for label in labels] == list(range(121))


@pytest.mark.parametrize("memory", ["stream", "hold"])
def test_negative_weights_are_found_in_all_samples(tmp_path, memory):
    for name, last in (("good", 0), ("bad", -1)):
        write(tmp_path / f"{name}.h5", 0, 50)
        with h5py.File(tmp_path / f"{name}.h5", "a") as file:
            file["w"] = np.append(np.ones(49), last)
    common = {"features": "X", "labels": "y", "weights": "w", "memory": memory}
    if memory == "stream":
        common["window_bytes"] = 10 * SAMPLE_BYTES
    good, bad = str(tmp_path / "good.h5"), str(tmp_path / "bad.h5")

    def loaded(train, validation):
        return load(DataConfiguration(train=train, validation=validation, **common), MPI.COMM_SELF, seed=3)

    dataset = loaded(good, good)
    assert [one for (weights,) in dataset.training.sample_weights() for one in weights] == [1] * 49 + [0]
    check_signs(dataset)
    check_signs(replace(dataset, class_weights=ClassWeights({0: 0.5})))
    for found in (loaded(bad, good), loaded(good, bad)):
        with pytest.raises(DataError, match=r"data\.weights: with the reduction mean_with_sample_weight and negative"):
            check_signs(found)
    with pytest.raises(DataError, match=r"data\.class_weight: with the reduction"):
        check_signs(replace(dataset, class_weights=ClassWeights({0: 1.0, 1: -0.5})))


def test_dealt_parts_hold_every_sample_once(tmp_path):
    dataset = streamed(tmp_path, window=12)
    dealer = Dealer(121, batch_size=2, n_workers=2)
    workers = [make_batches(dataset, BatchOptions(2, 2, worker, seed=3)) for worker in range(2)]
    going, labels = [worker.dealt(0, dealer.deal) for worker in workers], []
    while going:
        for one in list(going):
            batch = next(one, None)
            if batch is None:
                going.remove(one)
            else:
                labels += batch.y[0].tolist()
    for worker in workers:
        worker.close()
    assert sorted(labels) == list(range(121))


@pytest.mark.parametrize("name", marked(sorted(FORMATS)))
def test_every_format_streams_or_gives_a_reason(tmp_path, name):
    form = FORMATS[name]
    n = 23
    path = tmp_path / f"y{form.suffix}"  # NPY: one file for each column, called as it
    form.write(path, {"a": np.arange(n) * 0.5, "y": np.arange(n)})
    files = {"train": str(path), "features": ["a"], "labels": "y", "window_bytes": 64}
    if name in ("csv", "csv.gz", "npz"):
        with pytest.raises(DataError, match=rf"data\.memory: stream: .*{form.suffix}.*no random access"):
            load(DataConfiguration(**files, memory="stream"), MPI.COMM_SELF, 0)
        return
    dataset = load(DataConfiguration(**files, memory="stream"), MPI.COMM_SELF, 0)
    assert isinstance(dataset.training, StreamedSamples)
    assert sorted(flat(seen(dataset))) == list(range(n))
    np.testing.assert_array_equal(dataset.take_training(slice(None)).x[0].ravel(), np.arange(n) * np.float32(0.5))


@needs("pyarrow")
def test_a_glob_means_the_same_columns_in_all_streamed_files(tmp_path):
    columns = {"x1": np.arange(6.0), "x2": np.arange(6.0) + 20, "y": np.arange(6)}
    FORMATS["parquet"].write(tmp_path / "a.parquet", columns)
    FORMATS["parquet"].write(tmp_path / "b.parquet", dict(reversed(columns.items())))
    files = {"train": str(tmp_path / "?.parquet"), "features": "x*", "labels": "y", "memory": "stream"}
    x = load(DataConfiguration(**files), MPI.COMM_SELF, 0).take_training(slice(None)).x[0]
    np.testing.assert_array_equal(x, np.column_stack([columns["x1"], columns["x2"]]).tolist() * 2)


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_an_npz_that_are_not_compressed_stream(tmp_path, order):
    x = np.asarray(np.random.default_rng(0).random((40, 5)), np.float32, order=order)
    np.savez(tmp_path / "a.npz", X=x, y=np.arange(40), none=np.zeros((0, 3)))
    files = {"train": str(tmp_path / "a.npz"), "features": "X", "labels": "y", "window_bytes": 200}
    dataset = load(DataConfiguration(**files, memory="stream"), MPI.COMM_SELF, 0)
    np.testing.assert_array_equal(dataset.take_training(slice(None)).x[0], x)


def test_samples_of_one_chunk_are_read_together(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", 0, 100, chunks=(25, N_COLUMNS))
    files = {"train": str(tmp_path / "a.h5"), "features": "X", "labels": "y", "window_bytes": SAMPLE_BYTES}
    dataset = load(DataConfiguration(**files, memory="stream"), MPI.COMM_SELF, 0)
    assert dataset.training.blocks.tolist() == [0, 25, 50, 75, 100]
    assert dataset.training.window_samples == 100
    spans, fill = [], StreamedSamples.fill
    monkeypatch.setattr(StreamedSamples, "fill", lambda *a: (spans.append(a[2:4]), fill(*a)))
    assert sorted(flat(seen(dataset, batch_size=10))) == list(range(100))
    assert set(spans) == {(0, 25), (25, 50), (50, 75), (75, 100)}


def test_auto_streams_data_larger_than_half_of_the_memory(tmp_path, monkeypatch):
    n_bytes = 121 * SAMPLE_BYTES
    streamed(tmp_path)  # writes the files
    places = {"train": str(tmp_path / "part_*.h5")}
    configuration = DataConfiguration(**places, features="X", labels="y", window_bytes=SAMPLE_BYTES)
    monkeypatch.setattr("mpi_learn.data.loading.host_memory_bytes", lambda: 2 * n_bytes)
    assert not isinstance(load(configuration, MPI.COMM_SELF, 0).training, StreamedSamples)
    monkeypatch.setattr("mpi_learn.data.loading.host_memory_bytes", lambda: 2 * n_bytes - 1)
    dataset = load(configuration, MPI.COMM_SELF, 0)
    assert isinstance(dataset.training, StreamedSamples)
    assert sorted(flat(seen(dataset))) == list(range(121))
    held = configuration.model_copy(update={"memory": "hold"})
    assert not isinstance(load(held, MPI.COMM_SELF, 0).training, StreamedSamples)


def test_auto_holds_training_and_validation_only_if_half_of_the_memory_is_enough_for_both(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", 0, 40)
    write(tmp_path / "b.h5", 40, 30)
    places = {"train": str(tmp_path / "a.h5"), "validation": str(tmp_path / "b.h5")}
    configuration = DataConfiguration(**places, features="X", labels="y", window_bytes=SAMPLE_BYTES)
    are_streamed = {}
    for n_held in (70, 69, 39, 29):
        monkeypatch.setattr("mpi_learn.data.loading.host_memory_bytes", lambda n=n_held: 2 * n * SAMPLE_BYTES)
        dataset = load(configuration, MPI.COMM_SELF, 0)
        are_streamed[n_held] = [isinstance(one, StreamedSamples) for one in (dataset.training, dataset.validation)]
        assert (dataset.n_training, dataset.n_validation) == (40, 30)
    assert are_streamed == {70: [False, False], 69: [False, True], 39: [True, False], 29: [True, True]}


@pytest.mark.parametrize(
    ("chunk", "window", "n_held", "place", "cure"),
    [
        (10, 1, 79, "a.h5.*stores 10 samples as one piece", "smaller row groups or chunks"),
        (10, 1, 80, None, ""),  # two windows of four chunks
        (5, 1, 79, None, ""),
        (5, 40, 79, "data.window_bytes", "write a smaller number"),
        (5, 39, 79, None, ""),
        (5, 9999, 1999, "data.window_bytes", "write a smaller number"),
        (5, 9999, 2000, None, ""),  # a window is never larger than the samples
    ],
)
def test_two_windows_must_fit_into_memory(tmp_path, monkeypatch, chunk, window, n_held, place, cure):
    write(tmp_path / "a.h5", 0, 200, chunks=(chunk, N_COLUMNS))
    write(tmp_path / "b.h5", 200, 800, chunks=(1, N_COLUMNS))
    files = {"train": [str(tmp_path / name) for name in ("a.h5", "b.h5")], "features": "X", "labels": "y"}
    configuration = DataConfiguration(**files, memory="stream", window_bytes=window * SAMPLE_BYTES)
    monkeypatch.setattr("mpi_learn.data.loading.host_memory_bytes", lambda: n_held * SAMPLE_BYTES)
    if place is None:
        assert isinstance(load(configuration, MPI.COMM_SELF, 0).training, StreamedSamples)
        return
    with pytest.raises(DataError, match=place) as caught:
        load(configuration, MPI.COMM_SELF, 0)
    assert cure in caught.value.cure


def test_the_ranks_of_a_host_share_its_memory_for_their_windows(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", 0, 200, chunks=(10, N_COLUMNS))
    files = {"train": str(tmp_path / "a.h5"), "features": "X", "labels": "y", "memory": "stream", "window_bytes": 1}
    for n_held, is_enough in ((159, False), (160, True)):
        monkeypatch.setattr("mpi_learn.data.loading.host_memory_bytes", lambda n=n_held: n * SAMPLE_BYTES)
        with contextlib.nullcontext() if is_enough else pytest.raises(DataError, match="smaller row groups"):
            run_ranks(2, lambda comm: load(DataConfiguration(**files), comm, 0))


@pytest.mark.parametrize("function", ["", "f.py:f"])
def test_a_window_counts_what_is_read_not_only_what_a_function_makes_of_it(tmp_path, function):
    write(tmp_path / "a.h5", 0, 100)
    (tmp_path / "f.py").write_text("def f(x):\n    return x[:, 0].astype('int8')\n")
    features = {"names": "X", "function": function} if function else "X"
    files = {"train": "a.h5", "features": features, "labels": "y", "window_bytes": 10 * SAMPLE_BYTES}
    configuration = DataConfiguration(**files, memory="stream").with_absolute_paths(tmp_path)
    assert load(configuration, MPI.COMM_SELF, 0).training.window_samples == 10


@needs("pyarrow")
def test_text_file_larger_than_memory_is_refused_with_a_cure(tmp_path, monkeypatch):
    FORMATS["csv"].write(tmp_path / "a.csv", {"a": np.arange(50.0), "y": np.arange(50)})
    configuration = DataConfiguration(train=str(tmp_path / "a.csv"), features="a", labels="y")
    monkeypatch.setattr("mpi_learn.data.loading.host_memory_bytes", lambda: 100)
    with pytest.raises(DataError, match=r"a\.csv: all samples take .* cannot be read in pieces") as caught:
        load(configuration, MPI.COMM_SELF, 0)
    assert caught.value.cure == "write the samples to HDF5, Parquet, ROOT or NPY files"


def test_memory_of_the_host_is_limited_by_the_control_group(tmp_path, monkeypatch):
    whole = loading.host_memory_bytes()
    assert whole > 2**28
    (tmp_path / "memory.max").write_text("1000000\n")
    monkeypatch.setattr(loading, "CGROUPS", tmp_path)
    assert loading.host_memory_bytes() == 1_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert loading.host_memory_bytes() >= whole


def test_a_file_that_breaks_meanwhile_is_named_and_no_thread_is_left(tmp_path):
    dataset = streamed(tmp_path)
    (tmp_path / "part_2.h5").write_bytes(b"nothing that anybody could read")
    batches = make_batches(dataset, BatchOptions(4, seed=7))
    with pytest.raises(DataError, match=r"part_2\.h5"):
        list(batches.epoch(0))
    batches.close()
    assert not reading_threads()


def test_a_number_that_is_none_is_found_when_it_is_read(tmp_path):
    dataset = streamed(tmp_path)
    with h5py.File(tmp_path / "part_2.h5", "r+") as file:
        file["X"][69, 1] = np.nan
    with pytest.raises(DataError, match=r"part_2\.h5: X: sample 69, element \(1,\) is nan"):
        seen(dataset)


def test_the_thread_ends_with_the_batches_even_in_the_middle(tmp_path, monkeypatch):
    dataset = streamed(tmp_path, window=12)
    fill = StreamedSamples.fill
    monkeypatch.setattr(StreamedSamples, "fill", lambda *a: (time.sleep(0.01), fill(*a)))
    batches = make_batches(dataset, BatchOptions(4, seed=7))
    next(iter(batches.epoch(0)))
    assert reading_threads()
    batches.close()
    assert not reading_threads()


def test_validation_reads_ahead_and_leaves_no_thread_when_it_is_given_up(tmp_path):
    dataset = streamed(tmp_path, window=8, validation_fraction=0.5)
    batches = validation_batches(dataset, batch_size=4)
    next(batches)
    assert reading_threads()
    batches.close()
    assert not reading_threads()


@needs("fsspec")
def test_files_far_away_want_a_folder_for_copies(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", 0, 30)
    files = {"train": f"file://{tmp_path}/a.h5", "features": "X", "labels": "y", "memory": "stream"}
    with pytest.raises(DataError, match="the file is remote") as caught:
        load(DataConfiguration(**files), MPI.COMM_SELF, 0)
    assert caught.value.cure == "name one: cache: DIR, or write memory: hold"
    with monkeypatch.context() as changes, pytest.raises(DataError, match="the file is remote") as caught:
        changes.setattr("mpi_learn.data.loading.host_memory_bytes", lambda: 100)
        load(DataConfiguration(**files | {"memory": "auto"}), MPI.COMM_SELF, 0)
    assert caught.value.cure == "name one: cache: DIR"
    cache = tmp_path / "cache"
    dataset = load(DataConfiguration(**files, cache=str(cache), keep_cache=False), MPI.COMM_SELF, 0)
    assert sorted(flat(seen(dataset))) == list(range(30))
    assert any(cache.iterdir())
    del dataset
    assert not any(cache.iterdir())
